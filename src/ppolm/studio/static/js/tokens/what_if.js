// What if: sliders for the settings of a step; the server computes its rewards and advantages again, and writes nothing.
import { fill, h } from "../dom.js";
import { num, percent } from "../format.js";

const NUMBERS = [
  { name: "gamma", label: "γ discount", most: () => 1, step: 0.001 }, { name: "lam", label: "λ of GAE", most: () => 1, step: 0.001 },
  { name: "reward_coef", label: "β KL weight", most: (own) => Math.max(0.5, 4 * own.reward_coef), step: 0.001 },
];
const SWITCHES = [["whiten_rewards", "whiten rewards"], ["whiten_advantages", "whiten advantages"]];
export const NAMES = [...NUMBERS.map((one) => one.name), "kl_estimator", ...SWITCHES.map(([name]) => name)];

/** The panel. `own` are the settings of the step, `now` those that are tried; `changed(settings)` is called on every move. */
export class WhatIf {
  constructor(own, now, largestCoef, changed, close) {
    this.own = own;
    this.now = { ...own, ...now };
    this.changed = changed;
    this.result = h("div", { "aria-live": "polite" });
    this.inputs = {};
    this.node = h("div", {},
      h("div", { class: "panel-head" }, h("h2", {}, "What if"), h("div", {},
        h("button", { type: "button", class: "small", onclick: () => this.reset() }, "As the run had it"), h("button", { type: "button", class: "quiet", title: "Close (w)", onclick: close }, "Close"))),
      h("p", { class: "soft" }, "Rewards and advantages of this whole step, computed again by the functions that training uses. Colours show the change. Nothing is written."),
      h("div", { class: "sliders" }, NUMBERS.map((one) => this.slider(one, largestCoef)), this.estimator(), SWITCHES.map(([name, label]) => this.switch(name, label))), this.result);
  }

  slider({ name, label, most, step }, largestCoef) {
    const most_ = Math.max(most(this.own), this.now[name]);
    const range = h("input", { type: "range", min: 0, max: most_, step, "aria-label": label });
    const exact = h("input", { type: "number", min: 0, max: name === "reward_coef" ? largestCoef : 1, step: "any", "aria-label": `${label}, exactly`, class: "numbers" });
    const show = () => { range.value = String(this.now[name]); exact.value = String(this.now[name]); };
    range.addEventListener("input", () => { this.set(name, Number(range.value)); exact.value = range.value; });
    exact.addEventListener("change", () => { if (exact.value !== "" && exact.checkValidity()) { this.set(name, Number(exact.value)); range.value = exact.value; } else show(); });
    this.inputs[name] = show;
    show();
    return h("div", { class: "slider" }, h("span", {}, label, h("span", { class: "soft" }, `was ${Number(this.own[name].toPrecision(4))}`)), range, exact);
  }

  estimator() {
    const select = h("select", { "aria-label": "Estimator of KL" }, ["k1", "k2", "k3"].map((one) => h("option", { value: one }, one)));
    const show = () => { select.value = this.now.kl_estimator; };
    select.addEventListener("change", () => this.set("kl_estimator", select.value));
    this.inputs.kl_estimator = show;
    show();
    return h("div", { class: "slider" }, h("span", {}, "KL estimator", h("span", { class: "soft" }, `was ${this.own.kl_estimator}`)), select);
  }

  switch(name, label) {
    const box = h("input", { type: "checkbox" });
    const show = () => { box.checked = this.now[name]; };
    box.addEventListener("change", () => this.set(name, box.checked));
    this.inputs[name] = show;
    show();
    return h("label", {}, box, label, h("span", { class: "soft" }, ` (was ${this.own[name] ? "on" : "off"})`));
  }

  set(name, value) {
    this.now = { ...this.now, [name]: value };
    this.changed(this.now);
  }

  reset() {
    this.now = { ...this.own };
    Object.values(this.inputs).forEach((show) => show());
    this.changed(this.now);
  }

  /** What came back. */
  show(found) {
    if (found.changes_nothing) {
      fill(this.result, h("p", { class: "badge good what-if-same" }, "These settings change nothing in this step."));
      return;
    }
    fill(this.result, h("table", { class: "row-table" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "column"), h("th", { scope: "col", class: "number" }, "largest change in the step"))),
      h("tbody", {}, Object.entries(found.largest).map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "number" }, value ? `± ${num(value)}` : "none"))))),
    found.sign_changes === null ? null : h("p", {}, h("b", {}, percent(found.sign_changes)), " of the step's tokens change the sign of their advantage: what was encouraged is discouraged, or the reverse."));
  }
}

/** Which settings differ from the step's own, as an address has them. */
export function differing(own, now) {
  return Object.fromEntries(NAMES.filter((name) => own[name] !== now[name]).map((name) => [name, String(now[name])]));
}

/** Settings from an address; what makes no sense is left out. */
export function parsed(own, texts) {
  const found = {};
  for (const [name, text] of Object.entries(texts)) {
    if (typeof own[name] === "boolean") found[name] = text === "true";
    else if (typeof own[name] === "number") { const value = Number(text); if (text !== "" && Number.isFinite(value) && value >= 0) found[name] = value; }
    else if (["k1", "k2", "k3"].includes(text)) found[name] = text;
  }
  return found;
}
