// Line charts in pixels of the room there is, redrawn when that changes.

const CHART_HEIGHT = 220;
const MARGIN = { top: 10, right: 28, bottom: 26, left: 48 };

// Round numbers, about `count` of them, between two others.
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const found = [];
  for (let index = Math.ceil(low / step); index * step <= high + step / 1e6; index++) {
    found.push(Number((index * step).toPrecision(12)));
  }
  return found;
}

function range(numbers) {
  let low = Infinity;
  let high = -Infinity;
  for (const number of numbers) {
    if (number === null) continue;
    low = Math.min(low, number);
    high = Math.max(high, number);
  }
  if (low > high) return [0, 1];
  return low < high ? [low, high] : [low - 0.5, high + 0.5];
}

function scale([low, high], [start, end]) {
  return (value) => start + ((value - low) / (high - low)) * (end - start);
}

// One chart over the steps of `extent`. A series has a name, steps, values (null is a
// gap) and a look.
function lineChart(title, series, extent, note = "") {
  const steps = [...new Set(series.flatMap((one) => one.steps))].sort((a, b) => a - b);
  const lookup = series.map(
    (one) => new Map(one.steps.map((step, index) => [step, one.values[index]])),
  );
  const readings = series.map(() => element("b"));
  const place = element("span", { class: "place" });
  const legend = element("p", { class: "legend" });
  series.forEach((one, index) => {
    const swatch = element("i", { class: `swatch ${one.look}` });
    legend.append(element("span", {}, swatch, `${one.name} `, readings[index]));
  });
  legend.append(place);
  const svg = shape("svg", { role: "slider", tabindex: "0", "aria-label": title });
  const figure = element("figure", { class: "chart" });
  figure.append(element("h3", {}, title), legend, svg);
  if (note) figure.append(element("figcaption", {}, note));

  let chosen = steps.length - 1;
  let drawing = null;

  function choose(index) {
    chosen = Math.max(0, Math.min(steps.length - 1, index));
    const step = steps[chosen];
    lookup.forEach((values, index) => {
      readings[index].textContent = values.has(step) ? plain(values.get(step)) : "";
    });
    place.textContent = `step ${plain(step)}`;
    svg.setAttribute("aria-valuemin", steps[0]);
    svg.setAttribute("aria-valuemax", steps.at(-1));
    svg.setAttribute("aria-valuenow", step);
    svg.setAttribute("aria-valuetext", legend.textContent);
    if (drawing) drawing.point(step);
  }

  function draw() {
    const width = Math.max(240, Math.floor(figure.clientWidth));
    drawing = drawLines(svg, width, extent, series, lookup);
    choose(chosen);
  }

  svg.addEventListener("pointermove", (event) => {
    const left = event.clientX - svg.getBoundingClientRect().left;
    const distances = steps.map((step) => Math.abs(drawing.x(step) - left));
    choose(distances.indexOf(Math.min(...distances)));
  });
  svg.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -chosen, End: steps.length };
    if (!(event.key in moves)) return;
    event.preventDefault();
    choose(chosen + moves[event.key]);
  });
  new ResizeObserver(draw).observe(figure);
  return figure;
}

function drawLines(svg, width, extent, series, lookup) {
  const right = width - MARGIN.right;
  const bottom = CHART_HEIGHT - MARGIN.bottom;
  const vertical = range(series.flatMap((one) => one.values));
  const x = scale(extent, [MARGIN.left, right]);
  const y = scale(vertical, [bottom - 6, MARGIN.top + 6]);
  svg.setAttribute("viewBox", `0 0 ${width} ${CHART_HEIGHT}`);
  svg.setAttribute("height", CHART_HEIGHT);
  svg.replaceChildren();
  for (const value of ticks(...vertical, 4)) {
    const grid = { x1: MARGIN.left, x2: right, y1: y(value), y2: y(value) };
    svg.append(
      shape("line", { class: "grid", ...grid }),
      shape("text", { class: "left", x: MARGIN.left - 8, y: y(value) }, plain(value)),
    );
  }
  for (const step of ticks(...extent, width / 110)) {
    if (!Number.isInteger(step)) continue;
    const text = { class: "below", x: x(step), y: CHART_HEIGHT - 8 };
    svg.append(shape("text", text, plain(step)));
  }
  for (const one of series) drawSeries(svg, one, x, y);
  const guide = shape("line", { class: "guide", y1: MARGIN.top, y2: bottom });
  const marks = series.map((one) => shape("circle", { class: one.look, r: 4.5 }));
  svg.append(guide, ...marks);

  function point(step) {
    guide.setAttribute("x1", x(step));
    guide.setAttribute("x2", x(step));
    marks.forEach((mark, index) => {
      const value = lookup[index].get(step) ?? null;
      mark.style.display = value === null ? "none" : "";
      mark.setAttribute("cx", x(step));
      mark.setAttribute("cy", value === null ? 0 : y(value));
    });
  }
  return { x, point };
}

function drawSeries(svg, one, x, y) {
  let path = "";
  let pen = "M";
  one.values.forEach((value, index) => {
    if (value !== null) path += `${pen}${x(one.steps[index])} ${y(value)}`;
    pen = value === null ? "M" : "L";
  });
  svg.append(shape("path", { class: `line ${one.look}`, d: path || "M0 0" }));
  if (one.look === "quiet") return;
  one.values.forEach((value, index) => {
    if (value === null) return;
    const dot = { class: one.look, cx: x(one.steps[index]), cy: y(value), r: 3 };
    svg.append(shape("circle", dot));
  });
}
