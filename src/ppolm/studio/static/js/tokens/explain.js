// Where the advantage of a token comes from, term by term.
import { fill, h, visible } from "../dom.js";
import { num, signed } from "../format.js";
import { colorOf } from "./colors.js";

const SMALL = 1e-5;

function row(name, formula, value, kind = "") {
  return h("tr", { class: kind }, h("th", { scope: "row" }, name, formula ? h("span", { class: "formula" }, formula) : null), h("td", { class: "number" }, value));
}

const short = (value) => (value === null ? "–" : String(Number(value.toPrecision(4)))); // a setting: 0.95, not 0.9500
const inBrackets = (value) => (value < 0 ? `(${num(value)})` : num(value));
const chance = (logprob) => (logprob === null ? "" : `${num(100 * Math.exp(Math.min(0, logprob)), 3)} %`);

function shown(text) {
  const marked = visible(text.replaceAll("\n", "⏎").replaceAll("\t", "⇥"));
  return marked.length > 24 ? `${marked.slice(0, 23)}…` : marked || "⟨⟩";
}

function rewardRows(it) {
  const { reward_coef: beta, kl_estimator: estimator } = it.settings;
  const rows = [
    row("score", it.token + 1 === it.length ? "on the last token" : "on this token", num(it.score)),
    row("log π policy", chance(it.logprob_policy), num(it.logprob_policy)),
    row("log π reference", chance(it.logprob_ref), num(it.logprob_ref)),
    row("KL", `by ${estimator}`, num(it.kl)),
    row("KL penalty", beta ? `β · KL = ${short(beta)} · ${inBrackets(it.kl)}` : "β in the rewards is 0", num(it.penalty)),
    row("reward", `score − penalty = ${num(it.score)} − ${inBrackets(it.penalty)}`, num(it.reward_before), "sum"),
  ];
  if (it.reward_whitening) {
    const { mean, deviation } = it.reward_whitening;
    rows.push(row("whitened", `(${num(it.reward_before)} − ${inBrackets(mean)}) / ${num(deviation)} + ${inBrackets(mean)}`, num(it.reward), "sum"));
  }
  return rows;
}

function contributionRow(one, scale, widest, jump) {
  const width = `${Math.max(1, (100 * Math.abs(one.amount)) / widest).toFixed(1)}%`;
  const bar = h("span", { class: one.amount < 0 ? "bar below" : "bar above" }, h("span", { style: { width, backgroundColor: colorOf(scale, one.amount < 0 ? -Infinity : Infinity) } }));
  const name = one.text === undefined ? h("span", { class: "soft" }, one.name)
    : h("button", { type: "button", class: "link mono", title: `Go to token ${one.token + 1}`, onclick: () => jump(one.token) }, shown(one.text));
  return h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "formula number" }, one.weight === undefined ? "" : `${short(one.weight)} · ${inBrackets(one.td_error)}`), h("td", {}, bar), h("td", { class: "number" }, signed(one.amount, 4)));
}

function errorRows(it) {
  const { gamma } = it.settings;
  return [
    row("value here", "V(s)", num(it.value)), row("value next", it.token + 1 === it.length ? "0 after the last token" : "V(s′)", num(it.next_value)),
    row("TD error", `r + γ V(s′) − V(s) = ${num(it.reward)} + ${short(gamma)} · ${inBrackets(it.next_value)} − ${inBrackets(it.value)}`, signed(it.td_error, 4), "sum"),
  ];
}

function contributions(it, scale, jump) {
  const { gamma, lam } = it.settings;
  const terms = it.contributions.map((one) => ({ ...one }));
  if (it.rest_count) terms.push({ name: `the other ${it.rest_count}`, amount: it.rest });
  const widest = Math.max(1e-12, ...terms.map((one) => Math.abs(one.amount)));
  return h("table", { class: "terms contributions" }, h("caption", {}, `TD errors from here on, each times (γλ)ⁱ with γλ = ${short(gamma * lam)}`), h("tbody", {}, terms.map((one) => contributionRow(one, scale, widest, jump))));
}

function endRows(it) {
  const rows = [row("sum", it.advantage_whitening ? "the advantage before whitening" : "the advantage", signed(it.raw_advantage, 4), "sum")];
  if (it.advantage_whitening) {
    const { mean, deviation } = it.advantage_whitening;
    rows.push(row("whitened", `(${num(it.raw_advantage)} − ${inBrackets(mean)}) / ${num(deviation)}`, signed(it.advantage, 4), "sum"));
  }
  const same = it.residual !== null && Math.abs(it.residual) <= SMALL;
  rows.push(row("stored", same ? "✓ the terms add up to it" : `differs by ${signed(it.residual, 4)}`, signed(it.stored_advantage, 4), same ? "total" : "total off"));
  return rows;
}

/** Draw an explanation. `jump(token)` goes to a token that contributes, `close()` closes it. */
export function drawExplanation(node, it, scale, jump, close) {
  fill(node,
    h("div", { class: "panel-head" }, h("h2", {}, "Why ", signed(it.stored_advantage, 4), "?"), h("button", { type: "button", class: "quiet", title: "Close (Escape)", onclick: close }, "Close")),
    h("p", { class: "soft" }, `The advantage of token ${it.token + 1} of ${it.length}, `, h("code", {}, shown(it.text)), ", from what the step was given to what was stored."),
    h("table", { class: "terms" }, h("tbody", {}, rewardRows(it), errorRows(it))), contributions(it, scale, jump), h("table", { class: "terms" }, h("tbody", {}, endRows(it))),
    h("details", {}, h("summary", {}, "In words"), h("ol", { class: "words" }, it.sentences.map((one) => h("li", {}, one)))));
}
