// Tokens: any stored step and response as text, coloured by any column; why a token has its advantage, and what if.
import { get, listen, trying } from "../api.js";
import { onBack, pathPart, readView, writeView } from "../address.js";
import { empty, fill, h, main } from "../dom.js";
import { explainKeys, onKeys } from "../frame.js";
import { Bar } from "../tokens/bar.js";
import { scaleOf } from "../tokens/colors.js";
import { drawDetail } from "../tokens/detail.js";
import { drawExplanation } from "../tokens/explain.js";
import { HeldOut } from "../tokens/held_out.js";
import { ResponseList } from "../tokens/list.js";
import { drawSamples, TextView } from "../tokens/text_view.js";
import { differing, NAMES, parsed, WhatIf } from "../tokens/what_if.js";

const id = pathPart(1);
const base = `/api/run/${encodeURIComponent(id)}`;
const DEFAULTS = {
  step: -1, response: -1, token: -1, column: "advantage", second: "", show: "response", explain: "", whatif: "",
  find: "", ended: "all", sort: "sequence", order: "up", prompt: -1, page: 0, at: -1, sample: -1,
  ...Object.fromEntries(NAMES.map((name) => [name, ""])),
};
const MOST_SAMPLES = 12;
let view = readView(DEFAULTS);
let steps = [];
let step = null; // what the server says of the step that is shown
let response = null;
let tried = null; // the response with other settings
let panel = null; // the sliders of "what if"
let hovered = null;
let focusNext = false; // whether the text takes the focus once it is drawn
let pickLast = false; // whether a page of the list that was walked into is entered at its end
let turn = 0;
let settled = Promise.resolve(); // once what was last asked for is drawn

const stepAddress = (number = view.step) => `${base}/tokens/${number}`;
const responseAddress = (sequence = view.response) => `${stepAddress()}/response/${sequence}`;

// ---- the parts of the page ---------------------------------------------------------------------------------------------

const tabs = ["response", "held-out"].map((name) => h("button", { type: "button", onclick: () => go({ show: name, page: 0 }) }, name === "response" ? "Responses of training" : "Held-out samples"));
const detail = h("section", { class: "panel detail" });
const explained = h("section", { class: "panel explained hidden", "aria-label": "Explanation" });
const whatIf = h("section", { class: "panel what-if hidden", "aria-label": "What if" });
const samplesView = h("section", { class: "panel text-view hidden" });
// What is clicked on belongs to what is seen, even if another step is on its way.
const seen = () => (text.response ? { step: text.response.step, response: text.response.sequence } : {});
const list = new ResponseList({ change: (changes) => go(changes), page: (page) => { view.page = page; writeView(view, DEFAULTS); }, open: (sequence, number) => go({ step: number, response: sequence, token: -1, explain: "" }) });
const text = new TextView({
  hover: (index) => { hovered = index; text.hover(index, view.token); drawRow(); },
  choose: (index) => go({ ...seen(), token: index }, false),
  open: (index) => { go({ ...seen(), token: index, explain: "1" }, view.token !== index || !view.explain); },
  sample: (sequence) => go({ ...seen(), response: sequence, token: -1, explain: "" }),
  only: (prompt) => go({ ...seen(), prompt, page: -1 }),
  step: (number, prompt) => toPrompt(number, prompt),
});
const heldOut = new HeldOut(`${base}/held-out`, { change: (changes, push) => go(changes, push) });
const bar = new Bar({
  change: (changes) => go(changes), step: (number) => go(atStart(number)), move: moveStep, place: takeTo,
  samples: () => go({ show: view.show === "samples" ? "response" : "samples" }), whatIf: toggleWhatIf,
});
const grid = h("div", { class: "tokens-grid" }, list.node, h("div", { class: "middle" }, text.node, samplesView), h("aside", { class: "side", "aria-label": "Token" }, detail, explained, whatIf));
const head = h("div", { class: "page-head" });

