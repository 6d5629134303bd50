// What is shown: the step, one or two columns to colour by, and the ways to what stands out.
import { fill, h } from "../dom.js";
import { num } from "../format.js";

/** `on`: change(changes), step(number), move(by), place(place), samples(), whatIf(). */
export class Bar {
  constructor(on) {
    this.step = h("select", { "aria-label": "Step" });
    this.column = h("select", { "aria-label": "Colour by" });
    this.second = h("select", { "aria-label": "Second colouring" });
    this.place = h("select", { "aria-label": "Take me to" });
    this.samples = h("button", { type: "button", title: "All samples of this prompt side by side (s)", onclick: () => on.samples() }, "Samples");
    this.whatIf = h("button", { type: "button", title: "Other settings for this step (w)", onclick: () => on.whatIf() }, "What if …");
    this.step.addEventListener("change", () => on.step(Number(this.step.value)));
    this.column.addEventListener("change", () => on.change({ column: this.column.value }));
    this.second.addEventListener("change", () => on.change({ second: this.second.value }));
    this.place.addEventListener("change", () => { const place = this.places[this.place.value]; this.place.value = ""; on.place(place); });
    this.places = {};
    const arrow = (by, text, label, key) => h("button", { type: "button", title: `${label} (${key})`, "aria-label": label, onclick: () => on.move(by) }, text);
    this.node = h("div", { class: "tokens-bar" },
      h("span", { class: "group" }, arrow(-1, "‹", "Stored step before", "["), h("label", {}, "Step", this.step), arrow(1, "›", "Stored step after", "]")),
      h("label", {}, "Colour by", this.column), h("label", {}, "and", this.second), this.place, h("span", { class: "right group" }, this.samples, this.whatIf));
  }

  /** Show a view; `step` is what the server says of the step, or null. */
  reflect(steps, step, view) {
    const names = Object.keys(step?.columns ?? {});
    const choices = names.map((name) => [name, name]);
    choose(this.step, steps.map((one) => [String(one), String(one)]), String(view.step));
    choose(this.column, choices, view.column);
    choose(this.second, [["", "nothing else"], ...choices], view.second);
    this.places = step?.places ?? {};
    fill(this.place, h("option", { value: "" }, "Take me to …"), Object.entries(this.places).map(([name, place], i) => h("option", { value: name, disabled: !place }, describe(i + 1, name, place, step.responses))));
    this.place.value = "";
    this.samples.setAttribute("aria-pressed", String(view.show === "samples"));
    this.whatIf.setAttribute("aria-pressed", String(Boolean(view.whatif)));
  }
}

function choose(select, choices, value) {
  fill(select, choices.map(([one, text]) => h("option", { value: one }, text)));
  select.value = value;
}

function describe(key, name, place, responses) {
  if (!place) return `${key}  ${name}: none`;
  return `${key}  ${name}: ${name === "not ended" ? `${place.value} of ${responses}` : num(place.value, 3)}`;
}
