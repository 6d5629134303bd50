// One run: live charts, its verdict with reasons, settings, and where to go from here.
import { get, listen, trying } from "../api.js";
import { onBack, pathPart, readView, writeView } from "../address.js";
import { command, empty, fill, h, main, scroller } from "../dom.js";
import { ago, duration, interval, num, setting, signed } from "../format.js";
import { anyChart, CHARTS, chartBox, drawChart, otherMetrics } from "../run_charts.js";
import { explainKeys, onKeys } from "../frame.js";
import { stateOf, verdictBadge } from "../run_words.js";

const id = pathPart(1);
const DEFAULTS = { smooth: 0, chart: [], settings: "" };
let view = readView(DEFAULTS);
let about = null;
let generation = 0;
let columns = {};
let evaluations = [];
const boxes = new Map();
const head = h("div", { class: "page-head" });
const waiting = h("div", { role: "status" });
const tiles = h("div", { class: "tiles" });
const verdict = h("section", { class: "panel" });
const figures = h("section", { class: "panel" });
const grid = h("div", { class: "grid" });
const settings = h("section", { class: "panel" });
const slider = h("input", { type: "range", min: "0", max: "0.98", step: "0.02", value: String(view.smooth), "aria-label": "Smoothing" });
const smoothing = h("output", { class: "numbers" });
const more = h("select", { "aria-label": "Add a chart" });
const filter = h("input", { type: "search", placeholder: "Find a setting", "aria-label": "Find a setting", value: view.settings });

function change(changes, push = false) {
  view = { ...view, ...changes };
  writeView(view, DEFAULTS, push);
}

slider.addEventListener("input", () => { change({ smooth: Number(slider.value) }); drawCharts(); });
more.addEventListener("change", () => { if (more.value) { change({ chart: [...view.chart, more.value] }, true); drawCharts(); } });
filter.addEventListener("input", () => { change({ settings: filter.value }); drawSettings(); });
onBack(() => { view = readView(DEFAULTS); slider.value = String(view.smooth); filter.value = view.settings; drawCharts(); drawSettings(); });

function drawHead() {
  const links = [["Tokens", `/run/${encodeURIComponent(id)}/tokens`], ["Try it", `/try?run=${encodeURIComponent(id)}`]];
  fill(head, h("h1", {}, about.name), stateOf(about), about.verdict ? verdictBadge(about.verdict) : null,
    h("div", { class: "right" }, links.map(([text, href]) => h("a", { class: "button", href }, text))));
}

function tile(value, label, title) {
  return h("div", { class: "tile", title: title ?? null }, h("b", {}, value), h("span", {}, label));
}

function sinceFirst(name) {
  const known = (columns[name] ?? []).filter((value) => value !== null);
  return known.length > 1 ? `(${signed(known.at(-1) - known[0])})` : "";
}

function drawWaiting() {
  const { waits, other_store: other } = about;
  const elsewhere = other ? h("div", { class: "note-bar" }, h("span", { class: "text" }, `This run asks people in ${other.run}; this page shows the questions in ${other.studio}. To judge its responses, start the studio with --store and the run's store.`)) : null;
  fill(waiting, elsewhere, waits ? h("div", { class: "note-bar" }, h("span", {}, `Step ${waits.step ?? "?"} has waited ${duration(waits.seconds)} for people: ${waits.left === 1 ? "1 response is" : `${waits.left} responses are`} left to judge.`), h("a", { class: "button main", href: "/judge" }, "Judge")) : null);
}

function drawTiles() {
  const total = about.total_steps;
  const last = (name) => (columns[name] ?? []).at(-1);
  fill(tiles,
    h("div", { class: "tile" }, h("b", {}, total ? `${about.step} / ${total}` : `${about.step}`), h("span", {}, about.state === "running" ? `step; ${duration(about.seconds_left)} left` : "steps"),
      total ? h("progress", { max: total, value: about.step, "aria-label": "Progress" }) : null),
    tile(num(last("avg_reward")), `reward ${sinceFirst("avg_reward")}`), tile(num(last("kl"), 3), `KL ${sinceFirst("kl")}`),
    tile(num(last("entropy"), 3), `entropy ${sinceFirst("entropy")}`), tile(num(last("value_accuracy"), 3), "value accuracy"),
    tile(num(last("response_length"), 3), "tokens per response"), tile(about.best_step === null ? "–" : `${about.best_step}`, "best step"), tile(ago(about.age), "last news"));
}

function drawVerdict() {
  const stopped = about.why ? h("p", {}, `It ${about.state === "stopped" ? "stopped" : "ended"}: ${about.why}.`) : null;
  const gains = Object.entries(about.gains).map(([name, gain]) => h("li", {}, `${name}: ${signed(gain.mean)} [${signed(gain.low)}, ${signed(gain.high)}] from the first to the best evaluation`));
  const reasons = about.reasons.map((reason) => h("li", {}, reason));
  const alarms = about.alarms.map((alarm) => h("li", { class: "bad" }, `step ${alarm.step}: ${alarm.status}`));
  const open = about.state === "running" || about.state === "waiting" ? h("p", { class: "soft" }, "The verdict is given at the end; evaluations so far are in the charts.") : null;
  fill(verdict, h("h2", {}, "Verdict ", about.verdict ? verdictBadge(about.verdict) : null), open, stopped,
    reasons.length ? h("ul", {}, reasons) : null, gains.length && !reasons.length ? h("ul", {}, gains) : null,
    alarms.length ? [h("h3", {}, "Alarms"), h("ul", {}, alarms)] : null,
    about.state === "stopped" ? [h("h3", {}, "Continue it"), command(about.resume)] : null,
    h("p", { class: "soft mono text" }, about.path));
}