// ---- moving ------------------------------------------------------------------------------------------------------------

function go(changes, push = true) {
  view = { ...view, ...changes };
  writeView(view, DEFAULTS, push);
  settled = sync();
}

function atStart(number) {
  return { step: number, response: -1, token: -1, explain: "", page: 0, prompt: -1 };
}

function takeTo(place) {
  if (!place || step.step !== view.step) return; // another step is on its way
  focusNext = true;
  go({ show: "response", response: place.sequence, token: place.token, explain: "", page: -1 });
}

function moveStep(by) {
  const next = steps[steps.indexOf(view.step) + by];
  if (next !== undefined) go(atStart(next));
}

function moveResponse(by) {
  const next = list.next(view.response, by);
  if (next !== undefined) go({ response: next, token: -1, explain: "" });
  else if (list.hasPage(view.page + by)) { pickLast = by < 0; go({ page: view.page + by, response: -1, token: -1, explain: "" }); }
}

function moveColumn(by) {
  const names = Object.keys(step?.columns ?? {});
  if (names.length) go({ column: names[(names.indexOf(view.column) + by + names.length) % names.length] });
}

function toggleWhatIf() {
  if (view.whatif) go({ whatif: "", ...Object.fromEntries(NAMES.map((name) => [name, ""])) });
  else go({ whatif: "1" });
}

/** The same prompt in another step: the sample at the same place among its samples. */
async function toPrompt(number, prompt) {
  const at = response?.samples.indexOf(response.sequence) ?? 0;
  const found = await trying(() => get(`${stepAddress(number)}/responses`, { prompt, limit: 200 }));
  if (!found?.rows.length) return;
  const row = found.rows[Math.min(at, found.rows.length - 1)];
  go({ step: number, response: row.sequence, token: -1, explain: "", page: -1, prompt: -1 });
}

// ---- showing what the address says -------------------------------------------------------------------------------------

async function sync() {
  const now = turn += 1;
  const held = view.show === "held-out";
  tabs.forEach((tab, i) => tab.setAttribute("aria-pressed", String(held === (i === 1))));
  heldOut.node.classList.toggle("hidden", !held);
  for (const node of [bar.node, grid]) node.classList.toggle("hidden", held || !steps.length);
  none.classList.toggle("hidden", held || steps.length > 0);
  if (held) { await heldOut.show(view); return; }
  if (!steps.length) return;
  if (!(await openStep(now))) return;
  const listed = list.show(stepAddress(), view);
  if (view.response < 0) {
    const found = await listed;
    if (now !== turn) return;
    view.response = found?.rows.at(pickLast ? -1 : 0)?.sequence ?? 0;
    pickLast = false;
    writeView(view, DEFAULTS);
    list.mark(view.response);
  }
  if (!(await openResponse(now))) return;
  await showWhatIf(now);
  if (now === turn && view.show === "samples") await showSamples(now);
  if (now !== turn) return;
  draw();
  showExplanation(now);
}

async function openStep(now) {
  if (!steps.includes(view.step)) { view.step = view.step < 0 ? steps.at(-1) : nearest(view.step); writeView(view, DEFAULTS); }
  if (step?.step !== view.step) {
    const found = await trying(() => get(stepAddress()));
    if (now !== turn) return false;
    if (!found) { showTrouble(`Step ${view.step} cannot be shown`); return false; }
    [step, response, tried, panel] = [found, null, null, null];
  }
  if (!(view.column in step.columns)) view.column = "advantage" in step.columns ? "advantage" : Object.keys(step.columns)[0];
  if (view.second && !(view.second in step.columns)) view.second = "";
  reflect();
  return true;
}

function nearest(number) {
  return steps.reduce((best, one) => (Math.abs(one - number) < Math.abs(best - number) ? one : best), steps[0]);
}

