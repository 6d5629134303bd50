// One task on the page: prompt, answers, what may be said besides the verdict, and the bar of verdicts.
import { fill, h } from "./dom.js";
import { differences } from "./word_diff.js";

export const STRENGTHS = ["not said", "slightly", "clearly", "much"];
const VERDICTS = { first: "first is better", second: "second is better", tie: "tie", both_bad: "both bad", up: "good", down: "bad" };

export function verdictWords(answer) {
  if (answer.skip) return "skipped";
  return VERDICTS[answer.verdict] ?? `score ${answer.verdict}`;
}

/** Text in a box that scrolls by itself, by keyboard too. */
function box(title, body, kind) {
  return h("section", { class: `text-box ${kind}` }, h("h2", {}, title), h("div", { class: "box-text text", tabindex: "0", role: "group", "aria-label": title }, body));
}

function turns(prompt) {
  if (prompt.length === 1 && prompt[0].role === null) return prompt[0].text || h("span", { class: "soft" }, "(empty)");
  return prompt.map((turn) => h("div", { class: `turn ${turn.role === "user" ? "user" : ""}` }, h("b", {}, turn.role), h("div", { class: "text" }, turn.text)));
}

function marked(parts) {
  return parts.map((part) => (part.only ? h("mark", {}, part.text) : part.text));
}

/** The texts of a task. `compared`: mark the words that only one of two answers has. */
export function drawTexts(node, task, compared) {
  const pair = task.sides.length === 2;
  const found = pair && compared ? differences(...task.sides) : null;
  const side = (text, i) => (found ? marked(found[i]) : text || h("span", { class: "soft" }, "(empty)"));
  const names = pair ? ["First answer", "Second answer"] : ["Answer"];
  fill(node, box("Prompt", turns(task.prompt), "prompt"),
    pair && compared && !found ? h("p", { class: "soft", role: "status" }, "These answers are too long to compare word by word.") : null,
    h("div", { class: pair ? "sides pair" : "sides" }, task.sides.map((text, i) => box(names[i], side(text, i), "side"))));
}

const label = (text, ...keys) => [h("span", {}, text), h("span", { class: "bar-keys", "aria-hidden": "true" }, keys.map((key) => h("kbd", {}, key)))];

function verdict(text, keys, value, commit, kind = "") {
  return h("button", { type: "button", class: `verdict ${kind}`, dataset: { verdict: String(value) }, onclick: () => commit(value) }, label(text, ...keys));
}

/** Whole numbers of a scale, if there are few enough for a button each. */
export function steps([low, high]) {
  if (!Number.isInteger(low) || !Number.isInteger(high) || high - low > 10) return null;
  return Array.from({ length: high - low + 1 }, (_, i) => low + i);
}

function scores(task, commit) {
  const numbers = steps(task.scale);
  if (!numbers) {
    const field = h("input", { type: "number", step: "any", min: task.scale[0], max: task.scale[1], "aria-label": `Score from ${task.scale[0]} to ${task.scale[1]}`, placeholder: `${task.scale[0]} to ${task.scale[1]}` });
    const form = h("form", { class: "score-form" }, field, h("button", { class: "main" }, "Commit"));
    form.addEventListener("submit", (event) => { event.preventDefault(); if (field.value !== "" && field.checkValidity()) { commit(Number(field.value)); field.value = ""; } });
    return [form];
  }
  return numbers.map((number, i) => {
    const word = i === 0 ? "worst" : i === numbers.length - 1 ? "best" : "";
    return h("button", { type: "button", class: "verdict score", dataset: { verdict: String(number) }, "aria-label": word ? `${number}, ${word}` : `${number}`, onclick: () => commit(number) },
      h("b", {}, number), h("span", { class: "bar-word" }, word || "\u00a0"));
  });
}

/** The verdicts of a kind of task, as large buttons. */
export function verdictButtons(task, commit) {
  if (task.kind === "preference") {
    return [verdict("First", ["a", "←", "1"], "first", commit, "strong"), verdict("Tie", ["t"], "tie", commit), verdict("Both bad", ["b"], "both_bad", commit), verdict("Second", ["l", "→", "2"], "second", commit, "strong")];
  }
  if (task.kind === "thumb") return [verdict("Bad", ["↓", "n"], "down", commit, "strong"), verdict("Good", ["↑", "y"], "up", commit, "strong")];
  return scores(task, commit);
}

/** Strength, axes and note: optional, and said before the verdict. `extra` holds what was said. */
export function drawExtras(node, task, extra, redraw) {
  const choose = (name, value) => { extra[name] = value; redraw(); };
  const strength = task.kind === "preference" ? h("div", { class: "choice", role: "group", "aria-label": "How much better (optional)" }, h("span", { class: "soft" }, "How much better? ", h("kbd", {}, "m")),
    [1, 2, 3].map((value) => h("button", { type: "button", "aria-pressed": String(extra.strength === value), onclick: () => choose("strength", extra.strength === value ? null : value) }, STRENGTHS[value]))) : null;
  const numbers = steps(task.scale) ?? [];
  const axes = task.axes.map((axis, i) => h("div", { class: `choice axis ${extra.axis === i ? "current" : ""}`, role: "group", "aria-label": `${axis} (optional)` }, h("span", { class: "axis-name" }, axis, i === 0 ? [" ", h("kbd", {}, "x")] : null),
    numbers.map((value) => h("button", { type: "button", "aria-pressed": String(extra.axes[axis] === value), onclick: () => {
      if (extra.axes[axis] === value) delete extra.axes[axis]; else extra.axes[axis] = value;
      redraw();
    } }, value))));
  const note = h("textarea", { rows: "2", maxlength: "4000", "aria-label": "Note (optional)", placeholder: "A note, if you like. Escape goes back to the keys." });
  note.value = extra.note;
  note.addEventListener("input", () => { extra.note = note.value; });
  note.addEventListener("keydown", (event) => { if (event.key === "Escape") note.blur(); });
  const notes = h("details", { class: "note" }, h("summary", {}, "Note ", h("kbd", {}, "c")), note);
  notes.open = extra.noteOpen;
  notes.addEventListener("toggle", () => { extra.noteOpen = notes.open; });
  fill(node, strength, axes, notes);
}
