// Try it: a run's policy and its reference answer the same prompt, side by side, token by token.
import { get, post, trying } from "../api.js";
import { onBack, readView } from "../address.js";
import { command, empty, fill, h, main, say } from "../dom.js";
import { num, signed } from "../format.js";
import { explainKeys, onKeys } from "../frame.js";
import { Colored, scaleBar, sharedScale } from "../models/colored.js";
import { readMessages, writeLongView } from "../models/long_view.js";
import { PromptBox } from "../models/prompt_box.js";
import { escapes, problemBox, unloadButton, Waiting } from "../models/waiting.js";
import { scaleOf } from "../tokens/colors.js";

const DEFAULTS = { run: "", which: "", held: -1, prompt: "", messages: "", temperature: "", top_k: "", top_p: "", max_new_tokens: "", seed: 0, greedy: "", color: "kl" };
const SETTINGS = [["temperature", "Temperature", "0.05"], ["top_k", "Top k", "1"], ["top_p", "Top p", "0.05"], ["max_new_tokens", "Most new tokens", "1"]];
const COLORS = { kl: "KL (log π − log π_ref)", logprob_policy: "log-probability, policy", logprob_ref: "log-probability, reference" };
let view = readView(DEFAULTS);
let runs = [];
let about = null;
let answers = null;

const waiting = new Waiting();
const runChoice = h("select", { "aria-label": "Run" });
const policyChoice = h("select", { "aria-label": "Policy" });
const box = new PromptBox({ change: typed, pick, submit: ask });
const fields = Object.fromEntries(SETTINGS.map(([name, , step]) => [name, h("input", { type: "number", min: "0", step, inputmode: "decimal" })]));
const seed = h("input", { type: "number", min: "0", step: "1" });
const greedy = h("input", { type: "checkbox" });
const button = h("button", { type: "button", class: "main", onclick: ask }, "Answer");
const note = h("p", { class: "soft small" });
const results = h("div", { class: "model-page" });
const setup = h("section", { class: "panel model-page" });

function change(changes, push = false) {
  view = { ...view, ...changes };
  const whole = writeLongView(view, DEFAULTS, ["prompt", "messages"], push);
  note.textContent = whole ? "" : "This prompt is too long for the address: a copied link will not hold it.";
}

function typed() {
  const { content } = box;
  box.picked(null);
  change(typeof content === "string" ? { held: -1, prompt: content, messages: "" } : { held: -1, prompt: "", messages: JSON.stringify(content) });
}

function pick(number) {
  box.set(structuredClone(about.prompts[number]));
  box.picked(number);
  change({ held: number, prompt: "", messages: "" }, true);
}

function showPrompt() {
  const messages = readMessages(view.messages);
  const picked = about.prompts[view.held];
  box.set(messages ?? (view.prompt || (picked === undefined ? (about.chat ? [{ role: "user", content: "" }] : "") : structuredClone(picked))));
  box.picked(!messages && !view.prompt && picked !== undefined ? view.held : null);
}

function showSettings() {
  for (const [name] of SETTINGS) {
    fields[name].value = view[name];
    fields[name].placeholder = about.sampling[name] === undefined ? "" : String(about.sampling[name]);
  }
  seed.value = String(view.seed);
  greedy.checked = view.greedy === "yes";
}

for (const [name] of SETTINGS) fields[name].addEventListener("input", () => change({ [name]: fields[name].value }));
seed.addEventListener("input", () => change({ seed: Number(seed.value) || 0 }));
greedy.addEventListener("change", () => change({ greedy: greedy.checked ? "yes" : "" }));
policyChoice.addEventListener("change", () => change({ which: policyChoice.value }, true));
runChoice.addEventListener("change", async () => { change({ run: runChoice.value, which: "", held: -1 }, true); await load(); });
onBack(async () => { const before = view.run; view = readView(DEFAULTS); if (view.run !== before) await load(); else { showPrompt(); showSettings(); policyChoice.value = which(); draw(); } });

function which() { return about.choices.some((one) => one.which === view.which) ? view.which : about.choices[0]?.which; }