async function openResponse(now) {
  if (response?.step === view.step && response.sequence === view.response) return true;
  const found = await trying(() => get(responseAddress()));
  if (now !== turn) return false;
  if (!found) { if (view.response > 0) go({ response: 0, token: -1, explain: "" }, false); return false; }
  response = { ...found, step: view.step };
  tried = null;
  get(`${stepAddress()}/prompt/${found.prompt}`).then((other) => { if (response?.sequence === found.sequence) text.showSteps(other.steps, view.step); }, () => {});
  return true;
}

function showTrouble(title) {
  reflect();
  step = null;
  response = null;
  fill(text.panes, empty(title, "Its table may be half copied or damaged. Choose another step above; they are not affected."));
  for (const node of [text.head, text.prompt, text.charts, text.over, detail]) fill(node);
  text.response = null;
  text.cells = [];
}

function reflect() {
  bar.reflect(steps, step, view);
}

// ---- drawing -----------------------------------------------------------------------------------------------------------

/** The scale of a column and the numbers of a response: as stored, or how "what if" changes them. */
function coloring(name, of, other) {
  if (other && name in other.differences) return { scale: scaleOf(name, other.ranges[name], `change of ${name}`), values: other.differences[name] };
  return { scale: scaleOf(name, step.columns[name]), values: of.columns[name] };
}

function draw() {
  reflect();
  const samples = view.show === "samples";
  text.node.classList.toggle("hidden", samples);
  samplesView.classList.toggle("hidden", !samples);
  const score = "score" in response.columns ? response.columns.score.reduce((sum, one) => sum + (one ?? 0), 0) : null;
  text.show(response, [view.column, view.second].filter(Boolean).map((name) => coloring(name, response, view.whatif ? tried : null)), step.value_target, score, view.whatif && tried ? tried.columns : null);
  if (view.token >= response.ids.length) view.token = -1;
  text.choose(view.token);
  if (focusNext) { focusNext = false; text.focus(); }
  drawRow();
}

function scales() {
  return Object.fromEntries(Object.entries(step.columns).map(([name, range]) => [name, scaleOf(name, range)]));
}

function drawRow() {
  if (!response) return;
  drawDetail(detail, response, hovered ?? view.token, scales(), view.whatif && tried ? tried.columns : null);
}

let explanation = null;
async function showExplanation(now) {
  const open = Boolean(view.explain) && view.token >= 0;
  explained.classList.toggle("hidden", !open);
  if (!open) return;
  if (step.unexplained) { fill(explained, h("h2", {}, "Why?"), h("p", { class: "soft" }, step.unexplained)); return; }
  const address = `${responseAddress()}/explain/${view.token}`;
  if (explanation?.address !== address) {
    const waiting = setTimeout(() => fill(explained, h("p", { class: "loading" }, "Computing …")), 150);
    const found = await trying(() => get(address));
    clearTimeout(waiting);
    if (!found || now !== turn) return;
    explanation = { ...found, address };
  }
  const scale = scaleOf("advantage", step.columns.td_error ?? { diverging: true, low: -1, high: 1, min: -1, max: 1 });
  drawExplanation(explained, explanation, scale, (token) => go({ token }), closeExplanation);
}

function closeExplanation() {
  go({ explain: "" });
  text.focus();
}

async function showWhatIf(now) {
  whatIf.classList.toggle("hidden", !view.whatif);
  if (!view.whatif) { tried = null; panel = null; return; }
  if (step.unexplained) { fill(whatIf, h("h2", {}, "What if"), h("p", { class: "soft" }, step.unexplained)); return; }
  const own = step.settings;
  const wanted = { ...own, ...parsed(own, Object.fromEntries(NAMES.filter((name) => view[name] !== "").map((name) => [name, view[name]]))) };
  if (!panel || JSON.stringify(panel.now) !== JSON.stringify(wanted)) {
    panel = new WhatIf(own, wanted, step.largest_coef, later, toggleWhatIf);
    fill(whatIf, panel.node);
  }
  const key = JSON.stringify([view.step, view.response, wanted]);
  if (tried?.key !== key) {
    const found = await trying(() => get(`${responseAddress()}/what-if`, wanted));
    if (now !== turn || !found) return;
    tried = { ...found, key };
  }
  panel.show(tried);
}

