// Makers of elements and texts. Data becomes text nodes and never markup, so that a
// sentence that looks like HTML is shown as it is.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function shape(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG_NAMESPACE, tag), attributes, children);
}

function section(id) {
  const found = document.getElementById(id);
  found.hidden = false;
  return found;
}

function choice(label, options, onChange) {
  const select = element("select");
  for (const [value, text] of options) {
    select.append(element("option", { value }, text));
  }
  select.addEventListener("change", () => {
    select.dataset.wanted = select.selectedOptions[0].textContent;
    onChange();
  });
  return { select, field: element("label", { class: "field" }, label, select) };
}

function plain(value, digits = 4) {
  if (typeof value !== "number") return value === null ? "–" : String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const small = value !== 0 && Math.abs(value) < 0.001;
  return small
    ? value.toExponential(2)
    : value.toLocaleString("en", { maximumSignificantDigits: digits });
}

function oneDecimal(value) {
  return value === null || value === undefined ? "–" : value.toFixed(1);
}

const METRIC_NAMES = { bleu: "BLEU", chrf: "chrF", ter: "TER" };

function words(name) {
  return METRIC_NAMES[name] ?? name.replaceAll("_", " ");
}

// May break after its bars and, where there is room, nowhere else.
function signatureCode(text) {
  const code = element("code");
  text.split("|").forEach((part, index) => {
    if (index) code.append("|", element("wbr"));
    code.append(part);
  });
  return code;
}

// Line ends, controls and lone spaces as something that one can see.
function visible(text) {
  const escaped = text.replace(/[\p{Cc}\u2028\u2029]/gu, (character) => {
    const code = character.codePointAt(0).toString(16);
    return `\\u${code.padStart(4, "0")}`;
  });
  return escaped.trim() === "" ? `“${escaped}”` : escaped;
}