function drawSetup() {
  fill(runChoice, runs.map((run) => h("option", { value: run.id, selected: run.id === view.run }, run.name)));
  fill(policyChoice, about.choices.map((one) => h("option", { value: one.which, selected: one.which === which() }, one.which === "best" ? `best policy${one.step === null ? "" : `, step ${one.step}`}` : `checkpoint of step ${one.step}`)));
  fill(setup, box.node,
    h("div", { class: "settings-line" },
      SETTINGS.map(([name, title]) => h("label", { title: `Empty: as the run, ${about.sampling[name] ?? "–"}` }, title, fields[name])),
      h("label", { title: "The same seed gives the same answer" }, "Seed", seed), h("label", { title: "Always the most likely token" }, greedy, "greedy")),
    h("div", { class: "line" }, button, h("button", { type: "button", onclick: another }, "Another sample ", h("kbd", {}, "n")), waiting.node), note);
}

function asked() {
  const body = { prompt: box.content, which: which(), seed: view.seed, greedy: view.greedy === "yes" };
  for (const [name] of SETTINGS) if (view[name] !== "") body[name] = Number(view[name]);
  return body;
}

async function ask() {
  if (waiting.busy) return;
  button.disabled = true;
  try {
    const found = await waiting.ask(`/api/try/${encodeURIComponent(view.run)}/answer`, asked());
    if (found) { answers = { ...found, which: which(), step: about.choices.find((one) => one.which === which())?.step ?? null }; draw(); }
  } catch (error) {
    answers = null;
    fill(results, problemBox(error.message));
  } finally { button.disabled = false; }
}

async function another() {
  change({ seed: view.seed + 1 }, true);
  seed.value = String(view.seed);
  await ask();
}

async function judge(sides) {
  const responses = Object.fromEntries(sides.map((side) => [side, answers[side].text]));
  const body = { prompt: answers.prompt, responses, which: answers.which, step: answers.step };
  const sent = await trying(() => post(`/api/try/${encodeURIComponent(view.run)}/judge`, body));
  if (sent) say(sent.queued === 1 ? "The answer waits to be judged." : "Both answers wait to be judged.");
}

function scale() {
  const column = view.color in COLORS ? view.color : "kl";
  const both = [...answers.policy[column], ...answers.reference[column]];
  if (column === "kl" && answers.kl_estimator === "k1") return sharedScale(COLORS.kl, both);
  const known = both.filter((value) => value !== null);
  return scaleOf(column, { diverging: false, low: Math.min(...known), high: Math.max(...known), min: Math.min(...known), max: Math.max(...known) }, COLORS[column]);
}

function total(values) { return values.reduce((sum, value) => sum + (value ?? 0), 0); }

function side(name, title, colors) {
  const answer = answers[name];
  const column = colors.name in answer ? colors.name : "kl";
  const columns = ["logprob_policy", "logprob_ref", "kl"].map((one) => [{ logprob_policy: "log π", logprob_ref: "log π_ref", kl: "KL" }[one], answer[one]]);
  const text = new Colored(answer.pieces, answer.bytes, answer.special, `Tokens of the ${name}'s answer`, columns);
  text.color(colors, answer[column]);
  return h("section", { class: "panel", "aria-label": title },
    h("div", { class: "line" }, h("h2", {}, title), h("span", { class: "soft numbers" }, `${answer.pieces.length} tokens, ${answer.ended ? "ended" : "cut off"}, KL in sum ${signed(total(answer.kl))}`),
      h("div", { class: "right" }, h("button", { type: "button", onclick: () => judge([name]) }, "Send to judging"))),
    answer.pieces.length ? text.node : h("p", { class: "soft" }, "It said nothing."));
}

