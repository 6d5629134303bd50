// Several runs in the same charts, what differs in their settings, and how they ended.
import { get, listen, trying } from "../api.js";
import { onBack, readView, writeView } from "../address.js";
import { empty, fill, h, main, scroller } from "../dom.js";
import { interval, setting } from "../format.js";
import { CHARTS, chartBox, drawChart } from "../run_charts.js";
import { seriesColor } from "../charts.js";
import { stateOf, verdictBadge } from "../run_words.js";

const DEFAULTS = { run: [], smooth: 0 };
let view = readView(DEFAULTS);
let found = null;
const boxes = CHARTS.filter((chart) => !chart.phases).map((chart) => [chart, chartBox(chart)]);
const legend = h("div", { class: "page-head" });
const figures = h("section", { class: "panel" });
const differing = h("section", { class: "panel" });
const slider = h("input", { type: "range", min: "0", max: "0.98", step: "0.02", value: String(view.smooth), "aria-label": "Smoothing" });
slider.addEventListener("input", () => { view.smooth = Number(slider.value); writeView(view, DEFAULTS); drawCharts(); });
onBack(() => { view = readView(DEFAULTS); load(); });
window.addEventListener("themechange", () => { if (found) draw(); });

const swatch = (index) => h("span", { style: { display: "inline-block", width: "1.6em", height: ".35em", borderRadius: "2px", background: seriesColor(index) } });

function runs() {
  return view.run.filter((id) => found.runs[id]).map((id, i) => ({ name: found.runs[id].name, color: seriesColor(i), columns: found.metrics[id], evaluations: found.evaluations[id] }));
}

function drawCharts() {
  for (const [chart, box] of boxes) drawChart(box, chart, runs(), view.smooth, []);
}

function heads() {
  return view.run.map((id, i) => h("th", { scope: "col" }, swatch(i), " ", h("a", { href: `/run/${encodeURIComponent(id)}` }, found.runs[id].name)));
}

function drawFigures() {
  const names = [...new Map(view.run.flatMap((id) => found.runs[id].figures.map((row) => [row.name, row.label])))];
  const cell = (id, name) => { const row = found.runs[id].figures.find((one) => one.name === name); return row?.best ?? row?.last; };
  fill(figures, h("h2", {}, "Held-out prompts, at the best evaluation"), scroller("Figures", h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, ""), heads())),
    h("tbody", {}, h("tr", {}, h("th", { scope: "row" }, "state"), view.run.map((id) => h("td", {}, stateOf(found.runs[id])))),
      h("tr", {}, h("th", { scope: "row" }, "verdict"), view.run.map((id) => h("td", {}, verdictBadge(found.runs[id].verdict)))),
      h("tr", {}, h("th", { scope: "row" }, "best step"), view.run.map((id) => h("td", {}, found.runs[id].best_step ?? "–"))),
      names.map(([name, label]) => h("tr", {}, h("th", { scope: "row" }, label), view.run.map((id) => h("td", {}, interval(cell(id, name))))))))));
}

function drawDiffering() {
  const rows = Object.entries(found.differing);
  fill(differing, h("h2", {}, "Settings that differ"), rows.length
    ? scroller("Settings that differ", h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, ""), heads())),
      h("tbody", {}, rows.map(([name, values]) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, name)), view.run.map((id) => h("td", { class: "mono text" }, setting(values[id]))))))))
    : h("p", { class: "soft" }, "All settings are the same."));
}

function draw() {
  fill(legend, h("h1", {}, "Compare runs"), h("div", { class: "right" }, h("label", {}, "Smoothing", slider)));
  drawFigures(); drawDiffering(); drawCharts();
}

let busy = false;
async function load() {
  if (busy) return;
  busy = true;
  if (view.run.length) found = await trying(() => get("/api/compare", { run: view.run }));
  busy = false;
  if (!found) {
    fill(main(), empty("Nothing to compare", h("p", {}, "Choose two or more runs in ", h("a", { href: "/" }, "the list of runs"), ", then press Compare.")));
    return;
  }
  view.run = view.run.filter((id) => found.runs[id]);
  if (!figures.isConnected) fill(main(), legend, h("div", { class: "two" }, figures, differing), h("h2", {}, "Charts"), h("div", { class: "grid" }, boxes.map(([, box]) => box)));
  draw();
}

await load();
listen("", load);
