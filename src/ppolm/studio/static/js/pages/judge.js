// Judging: one key commits and the next task is there at once. Answers are sent in the background.
import { get, post, trying } from "../api.js";
import { onBack, readView, writeView } from "../address.js";
import { command, empty, fill, h, main, say } from "../dom.js";
import { explainKeys, onKeys } from "../frame.js";
import { ActiveTime } from "../active_time.js";
import { Outbox } from "../judge_outbox.js";
import { askName, knownName, waitBanner } from "../judge_people.js";
import { drawExtras, drawTexts, steps, STRENGTHS, verdictButtons, verdictWords } from "../judge_task.js";

const DEFAULTS = { study: "", ask: "" };
const AHEAD = 10;
const FIRST = 3;  // few at first: they are there sooner, for everybody who begins at the same time
const FEW = 5;
const LOOK = 3000;
const ASKS = { "": "as asked", score: "by scores", preference: "by comparisons", thumb: "by thumbs" };
let view = readView(DEFAULTS);
let about = null;
let annotator = "";
let outbox = null;
let current = null;
let ahead = [];
let extra = {};
let compared = false;
let progress = { done: 0, left: 0, waiting: 0 };
let waits = { waiting: false };
let barKind = "";
const history = [];
const answered = new Set();
const time = new ActiveTime().watch();

const head = h("div", { class: "page-head judge-head" });
const banner = h("div", { role: "status" });
const unsent = h("div", { role: "status" });
const notices = h("div", { class: "notices" }, banner, unsent);
const texts = h("div", { class: "texts" });
const extras = h("div", { class: "extras" });
const verdicts = h("div", { class: "verdicts" });
const last = h("span", { class: "soft last", role: "status" });
const guide = h("button", { type: "button", onclick: () => showGuidelines() }, "Guidelines ", h("kbd", {}, "g"));
const compareButton = h("button", { type: "button", "aria-pressed": "false", onclick: () => compareWords() }, "Differences ", h("kbd", {}, "d"));
const skipButton = h("button", { type: "button", onclick: () => skip() }, "Skip ", h("kbd", {}, "s"));
const undoButton = h("button", { type: "button", onclick: () => undo() }, "Undo ", h("kbd", {}, "u"));
const minor = h("div", { class: "minor" }, skipButton, undoButton, h("span", { class: "right" }, compareButton, guide), last);
const bar = h("div", { class: "bar", role: "group", "aria-label": "Verdict" }, verdicts, minor);
const progressText = h("span", { class: "numbers" });
const progressBar = h("progress", { "aria-label": "Progress", max: 1, value: 0 });
const scopeChoice = h("select", { "aria-label": "What to judge" });
const askChoice = h("select", { "aria-label": "How to judge" }, Object.entries(ASKS).map(([value, text]) => h("option", { value }, text)));

const scope = () => ({ study: view.study || null, ask: view.ask || null });
const studyOf = (task) => about.studies.find((one) => one.name === task?.study || one.id === view.study);

function drawHead() {
  fill(scopeChoice, h("option", { value: "" }, "Everything"), about.studies.map((one) => h("option", { value: one.id, selected: one.id === view.study }, one.name)));
  askChoice.value = view.ask in ASKS ? view.ask : "";
  const name = about.owner ? h("button", { type: "button", class: "quiet", title: "Change your name", onclick: () => rename() }, `as ${annotator}`) : h("span", { class: "soft" }, `as ${annotator}`);
  fill(head, h("h1", {}, "Judge"), h("div", { class: "progress-box" }, progressText, progressBar),
    h("div", { class: "right" }, name, scopeChoice, view.study ? null : askChoice));
}

function drawProgress() {
  const done = progress.done;
  const left = progress.left;
  progressText.textContent = `${done} done, ${left} left`;
  progressBar.max = Math.max(1, done + left);
  progressBar.value = done;
}

function redrawExtras() { drawExtras(extras, current, extra, redrawExtras); }

