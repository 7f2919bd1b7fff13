// The attention viewer: two sentences as rows of words, and all weights as a table.
// A weight comes as a whole number of thousandths.

const STRONG = 0.55; // from here on, text on the shade is drawn in the paper's colour
const NAMED = 3; // words in the sentence that tells what was found

function attentionViewer(holder, examples) {
  const sentence = choice(
    "Sentence",
    examples.map((one, index) => [index, label(one, index)]),
    showSentence,
  );
  const layer = choice("Layer", [], showLayer);
  const head = choice("Head", [], showWeights);
  const finding = element("p", { class: "finding", "aria-live": "polite" });
  const source = wordRow("source", (index) => select("source", index), cross);
  const target = wordRow("target", (index) => select("target", index), cross);
  const table = element("table", { class: "weights" });
  const whole = element("details", { class: "whole", open: "" });
  whole.append(element("summary", {}, "All weights"));
  whole.append(element("div", { class: "scroll" }, table));
  const fields = [sentence.field, layer.field, head.field];
  holder.append(element("div", { class: "fields" }, ...fields));
  holder.append(source.row, target.row, finding, whole);

  let weights = []; // [T][S]
  let chosen = { side: "target", index: 0 };

  const example = () => examples[sentence.select.value];
  const shown = () => example().layers[layer.select.value];

  function showSentence() {
    const names = example().layers.map((one) => one.name);
    refill(layer.select, names, names.length - 1);
    chosen = { side: "target", index: 0 };
    showLayer();
  }

  function showLayer() {
    const { heads, keys, queries, key_axis, query_axis } = shown();
    source.fill(keys, key_axis);
    target.fill(queries, query_axis === key_axis ? `${query_axis}, looking` : query_axis);
    const most = (chosen.side === "target" ? queries : keys).length - 1;
    chosen = { side: chosen.side, index: Math.min(chosen.index, most) };
    refill(head.select, heads.length > 1 ? ["mean of heads", ...heads] : heads, 0);
    head.field.hidden = heads.length === 1;
    showWeights();
  }

  function showWeights() {
    const heads = shown().weights;
    const index = Number(head.select.value) - 1;
    const used = heads.length > 1 && index >= 0 ? [heads[index]] : heads;
    weights = shown().queries.map((_, t) =>
      shown().keys.map(
        (_, s) => used.reduce((sum, one) => sum + one[t][s], 0) / (1000 * used.length),
      ),
    );
    fillTable(table, shown(), weights, select);
    select(chosen.side, chosen.index);
  }

  function select(side, index) {
    chosen = { side, index };
    const [own, other] = side === "target" ? [target, source] : [source, target];
    const found = side === "target" ? weights[index] : weights.map((row) => row[index]);
    own.choose(index);
    other.shade(found);
    tell(finding, side, own.words[index], other.words, found);
    for (const cell of table.querySelectorAll("td, th")) {
      cell.classList.toggle("chosen", cell.dataset[side] === String(index));
    }
  }

  // From the chosen word over to the one that has most weight in the other sentence.
  function cross() {
    const side = chosen.side === "target" ? "source" : "target";
    const row = side === "source" ? weights[chosen.index] : null;
    const found = row ?? weights.map((one) => one[chosen.index]);
    const index = found.indexOf(Math.max(...found));
    select(side, index);
    (side === "source" ? source : target).focus(index);
  }

  showSentence();
}

function label(example, index) {
  const text = visible(example.sentence);
  return `${index + 1}  ${text.length > 60 ? `${text.slice(0, 59)}…` : text}`;
}

// Fills a list of options; what the reader once chose is taken where it is there.
function refill(select, names, preferred) {
  const options = names.map((name, value) => element("option", { value }, name));
  select.replaceChildren(...options);
  const kept = names.indexOf(select.dataset.wanted);
  select.value = kept >= 0 ? kept : preferred;
}

