// Scoring any text with a reward model, alone or against a second one, and what each piece of it is worth.
import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { num, percent, signed } from "../format.js";
import { Colored, scaleBar, sharedScale } from "./colored.js";
import { readMessages } from "./long_view.js";
import { PromptBox } from "./prompt_box.js";
import { escapes, onSubmit, problemBox, unloadButton, Waiting } from "./waiting.js";

export const DEFAULTS = { prompt: "", messages: "", a: "", b: "", two: "", unit: "sentence" };
const UNITS = [["", "nothing"], ["sentence", "each sentence"], ["token", "each token"]];
const TOP = 3;

export class ScoreBox {
  constructor(path, change) {
    this.path = path;
    this.change = change;
    this.result = null;
    this.waiting = new Waiting();
    this.prompts = [];
    this.prompt = new PromptBox({ change: () => this.typed(), pick: (number) => { this.prompt.set(structuredClone(this.prompts[number])); this.typed(); this.prompt.picked(number); }, submit: () => this.ask() });
    this.prompt.offer([], 0);
    this.a = this.area("Answer");
    this.b = this.area("Second answer");
    this.two = h("input", { type: "checkbox" });
    this.two.addEventListener("change", () => { this.change({ two: this.two.checked ? "yes" : "" }, true); this.layout(); });
    this.unit = h("select", { "aria-label": "Leave out" }, UNITS.map(([value, title]) => h("option", { value }, title)));
    this.unit.addEventListener("change", () => this.change({ unit: this.unit.value }));
    this.button = h("button", { type: "button", class: "main", onclick: () => this.ask() }, "Score");
    this.note = h("p", { class: "soft small" });
    this.answers = h("div", { class: "two" });
    this.results = h("div", {}, h("p", { class: "soft hint" }, "The score will stand here, with its change for every piece that is left out. The model is loaded when you first ask, in a process of its own."));
    this.node = h("div", {}, h("section", { class: "panel" }, this.prompt.node, this.answers,
      h("div", { class: "line score-line" }, this.button, h("label", { title: "The score is computed again without it" }, "leave out, one after the other,", this.unit), h("label", {}, this.two, "compare with a second answer"), this.waiting.node), this.note), this.results);
    escapes(this.waiting);
    window.addEventListener("themechange", () => this.draw());
    this.layout();
  }

  area(label) {
    const area = h("textarea", { "aria-label": label, rows: 5, spellcheck: "false" });
    area.addEventListener("input", () => this.typed());
    onSubmit(area, () => this.ask());
    return area;
  }

  layout() {
    const field = (title, area) => h("div", { class: "answer-field" }, h("h3", {}, title), area);
    fill(this.answers, field(this.two.checked ? "First answer" : "Answer", this.a), this.two.checked ? field("Second answer", this.b) : null);
  }

  /** Texts out of the address. */
  read(view) {
    this.prompt.set(readMessages(view.messages) ?? view.prompt);
    this.a.value = view.a;
    this.b.value = view.b;
    this.two.checked = view.two === "yes";
    this.unit.value = UNITS.some(([value]) => value === view.unit) ? view.unit : "sentence";
    this.layout();
  }

  typed() {
    const { content } = this.prompt;
    this.prompt.picked(null);
    const texts = typeof content === "string" ? { prompt: content, messages: "" } : { prompt: "", messages: JSON.stringify(content) };
    const whole = this.change({ ...texts, a: this.a.value, b: this.b.value });
    this.note.textContent = whole ? "" : "These texts are too long for the address: a copied link will not hold them.";
  }

  /** Prompts that the runs trained on this model held out. */
  async offerPromptsOf(runs) {
    for (const run of runs.slice(0, 3)) {
      try {
        const { prompts, held_out } = await get(`/api/try/${encodeURIComponent(run)}`);
        if (prompts.length) { this.prompts = prompts; this.prompt.offer(prompts, held_out); return; }
      } catch { /* a run that cannot be read offers none */ }
    }
  }

  focus() { (this.prompt.content.length ? this.a : this.prompt.fields.querySelector("textarea")).focus(); }

  async ask() {
    if (this.waiting.busy) return;
    const answers = this.two.checked ? [this.a.value, this.b.value] : [this.a.value];
    this.button.disabled = true;
    try {
      const found = await this.waiting.ask(this.path, { prompt: this.prompt.content, answers, unit: this.unit.value || null });
      if (found) { this.result = found; this.draw(); }
    } catch (error) {
      this.result = null;
      fill(this.results, problemBox(error.message));
    } finally { this.button.disabled = false; }
  }

  draw() {
    if (!this.result) return;
    const { answers, unit, first_wins: wins } = this.result;
    const scale = unit ? sharedScale(`change without this ${unit}`, ...answers.map((one) => one.changes)) : null;
    fill(this.results, h("div", { class: "line result-head" }, h("h2", {}, "Scores"),
      scale ? scaleBar(scale, "falls without it", "rises without it") : null,
      h("span", { class: "soft small right" }, "0 is an average reference answer, 1 a standard deviation above it.")),
      wins === null ? null : this.comparison(wins),
      h("div", { class: "two" }, answers.map((one, i) => this.scored(one, unit, scale, answers.length === 1 ? "Answer" : ["First answer", "Second answer"][i]))),
      h("p", { class: "soft small numbers" }, `${num(this.result.seconds, 2)} s. `, unloadButton()));
  }

  comparison(wins) {
    const better = wins >= 0.5 ? "first" : "second";
    return h("div", { class: "panel wins" }, h("span", {}, `The model prefers the ${better} answer: `), h("b", {}, percent(Math.max(wins, 1 - wins))), h("span", {}, " sure."),
      h("div", { class: "wins-bar", role: "img", "aria-label": `First answer wins with ${percent(wins)}` }, h("span", { style: { width: `${(100 * wins).toFixed(1)}%` } }, `first ${percent(wins)}`), h("span", {}, `second ${percent(1 - wins)}`)));
  }

  scored(one, unit, scale, title) {
    const head = h("div", { class: "line" }, h("h2", {}, title), h("b", { class: "score numbers" }, signed(one.score, 4)), h("span", { class: "soft numbers" }, `raw ${num(one.raw, 4)}`));
    if (!unit) return h("section", { class: "panel" }, head, h("div", { class: "text" }, one.text));
    const text = new Colored(one.pieces, [], [], `${title}, by ${unit}`, [[`change without this ${unit}`, one.changes]]);
    text.color(scale, one.changes);
    return h("section", { class: "panel" }, head, one.cut ? h("p", { class: "soft small" }, one.cut) : null, one.pieces.length ? text.node : h("p", { class: "soft" }, "The answer is empty."), this.largest(one, unit));
  }

  /** The pieces that matter most, with their numbers. */
  largest(one, unit) {
    const known = one.pieces.map((piece, i) => ({ piece, change: one.changes[i] })).filter((part) => part.change !== null && part.change !== undefined);
    const sorted = known.sort((x, y) => Math.abs(y.change) - Math.abs(x.change)).slice(0, unit === "sentence" ? known.length : 2 * TOP);
    if (!sorted.length) return null;
    return h("div", { class: "scroll pieces" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, unit === "sentence" ? "Sentence left out" : "Token left out (the largest)"), h("th", { scope: "col", class: "number" }, "Change"))),
      h("tbody", {}, sorted.map((part) => h("tr", {}, h("td", { class: "text" }, unit === "token" ? h("code", {}, part.piece) : part.piece.trim()), h("td", { class: "number" }, signed(part.change)))))));
  }
}