function drawTask() {
  if (!texts.isConnected) fill(main(), head, notices, texts, extras, bar);
  drawTexts(texts, current, compared);
  redrawExtras();
  const kind = JSON.stringify([current.kind, current.scale]);
  if (kind !== barKind) { fill(verdicts, verdictButtons(current, commit)); verdicts.className = `verdicts ${current.kind}`; barKind = kind; }
  skipButton.classList.remove("hidden");
  guide.classList.toggle("hidden", !studyOf(current)?.guidelines);
  compareButton.classList.toggle("hidden", current.kind !== "preference");
}

function nothingLeft() {
  const made = about.owner ? [h("p", {}, "Make a study, and what is to be judged appears here by itself: ", h("a", { href: "/studies" }, "Studies"), ". Or train with people as the reward:"),
    command("ppolm train --model-name embedded --reward human --max-steps 2 --batch-size 8 --run-name judged")] : [h("p", {}, "You may leave this page open: when there is something new, it appears here by itself.")];
  const another = waits.waiting && !view.ask ? null : waits.waiting ? h("p", {}, "A training run waits for responses that cannot be judged this way. ", h("button", { type: "button", class: "main", onclick: () => change({ study: "", ask: "" }) }, "Judge them by scores")) : null;
  fill(main(), head, notices, empty(progress.done ? "All done. Thank you!" : "There is nothing to judge at the moment", another, ...(view.study ? [h("p", {}, h("button", { type: "button", onclick: () => change({ study: "" }) }, "Judge everything"))] : made)),
    progress.done || history.length ? h("div", { class: "bar" }, minor) : null);
  for (const one of [guide, compareButton, skipButton]) one.classList.add("hidden");
}

function show(task) {
  current = task;
  extra = { strength: null, axes: {}, note: "", noteOpen: false, axis: null };
  drawProgress();
  if (current) drawTask();
  else if (loading) fill(main(), head, notices, h("p", { class: "loading" }, "Loading …"));
  else nothingLeft();
  for (const one of document.querySelectorAll(".box-text")) one.scrollTop = 0;
  time.begin();
}

function known() {
  return [...(current ? [current.id] : []), ...ahead.map((task) => task.id), ...outbox.tasks()];
}

let loading = null;
/** Have tasks ready. `fresh`: forget those that are ready and not shown. */
function load(fresh = false, next = []) {
  loading ??= fetchTasks(fresh, next).finally(() => { loading = null; }).then((more) => { if (more && current && ahead.length < FEW) load(); });
  return loading;
}

/** How far one is, is counted here between two looks at the server's count, which takes it some time. */
let counted = -Infinity;

async function fetchTasks(fresh, next) {
  const asked = JSON.stringify(scope());
  const count = fresh || !ahead.length || performance.now() - counted > 30_000;
  if (fresh) ahead = [];
  const found = await post("/api/judge/next", { ...scope(), annotator, count: current || ahead.length ? AHEAD : FIRST, progress: count, exclude: [...known(), ...next].slice(0, 50) }).catch((error) => error);
  if (asked !== JSON.stringify(scope())) return false;
  if (found instanceof Error) {
    if (!current) { say(found.message, "error"); if (!texts.isConnected) nothingLeft(); }
    return false;
  }
  if (found.progress) {
    const unsent = outbox.tasks().length;
    progress = { ...found.progress, done: found.progress.done + unsent, left: Math.max(0, found.progress.left - unsent) };
    counted = performance.now();
  }
  const there = new Set(known());
  ahead.push(...found.tasks.filter((task) => !there.has(task.id) && !answered.has(task.id)));
  if (!current && ahead.length) show(ahead.shift());
  else if (!current) { drawProgress(); if (!document.querySelector(".empty")) nothingLeft(); }
  else drawProgress();
  return found.tasks.length > 0;
}

