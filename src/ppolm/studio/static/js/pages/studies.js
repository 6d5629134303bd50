// Studies: how far each is, what came out, new ones, and where annotators differ.
import { get, post, trying } from "../api.js";
import { onBack, readView, writeView } from "../address.js";
import { command, empty, fill, h, main } from "../dom.js";
import { duration, counted } from "../format.js";
import { explainKeys, onKeys } from "../frame.js";
import { drawConflicts } from "../conflicts.js";
import { studyForm } from "../study_form.js";
import { share } from "../people_words.js";

const DEFAULTS = { conflicts: "", offset: 0, make: "" };
const KINDS = { preference: "comparisons", score: "scores", thumb: "thumbs" };
const RULES = { all: "every judgement", latest: "the latest of each annotator", majority: "one per item, by majority", mean: "one per item, by mean" };
let view = readView(DEFAULTS);
let found = null;
let form = null;
const head = h("div", { class: "page-head" });
const jobs = h("div", { class: "jobs", role: "status" });
const making = h("div");
const list = h("div", { class: "studies" });

function change(changes) {
  view = { ...view, ...changes };
  writeView(view, DEFAULTS, true);
  draw();
}

function exportMenu(study) {
  const rule = h("select", { "aria-label": "Which judgements" }, Object.entries(RULES).map(([value, text]) => h("option", { value }, text)));
  const link = h("a", { class: "button", download: "" }, "Download");
  const aim = () => { link.href = `/api/studies/export?study=${encodeURIComponent(study?.id ?? "")}&rule=${rule.value}`; };
  rule.addEventListener("change", aim);
  aim();
  return h("details", { class: "export" }, h("summary", {}, study ? "Export" : "Export everything"), h("div", { class: "together" }, rule, link));
}

function rate(one) {
  return h("li", {}, h("b", {}, one.policy), " wins ", h("b", {}, share(one.rate)), " against ", one.opponent, h("span", { class: "soft" }, ` (${counted(one.comparisons, "comparison")} on ${counted(one.prompts, "prompt")}, ${counted(one.ties, "tie")})`));
}

function card(study) {
  const done = study.wanted > 0 && study.judged >= study.wanted;
  return h("article", { class: "panel study" }, h("div", { class: "page-head" }, h("h2", {}, study.name), h("span", { class: "badge" }, KINDS[study.kind]), done ? h("span", { class: "badge good" }, "complete") : null,
    h("div", { class: "right" }, study.disputed ? h("button", { type: "button", onclick: () => change({ conflicts: study.id, offset: 0 }) }, `Conflicts (${study.disputed})`) : null,
      h("a", { class: "button", href: `/people?study=${study.id}` }, "People"), h("a", { class: done ? "button" : "button main", href: `/judge?study=${study.id}` }, "Judge"))),
  h("div", { class: "study-progress" }, h("progress", { max: Math.max(1, study.wanted), value: study.judged, "aria-label": `Progress of ${study.name}` }),
    h("span", { class: "soft numbers" }, `${study.judged} of ${study.wanted} judgements; ${study.items} items, ${study.per_item} per item${study.second_look ? "; second look on" : ""}${study.identical ? `; ${study.identical} identical pairs left out` : ""}`)),
  study.rates.length ? h("ul", { class: "rates" }, study.rates.map(rate)) : study.kind === "preference" ? h("p", { class: "soft" }, "Win rates appear with the first judgements.") : null,
  study.guidelines ? h("details", {}, h("summary", {}, "Guidelines"), h("p", { class: "text" }, study.guidelines)) : null, exportMenu(study));
}

/** How far sampling is, by the last line of the process that says so. */
function howFar(one) {
  const said = one.lines.map((line) => line.match(/^sampled (\d+) of (\d+)/)).filter(Boolean).at(-1);
  return said ? { max: Number(said[2]), value: Number(said[1]) } : {};
}

function job(one) {
  if (one.state === "done" && found.studies.some((study) => study.name === one.name)) return null;
  const words = { running: `Making “${one.name}”: ${duration(one.seconds)} so far`, failed: `“${one.name}” could not be made`, cancelled: `“${one.name}” was cancelled`, done: `“${one.name}” is made` };
  return h("div", { class: `panel job ${one.state}` }, h("div", { class: "together" }, h("b", {}, words[one.state]), one.state === "running" ? h("button", { type: "button", onclick: () => cancel(one.id) }, "Cancel") : null),
    one.state === "running" ? h("progress", { "aria-label": "Being made", ...howFar(one) }) : null, one.lines.length && one.state !== "cancelled" ? h("pre", { class: "text", tabindex: "0" }, one.lines.slice(one.state === "running" ? -3 : -8).join("\n")) : null);
}

async function cancel(id) {
  await trying(() => post("/api/studies/cancel", { job: id }));
  load();
}

async function openForm() {
  const seen = await trying(() => get("/api/runs"));
  if (!seen) return;
  form = seen.runs.length ? studyForm(seen.runs, found.store, () => { change({ make: "" }); load(); }, () => change({ make: "" }))
    : h("section", { class: "panel" }, h("h2", {}, "New study"), h("p", {}, "There are no runs here to sample answers from. A file of pairs will do:"), command(`ppolm feedback study NAME --file pairs.jsonl --store ${found.store}`), h("button", { type: "button", onclick: () => change({ make: "" }) }, "Close"));
  fill(making, form);
  form.querySelector("input")?.focus();
}

function none() {
  return empty("There are no studies yet", h("p", {}, "A study is a set of answers that people compare or score: two policies on the same prompts, one policy sampled twice, or the responses of a logged step."),
    h("p", {}, h("button", { type: "button", class: "main", onclick: () => change({ make: "1" }) }, "Make a study")), h("p", {}, "Or, from a file of pairs, in a terminal:"), command(`ppolm feedback study NAME --file pairs.jsonl --store ${found.store}`));
}

function drawList() {
  fill(jobs, found.jobs.slice(0, 3).map(job));
  const open = [...list.querySelectorAll("details[open]")].length;
  if (!open) fill(list, found.studies.length ? found.studies.map(card) : view.make ? null : none());
}

function draw() {
  if (!found) return;
  if (view.conflicts) { drawConflicts(main(), view.conflicts, view.offset, (offset) => change({ offset }), () => change({ conflicts: "", offset: 0 })); return; }
  fill(head, h("h1", {}, "Studies"), h("div", { class: "right" }, found.studies.length ? exportMenu(null) : null, view.make ? null : h("button", { type: "button", class: "main", onclick: () => change({ make: "1" }) }, "New study ", h("kbd", {}, "n"))));
  if (!list.isConnected) fill(main(), head, jobs, making, list);
  if (view.make && !form) openForm();
  if (!view.make) { form = null; fill(making); }
  drawList();
}

let timer = null;
async function load() {
  clearTimeout(timer);
  const seen = document.hidden ? null : await (found ? get("/api/studies").catch(() => null) : trying(() => get("/api/studies")));
  const first = !found;
  if (seen) { found = seen; if (first || list.isConnected) draw(); }
  else if (first) fill(main(), empty("The studies cannot be shown", h("p", {}, "Load the page again when the problem is solved.")));
  timer = setTimeout(load, found?.jobs.some((one) => one.state === "running") ? 1000 : 8000);
}

onBack(() => { view = readView(DEFAULTS); draw(); });
explainKeys(["n", "new study"]);
onKeys({ n: () => { if (view.conflicts) return false; change({ make: "1" }); return true; } });
await load();