function draw() {
  if (!answers) {
    fill(results, h("p", { class: "soft hint" }, "Both answers will stand here, the policy's beside the reference's, each token coloured by how far the two differ. The model is loaded when you first ask, in a process of its own."));
    return;
  }
  const colors = scale();
  const used = answers.sampling;
  const choice = h("select", { "aria-label": "Colour by" }, Object.entries(COLORS).map(([name, title]) => h("option", { value: name, selected: name === view.color }, title)));
  choice.addEventListener("change", () => { change({ color: choice.value }); draw(); results.querySelector("select")?.focus(); });
  const [below, above] = view.color === "kl" ? ["likelier in the reference", "likelier in the policy"] : ["unlikely", "likely"];
  const how = used.greedy ? "greedy" : `temperature ${used.temperature}, top k ${used.top_k || "off"}, top p ${used.top_p}`;
  fill(results,
    h("div", { class: "line result-head" }, h("h2", {}, "Answers"), h("label", {}, "Colour by", choice), scaleBar(colors, below, above),
      h("div", { class: "right" }, h("button", { type: "button", onclick: () => judge(["policy", "reference"]) }, "Send both to judging ", h("kbd", {}, "j")))),
    h("div", { class: "two" }, side("policy", answers.which === "best" ? "Policy (best)" : `Policy (step ${answers.step})`, colors), side("reference", "Reference", colors)),
    h("p", { class: "soft small numbers" }, `${how}, at most ${used.max_new_tokens} tokens, seed ${used.seed}; the same random numbers for both. The prompt has ${answers.prompt_tokens} tokens. ${num(answers.seconds, 2)} s. `, unloadButton()),
    h("details", {}, h("summary", {}, "The prompt as the model reads it"), h("div", { class: "text mono prompt-read" }, answers.prompt_text)));
}

async function load() {
  about = await trying(() => get(`/api/try/${encodeURIComponent(view.run)}`));
  answers = null;
  if (!about) { fill(main(), empty("This run cannot be tried", h("p", {}, h("a", { href: "/try" }, "Choose another one")))); return; }
  document.title = `Try ${about.name} · ppolm studio`;
  const head = h("div", { class: "page-head" }, h("h1", {}, "Try it"), runChoice, policyChoice,
    h("div", { class: "right" }, h("a", { class: "button", href: `/run/${encodeURIComponent(view.run)}` }, "The run")));
  if (!about.choices.length || about.problem) {
    drawSetup();
    fill(main(), head, empty(about.problem ? "This run cannot be tried" : "This run has saved no policy yet",
      about.problem ?? "A policy is there after the first evaluation or checkpoint. Come back then, or choose another run above."));
    return;
  }
  box.offer(about.prompts, about.held_out);
  drawSetup(); showPrompt(); showSettings(); draw();
  fill(main(), head, setup, results);
  if (view.held < 0 && !view.prompt && !view.messages && about.prompts.length) { box.set(structuredClone(about.prompts[0])); box.picked(0); view.held = 0; }
  change({});
}

explainKeys(["Ctrl+Enter", "answer, while typing"], ["Enter", "answer"], ["n", "another sample"], ["p", "type the prompt"], ["]", "next held-out prompt"], ["[", "previous one"], ["j", "send both answers to judging"], ["Esc", "cancel, or leave the text"]);
const step = (by) => { if (about?.prompts.length) pick((Math.max(0, view.held) + by + about.prompts.length) % about.prompts.length); };
onKeys({
  Enter: (event) => { if (event.target.closest("button, a, summary, select")) return false; ask(); return true; },
  n: () => { another(); }, p: () => { box.focus(); }, "]": () => { step(1); }, "[": () => { step(-1); },
  j: () => { if (answers) judge(["policy", "reference"]); },
});
escapes(waiting);
window.addEventListener("themechange", draw);

const found = await trying(() => get("/api/runs"));
runs = (found?.runs ?? []).sort((a, b) => a.age - b.age);
if (!runs.length) {
  fill(main(), empty("There is no run to try yet", "Train one, then choose it here: its policy and its reference answer side by side.", command("ppolm demo")));
} else {
  if (!runs.some((run) => run.id === view.run)) {
    if (view.run) say(`There is no run ${view.run} here; this is ${runs[0].name}.`, "error");
    view.run = runs[0].id;
  }
  await load();
}
