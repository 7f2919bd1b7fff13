// The parts of the page that need no more than elements.

const IN_HEADLINE = ["split", "lines", "step", "zero_reason"];

function showHeadline(scores) {
  const holder = section("headline");
  const figure = element("p", { class: "figure" }, oneDecimal(scores.bleu));
  figure.append(element("span", {}, "BLEU"));
  const lines = scores.lines === undefined ? "" : `${plain(scores.lines)} lines`;
  const step = scores.step === undefined ? "" : `step ${plain(scores.step)}`;
  const facts = [scores.split, lines, step].filter(Boolean).join(" · ");
  const beside = element("div", {}, element("p", {}, facts));
  beside.append(signatureCode(scores.bleu_signature ?? ""));
  if (scores.zero_reason) beside.append(element("p", {}, scores.zero_reason));
  holder.append(figure, beside);
}

function showCurves(curves, mainScore) {
  const { train, validation } = curves;
  const costs = [];
  if (train.nll) costs.push({ name: "train", look: "quiet", ...train.nll });
  if (validation.nll) {
    costs.push({ name: "validation", look: "accent", ...validation.nll });
  }
  const names = Object.keys(validation).filter((name) => name !== "nll");
  if (!costs.length && !names.length) return;
  const all = [...costs, ...names.map((name) => validation[name])];
  const extent = range(all.flatMap((one) => one.steps));
  const charts = element("div", { class: "charts" });
  section("curves").append(charts);
  const title = "Cost of a token (nll, nats)";
  if (costs.length) charts.append(lineChart(title, costs, extent));
  if (!names.length) return;
  const panel = element("div", { class: "panel" });
  const plot = element("div");
  const score = choice("Validation score", names.map((name) => [name, words(name)]), draw);
  function draw() {
    const name = score.select.value;
    const one = { name: words(name), look: "accent", ...validation[name] };
    const title = `Validation ${words(name)}`;
    plot.replaceChildren(lineChart(title, [one], extent, best(name, one)));
  }
  if (names.includes(mainScore)) score.select.value = mainScore;
  panel.append(plot);
  if (names.length > 1) panel.append(score.field);
  charts.append(panel);
  draw();
}

function best(name, one) {
  const lower = ["perplexity", "nll", "ter"].includes(name);
  let found = null;
  one.values.forEach((value, index) => {
    if (value === null) return;
    const better = found === null || (lower ? value < found[0] : value > found[0]);
    if (better) found = [value, one.steps[index]];
  });
  return found ? `best ${plain(found[0])} at step ${plain(found[1])}` : "";
}

function showScores(scores) {
  const holder = section("scores");
  const buckets = scores.bleu_by_source_words ?? [];
  if (buckets.length) holder.append(lengthBars(buckets));
  holder.append(metricTable(scores), facts(scores));
  const report = element("details", {}, element("summary", {}, "Whole report"));
  report.append(tree(scores));
  holder.append(report);
}

function lengthBars(buckets) {
  const body = element("tbody");
  const most = Math.max(1, ...buckets.map((bucket) => bucket.bleu ?? 0));
  for (const bucket of buckets) {
    const bar = element("div", { class: "bar" });
    bar.style.width = `${(100 * (bucket.bleu ?? 0)) / most}%`;
    body.append(
      element(
        "tr",
        {},
        element("th", { scope: "row" }, bucket.label),
        element("td", { class: "bars" }, bar),
        element("td", { class: "number" }, oneDecimal(bucket.bleu)),
        element("td", { class: "number muted" }, plain(bucket.count)),
      ),
    );
  }
  const head = element("tr");
  for (const [text, look] of [
    ["words", ""],
    ["", ""],
    ["BLEU", "number"],
    ["lines", "number"],
  ]) {
    head.append(element("th", { scope: "col", class: look }, text));
  }
  const table = element("table", { class: "lengths" });
  table.append(element("caption", {}, "BLEU by words in the source"));
  table.append(element("thead", {}, head), body);
  return table;
}

// Every number that comes with a signature.
function metricTable(scores) {
  const body = element("tbody");
  for (const name of Object.keys(scores)) {
    const signature = scores[`${name}_signature`];
    if (signature === undefined) continue;
    const cell = element("td", {}, signatureCode(signature));
    body.append(
      element(
        "tr",
        {},
        element("th", { scope: "row" }, words(name)),
        element("td", { class: "number" }, oneDecimal(scores[name])),
        cell,
      ),
    );
  }
  return element("table", { class: "metrics" }, body);
}

function facts(scores) {
  const list = element("dl", { class: "facts" });
  for (const [name, value] of Object.entries(scores)) {
    const isText = typeof value === "string" && !name.endsWith("_signature");
    const told = `${name}_signature` in scores || IN_HEADLINE.includes(name);
    if (told || !(isText || typeof value === "number")) continue;
    const pair = [element("dt", {}, words(name)), element("dd", {}, plain(value))];
    list.append(element("div", {}, ...pair));
  }
  return list;
}

const SAMPLES_SHOWN = 10;

function showSamples(samples, languages) {
  const holder = section("samples");
  const columns = ["source", "output", "reference"];
  const body = element("tbody");
  samples.forEach((sample, index) => {
    const row = element("tr", {}, element("td", { class: "number muted" }, index + 1));
    row.hidden = index >= SAMPLES_SHOWN;
    for (const name of columns) {
      const text = sample[name] === null ? "–" : visible(sample[name]);
      const cell = element("td", { dir: "auto", "data-label": name }, text);
      const language = name === "source" ? languages[0] : languages[1];
      if (language) cell.lang = language;
      row.append(cell);
    }
    body.append(row);
  });
  const head = element("tr", {}, element("th", { class: "number" }, ""));
  for (const name of columns) head.append(element("th", { scope: "col" }, name));
  const table = element("table", { class: "samples" });
  table.append(element("thead", {}, head), body);
  holder.append(table);
  if (samples.length <= SAMPLES_SHOWN) return;
  const more = element("button", { type: "button", class: "more" });
  more.append(`Show all ${plain(samples.length)}`);
  more.addEventListener("click", () => {
    for (const row of body.rows) row.hidden = false;
    more.remove();
  });
  holder.append(more);
}

// A value of JSON as nested lists that open and close.
function tree(value, open = false) {
  const list = element("ul", { class: "tree" });
  for (const [name, inner] of Object.entries(value)) {
    if (name === "type" && !Array.isArray(value)) continue;
    list.append(element("li", {}, branch(name, inner, open)));
  }
  return list;
}

function branch(name, inner, open) {
  const nested = inner !== null && typeof inner === "object";
  const flat = Array.isArray(inner) && inner.every((item) => typeof item !== "object");
  if (!nested || flat) {
    const text = flat ? inner.join(", ") || "none" : JSON.stringify(inner);
    const leaf = element("span", { class: "leaf" }, element("span", {}, `${name} `));
    leaf.append(element("code", {}, visible(text)));
    return leaf;
  }
  const summary = element("summary", {}, `${name} `);
  if (inner.type) summary.append(element("span", { class: "muted" }, inner.type));
  const details = element("details", {}, summary, tree(inner));
  details.open = open;
  return details;
}