// The side "target" looks and the side "source" is looked at, whatever their texts are.
function wordRow(side, onSelect, onCross) {
  const list = element("div", { class: "words", role: "group" });
  list.dir = "auto";
  const heading = element("h3");
  const row = element("div", { class: "row", "data-side": side });
  row.append(heading, list);
  const view = { row, words: [], fill, choose, shade, focus };
  let buttons = [];

  function fill(tokens, title) {
    heading.textContent = title;
    list.setAttribute("aria-label", title);
    view.words = tokens.map(visible);
    buttons = view.words.map((word, index) => {
      const text = element("span", { class: "word" }, word);
      const button = element("button", { type: "button", class: "token" }, text);
      button.append(element("span", { class: "weight" }));
      button.addEventListener("pointerenter", () => onSelect(index));
      button.addEventListener("focus", () => onSelect(index));
      button.addEventListener("click", () => onSelect(index));
      button.addEventListener("keydown", (event) => move(event, index));
      return button;
    });
    list.replaceChildren(...buttons);
  }

  function move(event, index) {
    const forward = getComputedStyle(list).direction === "rtl" ? -1 : 1;
    const places = {
      ArrowRight: index + forward,
      ArrowLeft: index - forward,
      Home: 0,
      End: buttons.length - 1,
    };
    if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      event.preventDefault();
      onCross();
    } else if (event.key in places) {
      event.preventDefault();
      focus(places[event.key]);
    }
  }

  function focus(index) {
    buttons[Math.max(0, Math.min(buttons.length - 1, index))].focus();
  }

  // The chosen word alone is a stop of the tab key; the arrows reach the others.
  function choose(index) {
    buttons.forEach((button, place) => {
      button.classList.toggle("chosen", place === index);
      button.setAttribute("aria-pressed", place === index);
      button.tabIndex = place === index ? 0 : -1;
      paint(button, 0);
      button.lastChild.textContent = "";
    });
  }

  function shade(weights) {
    const most = weights.indexOf(Math.max(...weights));
    buttons.forEach((button, place) => {
      button.classList.remove("chosen");
      button.setAttribute("aria-pressed", false);
      button.tabIndex = place === most ? 0 : -1;
      paint(button, weights[place]);
      button.lastChild.textContent = weights[place].toFixed(2);
    });
  }

  return view;
}

function paint(node, weight) {
  node.style.setProperty("--weight", weight);
  node.classList.toggle("strong", weight > STRONG);
  node.classList.toggle("none", weight < 0.005);
}

function tell(finding, side, word, others, weights) {
  const order = weights.map((weight, index) => [weight, others[index]]);
  const best = order.sort((a, b) => b[0] - a[0]).slice(0, NAMED);
  finding.replaceChildren(element("b", {}, element("bdi", {}, word)));
  finding.append(side === "target" ? " looks at " : " is looked at by ");
  best.forEach(([weight, other], place) => {
    if (place) finding.append(" · ");
    finding.append(element("bdi", {}, other), ` ${weight.toFixed(2)}`);
  });
}

function fillTable(table, layer, weights, onSelect) {
  const corner = element("td", { class: "corner" });
  const heads = element("tr", {}, corner);
  layer.keys.forEach((token, source) => {
    const text = element("span", {}, visible(token));
    heads.append(element("th", { scope: "col", "data-source": source }, text));
  });
  const rows = weights.map((row, target) => {
    const token = element("span", {}, visible(layer.queries[target]));
    const head = element("th", { scope: "row", "data-target": target }, token);
    const line = element("tr", {}, head);
    row.forEach((weight, source) => {
      const place = { "data-source": source, "data-target": target };
      const cell = element("td", { ...place, title: weight.toFixed(3) });
      paint(cell, weight);
      line.append(cell);
    });
    return line;
  });
  table.replaceChildren(element("thead", {}, heads), element("tbody", {}, ...rows));
  table.onpointerover = (event) => {
    const { source, target } = event.target.closest("td, th")?.dataset ?? {};
    if (target !== undefined) onSelect("target", Number(target));
    else if (source !== undefined) onSelect("source", Number(source));
  };
}