let waiting = null;
/** A slider moves: the address follows, and the server is asked once it rests for a moment. */
function later(settings) {
  view = { ...view, ...Object.fromEntries(NAMES.map((name) => [name, ""])), ...differing(step.settings, settings) };
  clearTimeout(waiting);
  waiting = setTimeout(() => { writeView(view, DEFAULTS); sync(); }, 80);
}

async function showSamples(now) {
  const wanted = response.samples.slice(0, MOST_SAMPLES);
  const settings = view.whatif && panel ? panel.now : null;
  const found = await trying(() => Promise.all(wanted.map(async (sequence) => {
    const one = sequence === response.sequence ? response : await get(responseAddress(sequence));
    return { ...one, tried: settings ? await get(`${responseAddress(sequence)}/what-if`, settings) : null };
  })));
  if (!found || now !== turn) return;
  drawSamples(samplesView, found, response.samples.length, (one) => coloring(view.column, one, one.tried), view.response,
    (one, index) => drawDetail(detail, one, index ?? -1, scales(), one.tried?.columns ?? null),
    (sequence, token) => go({ ...seen(), show: "response", response: sequence, token, explain: token >= 0 ? "1" : "" }));
}

// ---- start, keys, news -------------------------------------------------------------------------------------------------

const none = empty("No token tables yet", "A run stores the whole table of tokens at step 1 and then every table_every steps (0: never). They appear here by themselves.",
  h("p", {}, h("a", { href: `/run/${encodeURIComponent(id)}` }, "The run's charts")));

async function lookForSteps() {
  const found = await get(`${base}/tokens`).catch(() => null);
  if (!found) return;
  const had = steps.length;
  steps = found.steps;
  if (had) reflect();
  else sync();
}

onBack(() => { view = readView(DEFAULTS); sync(); });
window.addEventListener("themechange", () => { if (step && response) draw(); });
explainKeys(["← → ↑ ↓", "walk through the tokens"], ["Enter", "explain the token's advantage"], ["Escape", "close the explanation"], ["n p", "next, previous response"], ["[ ]", "previous, next stored step"],
  ["c C", "next, previous column to colour by"], ["1 … 7", "take me to: largest KL, |advantage|, value error, best, worst, longest, not ended"], ["s", "samples side by side"], ["w", "what if"], ["/", "find"]);
onKeys({
  n: () => moveResponse(1), p: () => moveResponse(-1), "[": () => moveStep(-1), "]": () => moveStep(1), c: () => moveColumn(1), C: () => moveColumn(-1),
  s: () => bar.samples.click(), w: () => toggleWhatIf(), "/": () => list.find.focus(), Escape: () => { if (!view.explain) return false; closeExplanation(); return true; },
  ...Object.fromEntries(Array.from({ length: 7 }, (_, i) => [String(i + 1), () => { settled.then(() => takeTo(Object.values(step?.places ?? {})[i])); }])),
});

const found = await trying(() => Promise.all([get(`${base}/tokens`), get(base)]));
if (!found) fill(main(), empty("This run cannot be shown", h("p", {}, h("a", { href: "/" }, "All runs"))));
else {
  steps = found[0].steps;
  const name = found[1].name;
  document.title = `Tokens of ${name} · ppolm studio`;
  fill(head, h("h1", {}, "Tokens"), h("span", {}, h("span", { class: "soft" }, "of "), h("a", { href: `/run/${encodeURIComponent(id)}` }, name)), h("div", { class: "right" }, tabs));
  fill(main(), head, bar.node, grid, heldOut.node, none);
  await sync();
  listen(id, lookForSteps);
}