function give(answer) {
  if (!current) return false;
  const entry = { ...answer, task: current.id, seconds: Math.round(time.seconds() * 1000) / 1000 };
  history.push({ task: current, scope: scope() });
  answered.add(current.id);
  last.textContent = `Last: ${verdictWords(entry)}`;
  progress = { ...progress, done: progress.done + (answer.skip ? 0 : 1), left: Math.max(0, progress.left - 1) };
  outbox.add(entry, scope());
  const next = ahead.shift() ?? null;
  if (ahead.length < FEW) load(false, next ? [next.id] : []);
  show(next);
  return true;
}

function commit(verdict) {
  const strong = verdict === "first" || verdict === "second";
  return give({ verdict, strength: strong ? extra.strength : null, axes: Object.keys(extra.axes ?? {}).length ? extra.axes : null, note: extra.note?.trim() ? extra.note : null });
}

function skip() { return give({ skip: true }); }

let undoing = false;
async function undo() {
  if (undoing) return;
  undoing = true;
  try { await takeBack(); } finally { undoing = false; }
}

async function takeBack() {
  const entry = history.at(-1);
  if (entry && outbox.withdraw(entry.task.id)) { bringBack(entry.task); return; }
  if (entry && !(await outbox.landed(entry.task.id))) {
    if (outbox.withdraw(entry.task.id)) bringBack(entry.task);  // it was on its way, and did not arrive
    else say("The last answer is still being sent. Try again in a moment.", "error");
    return;
  }
  const where = { ...(entry?.scope ?? scope()), annotator };
  const task = entry?.task ?? (await trying(() => post("/api/judge/last", where)))?.task;
  if (!task) { say("There is nothing to take back."); return; }
  const found = await trying(() => post("/api/judge/undo", { ...where, task: task.id }));
  if (found) bringBack(found.task);
}

function bringBack(task) {
  history.pop();
  answered.delete(task.id);
  ahead = ahead.filter((one) => one.id !== task.id);
  if (current && current.id !== task.id) ahead.unshift(current);
  last.textContent = "Taken back";
  progress = { ...progress, done: Math.max(0, progress.done - 1), left: progress.left + 1 };
  show(task);
}

