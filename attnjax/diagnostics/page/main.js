// Reads what the page holds and shows each part that there is.

const page = JSON.parse(document.getElementById("data").textContent);
document.getElementById("title").textContent = page.title;
if (page.scores && page.scores.bleu !== undefined) showHeadline(page.scores);
showCurves(page.curves, page.main_score);
if (page.scores) showScores(page.scores);
if (page.attention.length) attentionViewer(section("attention"), page.attention);
if (page.samples.length) showSamples(page.samples, page.languages);
if (Object.keys(page.configuration).length) {
  section("configuration").append(tree(page.configuration, true));
}