function drawFigures() {
  const rows = about.figures;
  const step = (when) => rows[0]?.[when]?.step;
  const names = { first: "first", best: step("best") === step("last") ? "best, last" : "best", last: "last" };
  const whens = ["first", ...(step("best") === undefined ? [] : ["best"]), ...(step("best") === step("last") ? [] : ["last"])].filter((when, i) => i === 0 || step(when) !== step("first"));
  fill(figures, h("h2", {}, "Held-out prompts"), rows.length
    ? scroller("Figures of evaluations", h("table", {}, h("thead", {}, h("tr", {}, h("td", {}), whens.map((when) => h("th", { scope: "col", class: "number" }, `${names[when]} (step ${step(when)})`)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, h("th", { scope: "row" }, row.label), whens.map((when) => h("td", { class: "number" }, interval(row[when]))))))),
    h("p", { class: "soft" }, "In brackets: 95 % intervals over prompts."))
    : h("p", { class: "soft" }, "No evaluation yet."));
}

function allCharts() {
  return [...CHARTS, ...view.chart.map(anyChart)];
}

function drawCharts() {
  const weight = Math.min(0.98, Math.max(0, view.smooth));
  smoothing.textContent = weight ? weight.toFixed(2) : "off";
  const marks = about.alarms.map((alarm) => ({ x: alarm.step, label: alarm.status, color: "bad" }));
  if (about.best_step) marks.push({ x: about.best_step, label: "best", color: "good" });
  const run = { name: about.name, columns, evaluations };
  const charts = allCharts();
  for (const [key, box] of boxes) if (!charts.some((chart) => chart.key === key)) { box.remove(); boxes.delete(key); }
  for (const chart of charts) {
    if (!boxes.has(chart.key)) { boxes.set(chart.key, chartBox(chart)); grid.append(boxes.get(chart.key)); }
    drawChart(boxes.get(chart.key), chart, [run], weight, marks);
  }
  const others = otherMetrics(columns).filter((name) => !view.chart.includes(name));
  fill(more, h("option", { value: "" }, "Add a chart …"), others.map((name) => h("option", { value: name }, name)));
}

function drawSettings() {
  const wanted = view.settings.toLowerCase();
  const rows = Object.entries(about.settings).filter(([name, value]) => `${name} ${setting(value)}`.toLowerCase().includes(wanted));
  fill(settings, h("div", { class: "page-head" }, h("h2", { style: { margin: "0" } }, "Settings"), h("div", { class: "right" }, filter)),
    scroller("Settings", h("table", {}, h("tbody", {}, rows.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, name)), h("td", { class: "mono text" }, setting(value)))))), "settings"));
}

let busy = false;
let again = false;
async function load() {
  if (busy) { again = true; return; }
  busy = true;
  const since = columns.step?.at(-1) ?? 0;
  const found = await trying(() => Promise.all([get(`/api/run/${encodeURIComponent(id)}`), get(`/api/run/${encodeURIComponent(id)}/metrics`, { since, generation })]));
  busy = false;
  if (found) take(...found);
  else if (!about) fill(main(), empty("This run cannot be shown", h("p", {}, h("a", { href: "/" }, "All runs"))));
  if (again) { again = false; load(); }
}

function take(described, metrics) {
  about = described;
  if (metrics.generation !== generation) { columns = {}; generation = metrics.generation; }
  const size = columns.step?.length ?? 0;
  const added = metrics.train.step?.length ?? 0;
  for (const name of new Set([...Object.keys(columns), ...Object.keys(metrics.train)])) {
    columns[name] = (columns[name] ?? Array(size).fill(null)).concat(metrics.train[name] ?? Array(added).fill(null));
  }
  evaluations = metrics.evaluations;
  if (!grid.isConnected) {
    fill(main(), head, waiting, tiles, verdict,
      h("div", { class: "page-head", style: { marginTop: "1rem" } }, h("h2", { style: { margin: "0" } }, "Charts"), h("div", { class: "right" }, h("label", {}, "Smoothing", slider, smoothing), more)),
      grid, h("div", { class: "two", style: { marginTop: ".75rem" } }, figures, settings));
  }
  document.title = `${about.name} · ppolm studio`;
  drawHead(); drawWaiting(); drawTiles(); drawVerdict(); drawFigures(); drawCharts();
  if (document.activeElement !== filter) drawSettings();
}

explainKeys(["s", "more smoothing"], ["S", "less smoothing"], ["k", "tokens of this run"]);
const nudge = (by) => { slider.value = String(Number(slider.value) + by); slider.dispatchEvent(new Event("input")); };
onKeys({ s: () => nudge(0.1), S: () => nudge(-0.1), k: () => { location.href = `/run/${encodeURIComponent(id)}/tokens`; } });
await load();
listen(id, load);
