// One reward model: its readiness report, and a box that scores any text.
import { get, trying } from "../api.js";
import { onBack, pathPart, readView } from "../address.js";
import { command, empty, fill, h, main } from "../dom.js";
import { explainKeys, onKeys } from "../frame.js";
import { writeLongView } from "../models/long_view.js";
import { readinessBadge, reportPanels, tilesOf, verdictPanel } from "../models/report.js";
import { ScoreBox, DEFAULTS as TEXTS } from "../models/score_box.js";

const id = pathPart(1);
const DEFAULTS = { view: "report", ...TEXTS };
let view = readView(DEFAULTS);
let about = null;
const body = h("div", { class: "model-page" });
const tabs = { report: h("button", { type: "button", onclick: () => show("report") }, "Report ", h("kbd", {}, "r")), score: h("button", { type: "button", onclick: () => show("score") }, "Score a text ", h("kbd", {}, "s")) };
const box = new ScoreBox(`/api/reward/${encodeURIComponent(id)}/score`, (changes, push) => change(changes, push));

function change(changes, push = false) {
  view = { ...view, ...changes };
  return writeLongView(view, DEFAULTS, ["prompt", "messages", "a", "b"], push);
}

function show(which, push = true) {
  change({ view: which }, push);
  for (const [name, tab] of Object.entries(tabs)) tab.setAttribute("aria-pressed", String(name === which));
  if (which === "score") { fill(body, box.node); box.read(view); if (push) box.focus(); return; }
  fill(body, about.report ? [verdictPanel(about.report), tilesOf(about.report)] : noReport(),
    about.problem ? h("div", { class: "problem" }, about.problem) : null,
    reportPanels(about));
}

function noReport() {
  if (about.state === "unfinished") return h("section", { class: "panel" }, h("h2", {}, "No report yet"), h("p", {}, "It is in training, or its training was interrupted: the report comes at the end. This continues it:"), command(`ppolm reward --resume ${about.folder}`));
  return h("section", { class: "panel" }, h("h2", {}, "No readiness report"), h("p", {}, "Nothing beside this model says how well it agrees with people. Measure it on judgements that it was not trained on:"),
    command(`ppolm readiness ${about.name === "embedded" ? "embedded" : about.folder} --data judgements.jsonl`), h("p", { class: "soft" }, "Or see for yourself: score a text."));
}

onBack(() => { view = readView(DEFAULTS); show(view.view === "score" ? "score" : "report", false); });
explainKeys(["r", "the report"], ["s", "score a text"], ["Ctrl+Enter", "score, while typing"], ["Enter", "score"], ["Esc", "cancel, or leave the text"]);
onKeys({ r: () => show("report"), s: () => show("score"), Enter: (event) => { if (view.view !== "score" || event.target.closest("button, a, summary, select")) return false; box.ask(); return true; } });

about = await trying(() => get(`/api/reward/${encodeURIComponent(id)}`));
if (!about) fill(main(), empty("This reward model cannot be shown", h("p", {}, h("a", { href: "/rewards" }, "All reward models"))));
else {
  document.title = `${about.name} · ppolm studio`;
  fill(main(), h("div", { class: "page-head" }, h("h1", {}, about.name), readinessBadge(about.verdict), about.state === "unfinished" ? h("span", { class: "badge warn" }, "unfinished") : null,
    h("div", { class: "tabs", role: "group", "aria-label": "View" }, Object.values(tabs)),
    h("div", { class: "right" }, h("a", { class: "button", href: "/rewards" }, "All reward models"))), body);
  show(view.view === "score" ? "score" : "report", false);
  box.offerPromptsOf(about.runs);
}
