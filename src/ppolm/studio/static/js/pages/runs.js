// The list of runs: filter, sort, choose some and compare them.
import { get, listen, trying } from "../api.js";
import { onBack, readView, writeView } from "../address.js";
import { command, empty, fill, h, main, scroller } from "../dom.js";
import { ago, duration, num } from "../format.js";
import { explainKeys, onKeys } from "../frame.js";
import { sparkline } from "../charts.js";
import { stateOf, verdictBadge } from "../run_words.js";

const DEFAULTS = { filter: "", state: "", sort: "age", down: "0" };
const COLUMNS = [
  ["name", "Run"], ["state", "State"], ["step", "Step"], [null, "Reward over time"], ["reward", "Reward"], ["kl", "KL"],
  ["best_step", "Best step"], ["verdict", "Verdict"], ["age", "Last news"],
];
const NUMBERS = new Set(["step", "reward", "kl", "best_step"]);
let view = readView(DEFAULTS);
let runs = [];
let folders = [];
const chosen = new Set();
const body = h("tbody");
const count = h("span", { class: "soft", role: "status" });
const compare = h("a", { class: "button", role: "link", "aria-disabled": "true" }, "Compare");
const filter = h("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter by name", value: view.filter });
const state = h("select", { "aria-label": "State" }, [["", "all states"], ["running", "running"], ["waiting", "waiting for people"], ["finished", "finished"], ["stopped", "stopped"]]
  .map(([value, text]) => h("option", { value, selected: view.state === value }, text)));
const head = h("tr");

function change(changes) {
  view = { ...view, ...changes };
  writeView(view, DEFAULTS);
  draw();
}

filter.addEventListener("input", () => change({ filter: filter.value }));
state.addEventListener("change", () => change({ state: state.value }));
onBack(() => { view = readView(DEFAULTS); filter.value = view.filter; state.value = view.state; draw(); });

function drawHead() {
  fill(head, h("th", {}, h("span", { class: "soft" }, "")), COLUMNS.map(([key, title]) => {
    const sorted = key && view.sort === key ? (view.down === "1" ? "descending" : "ascending") : null;
    const button = key ? h("button", { type: "button", onclick: () => change({ sort: key, down: sorted === "ascending" ? "1" : "0" }) }, title) : title;
    return h("th", { scope: "col", class: NUMBERS.has(key) ? "number" : null, "aria-sort": sorted }, button);
  }));
}

function wanted() {
  const words = view.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const found = runs.filter((run) => words.every((word) => run.name.toLowerCase().includes(word)) && (!view.state || run.state === view.state));
  const way = view.down === "1" ? -1 : 1;
  return found.sort((a, b) => {
    const [x, y] = [a[view.sort], b[view.sort]];
    if (x === y) return a.name < b.name ? -1 : 1;
    if (x === null || x === "") return 1;
    if (y === null || y === "") return -1;
    return (x < y ? -1 : 1) * way;
  });
}

function row(run) {
  const box = h("input", { type: "checkbox", checked: chosen.has(run.id), "aria-label": `Choose ${run.name} to compare` });
  box.addEventListener("change", () => { if (box.checked) chosen.add(run.id); else chosen.delete(run.id); drawCompare(); });
  const total = run.total_steps ? ` / ${run.total_steps}` : "";
  return h("tr", {}, h("td", {}, box),
    h("td", { class: "name" }, h("a", { href: `/run/${encodeURIComponent(run.id)}` }, run.name)),
    h("td", {}, stateOf(run)),
    h("td", { class: "number" }, `${run.step}${total}`, run.state === "running" && run.seconds_left !== null ? h("div", { class: "soft" }, `${duration(run.seconds_left)} left`) : null),
    h("td", {}, sparkline(run.sparkline, h)), h("td", { class: "number" }, num(run.reward)), h("td", { class: "number" }, num(run.kl, 3)),
    h("td", { class: "number" }, run.best_step === null ? "–" : `${run.best_step}`, run.best_reward === null ? null : h("span", { class: "soft" }, ` (${num(run.best_reward, 3)})`)),
    h("td", {}, verdictBadge(run.verdict)), h("td", {}, ago(run.age)));
}

function drawCompare() {
  const ready = chosen.size > 1;
  compare.textContent = ready ? `Compare ${chosen.size} runs` : "Choose runs to compare";
  compare.setAttribute("aria-disabled", String(!ready));
  if (ready) compare.href = `/compare?${[...chosen].map((id) => `run=${encodeURIComponent(id)}`).join("&")}`;
  else compare.removeAttribute("href");
  compare.classList.toggle("main", ready);
}

function draw() {
  drawHead();
  const found = wanted();
  fill(body, found.map(row));
  count.textContent = found.length === runs.length ? `${runs.length} ${runs.length === 1 ? "run" : "runs"}` : `${found.length} of ${runs.length} runs`;
  drawCompare();
}

let asked = false;
async function load() {
  if (asked) return;
  asked = true;
  const found = await trying(() => get("/api/runs"));
  asked = false;
  if (!found) return;
  const before = runs.length;
  ({ runs, folders } = found);
  if (!runs.length) {
    fill(main(), h("div", { class: "page-head" }, h("h1", {}, "Runs")), empty("There are no runs here yet",
      h("p", {}, "This page looks into ", folders.map((folder, i) => [i ? ", " : "", h("code", {}, folder)]), ". Start a run, and it appears by itself:"),
      command("ppolm train --model-name embedded --max-steps 20 --run-name first")));
    return;
  }
  if (!before || !body.isConnected) {
    fill(main(), h("div", { class: "page-head" }, h("h1", {}, "Runs"), count, h("div", { class: "right" }, filter, state, compare)),
      scroller("Runs", h("table", { class: "runs" }, h("thead", {}, head), body)));
  }
  draw();
}

explainKeys(["/", "filter"], ["c", "compare the chosen runs"]);
onKeys({ "/": () => filter.focus(), c: () => { if (compare.href) location.href = compare.href; } });
await load();
listen("", load);