function showGuidelines() {
  const study = studyOf(current);
  if (!study?.guidelines) return false;
  const dialog = h("dialog", { class: "guidelines", "aria-label": "Guidelines" }, h("h2", {}, study.name), h("div", { class: "text box-text", tabindex: "0", role: "group", "aria-label": "Guidelines" }, study.guidelines), h("form", { method: "dialog" }, h("button", { class: "main" }, "Close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return true;
}

function compareWords() {
  if (current?.kind !== "preference") return false;
  compared = !compared;
  compareButton.setAttribute("aria-pressed", String(compared));
  drawTexts(texts, current, compared);
  return true;
}

function drawUnsent({ unsent: number, problem }) {
  if (!number && about && outbox && !current) load();  // there may be repeats now, and what others have left
  const many = number === 1 ? "1 answer is not stored yet" : `${number} answers are not stored yet`;
  fill(unsent, problem ? h("div", { class: "note-bar bad" }, `${many}: ${problem} They are kept here and sent again by themselves.`, h("button", { type: "button", onclick: () => outbox.send() }, "Send now")) : null);
}

function refused(entry, reason) { say(`An answer (${verdictWords(entry.answer)}) was not stored: ${reason}`, "error"); }

function change(changes) {
  view = { ...view, ...changes };
  writeView(view, DEFAULTS, true);
  again();
}

async function again() {
  if (about.studies.length && view.study && !about.studies.some((one) => one.id === view.study)) view.study = "";
  ahead = []; current = null; history.length = 0; last.textContent = "";
  await loading;
  drawHead();
  fill(main(), head, notices, h("p", { class: "loading" }, "Loading …"));
  await load();
}

async function rename() {
  annotator = await askName(annotator);
  begin();
}

function begin() {
  if (!outbox || outbox.annotator !== annotator) outbox = new Outbox(annotator, drawUnsent, refused);
  return again();
}

/** What a live run waits for comes first, also if it began to wait after the next tasks were loaded. */
async function look() {
  const found = document.hidden ? null : await get("/api/judge/waiting").catch(() => null);
  if (found && outbox) {
    const news = found.waiting !== waits.waiting;
    waits = found;
    fill(banner, waitBanner(found, view.study !== "", () => change({ study: "" })));
    const missing = found.waiting && !view.study && ![current, ...ahead].some((task) => task?.live);
    if (!current) await refresh();
    else if (!view.study && (news || missing)) await load(true);
  }
  setTimeout(look, LOOK);
}

async function refresh() {
  const found = await get("/api/judge/about").catch(() => null);
  if (found && JSON.stringify(found) !== JSON.stringify(about)) { about = found; drawHead(); }
  await load();
}

scopeChoice.addEventListener("change", () => { scopeChoice.blur(); change({ study: scopeChoice.value }); });
askChoice.addEventListener("change", () => { askChoice.blur(); change({ ask: askChoice.value }); });
onBack(() => { view = readView(DEFAULTS); again(); });

const once = (work) => (event) => (event.repeat || !current ? false : work(event.key));
const ofKind = (kind, work) => once((key) => (current.kind === kind ? work(key) : false));

function digit(key) {
  const number = Number(key);
  if (current.kind === "preference" && extra.axis === null) return number === 1 ? commit("first") : number === 2 ? commit("second") : false;
  const numbers = steps(current.scale);
  if (!numbers?.includes(number)) return false;
  if (extra.axis !== null) {
    extra.axes[current.axes[extra.axis]] = number;
    extra.axis = extra.axis + 1 < current.axes.length ? extra.axis + 1 : null;
    redrawExtras();
    return true;
  }
  return current.kind === "score" ? commit(number) : false;
}

function nextAxis() {
  if (!current.axes.length) return false;
  extra.axis = extra.axis === null ? 0 : extra.axis + 1 < current.axes.length ? extra.axis + 1 : null;
  redrawExtras();
  return true;
}

function openNote() {
  extra.noteOpen = true;
  redrawExtras();
  extras.querySelector("textarea").focus();
  return true;
}

function moreStrength() {
  extra.strength = ((extra.strength ?? 0) + 1) % STRENGTHS.length || null;
  redrawExtras();
  return true;
}

const pairKeys = { a: "first", ArrowLeft: "first", l: "second", ArrowRight: "second", t: "tie", b: "both_bad" };
const thumbKeys = { ArrowUp: "up", y: "up", ArrowDown: "down", n: "down" };
onKeys({
  ...Object.fromEntries(Object.entries(pairKeys).map(([key, verdict]) => [key, ofKind("preference", () => commit(verdict))])),
  ...Object.fromEntries(Object.entries(thumbKeys).map(([key, verdict]) => [key, ofKind("thumb", () => commit(verdict))])),
  ...Object.fromEntries("0123456789".split("").map((key) => [key, once(digit)])),
  s: once(skip), u: (event) => (event.repeat ? false : (undo(), true)), d: once(compareWords), g: once(showGuidelines), m: ofKind("preference", moreStrength), x: once(nextAxis), c: once(openNote),
  Escape: once(() => { if (extra.axis === null) return false; extra.axis = null; redrawExtras(); return true; }),
});
explainKeys(["a, ←, 1", "the first answer is better"], ["l, →, 2", "the second answer is better"], ["t", "tie (light or dark on other pages)"], ["b", "both are bad"], ["1 to 7", "score"], ["y, ↑", "good"], ["n, ↓", "bad"], ["s", "skip"], ["u", "undo"],
  ["m", "how much better (before the verdict)"], ["x", "score the axes (before the verdict)"], ["c", "write a note"], ["d", "mark the words that differ"], ["g", "guidelines"]);

about = await trying(() => get("/api/judge/about"));
if (!about) fill(main(), empty("Judging is not possible at the moment", h("p", {}, "Load the page again when the problem is solved.")));
else {
  annotator = about.annotator ?? knownName() ?? (await askName(""));
  await begin();
  look();
}
