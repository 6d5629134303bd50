// The readiness report of a reward model, as a page. A part that is missing or damaged is left out, and the rest is shown.
import { h } from "../dom.js";
import { num, percent, signed } from "../format.js";
import { calibration, curves, histograms, intervals } from "./drawings.js";

const SENSITIVE = 0.2; // limits of readiness_verdict.py
const EXPLOITABLE = 0.5;
const KINDS = { ready: "good", weak: "warn", "not ready": "bad" };
const ANNOTATORS = 20;

export function readinessBadge(verdict) {
  return verdict ? h("span", { class: `badge ${KINDS[verdict] ?? ""}` }, verdict) : h("span", { class: "soft" }, "not measured");
}

function panel(title, about, ...children) {
  return h("section", { class: "panel" }, h("h2", {}, title), about ? h("p", { class: "soft small" }, about) : null, children);
}

function table(heads, rows, numeric = 1) {
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, heads.map((one, i) => h("th", { scope: "col", class: i >= numeric ? "number" : "" }, one)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, i) => (i === 0 ? h("th", { scope: "row", class: "name" }, cell) : h("td", { class: i >= numeric ? "number" : "" }, cell))))))));
}

export function verdictPanel(report) {
  const reasons = (report.reasons ?? []).filter((one) => one?.text);
  const rows = report.rows ?? {};
  const counts = [["pairs", "held-out pairs"], ["ties", "ties"], ["scores", "scores"], ["thumbs", "thumbs"]].filter(([kind]) => rows[kind]).map(([kind, name]) => `${rows[kind]} ${name}`);
  return h("section", { class: "panel verdict" },
    h("h2", {}, report.verdict ? `Why it is ${report.verdict}` : "Why"),
    h("ul", { class: "reasons" }, reasons.map((one) => h("li", { class: KINDS[one.status] ?? "" }, h("span", { class: "about" }, one.about ?? ""), h("span", {}, one.text)))),
    h("p", { class: "soft small" }, `Measured on ${counts.join(", ") || "rows that are not told"}${rows.prompts ? ` of ${rows.prompts} prompts` : ""}. Brackets hold 95 % intervals, by prompt.`,
      report.chose_weights ? " These rows also chose the weights, which flatters a little; --test-data with others is stricter." : ""));
}

export function tilesOf(report) {
  const tile = (value, label, title) => h("div", { class: "tile", title }, h("b", {}, value), h("span", {}, label));
  const { accuracy, length, calibration: calibrated, ratings, thumbs } = report;
  const margin = (one) => (one.low === null || one.low === undefined ? "" : ` [${num(one.low, 3)}, ${num(one.high, 3)}]`);
  return h("div", { class: "tiles wide" },
    accuracy ? tile(num(accuracy.mean, 3), `accuracy${margin(accuracy)}`, "How often the answer that people chose scores higher") : null,
    length?.baseline ? tile(num(length.baseline.mean, 3), `always the ${length.longer_wins ? "longer" : "shorter"} answer`, "The best rule that only counts") : null,
    length?.gain ? tile(signed(length.gain.mean), `gain over length${margin(length.gain)}`, "Accuracy of the model minus that of the rule") : null,
    calibrated ? tile(num(calibrated.ece, 3), "calibration error", "Mean distance of confidence and accuracy") : null,
    ratings?.spearman ? tile(num(ratings.spearman.mean, 3), `rank correlation${margin(ratings.spearman)}`, "With people's scores") : null,
    thumbs?.auc ? tile(num(thumbs.auc.mean, 3), `AUC of thumbs${margin(thumbs.auc)}`, "How often thumbs up score higher than thumbs down") : null);
}

/** Every measure with an interval, as the report in the terminal lists them. */
function measures(report) {
  const { accuracy, length, ratings, thumbs } = report;
  const rows = [];
  const add = (name, one, chance, faint = false) => { if (one && one.mean !== null) rows.push({ name, ...one, chance, faint, note: `${one.rows} rows, ${one.prompts} prompts` }); };
  add("accuracy", accuracy, 0.5);
  if (length) {
    add(`always the ${length.longer_wins ? "longer" : "shorter"} (${length.unit})`, length.baseline, 0.5, true);
    add("accuracy, length-balanced", length.balanced, 0.5);
    add("accuracy, like lengths", length.matched, 0.5);
    add("accuracy, the longer won", length.longer_won, 0.5);
    add("accuracy, the shorter won", length.shorter_won, 0.5);
  }
  add("scores: Spearman", ratings?.spearman, 0);
  add("scores: Pearson", ratings?.pearson, 0);
  add("scores: given length", ratings?.beyond_length, 0);
  add("thumbs: AUC", thumbs?.auc, 0.5);
  add("thumbs: given length", thumbs?.beyond_length, 0);
  return rows;
}

function lengthPanel(length) {
  if (!length) return null;
  const said = [];
  if (length.prefers_longer !== null && length.people_prefer_longer !== null) {
    said.push(`Where lengths differ, the model prefers the longer answer in ${percent(length.prefers_longer)} of the pairs, people in ${percent(length.people_prefer_longer)}.`);
  }
  said.push(`Score difference and length difference correlate by ${num(length.correlation, 2)}.`, `Like lengths: ${length.matched_rule ?? "–"}.`,
    `The length-balanced accuracy weighs as much as ${num(length.balanced_pairs, 2)} pairs: 0.5 would mean that it knows nothing but length.`);
  return panel("Length", null, said.map((one) => h("p", {}, one)));
}

function editsPanel(edits) {
  const known = Object.entries(edits ?? {}).filter(([, one]) => one?.change);
  if (!known.length) return null;
  const limits = [{ at: SENSITIVE, kind: "limit-weak" }, { at: EXPLOITABLE, kind: "limit-bad" }];
  const rows = known.map(([name, one]) => ({ name, ...one.change, note: `${percent(one.gained)} gain${one.flipped === null ? "" : `, ${percent(one.flipped)} overtake`}` }));
  return panel("Trivial edits", "What an edit that makes no answer better does to the score, in its standard deviations. Beyond the first dashed line the model is weak, beyond the second PPO would exploit it.",
    intervals(rows, "Change of the score by trivial edits", { limits, zero: true }));
}

function scoresPanel(distribution) {
  const spreads = Object.entries(distribution?.spreads ?? {}).filter(([, one]) => one?.histogram);
  if (!spreads.length || (distribution.edges ?? []).length < 2) return null;
  const named = ["chosen", "rejected"].filter((name) => spreads.some(([one]) => one === name));
  const shown = spreads.filter(([name]) => !named.length || named.includes(name)).slice(0, 2).map(([name, one]) => ({ name, ...one }));
  const heads = Object.keys(spreads[0][1].quantiles ?? {});
  return panel("Scores", null, histograms(distribution.edges, shown, "Scores of chosen and rejected answers"),
    table(["answers", "count", "mean", "deviation", ...heads], spreads.map(([name, one]) => [name, one.count, num(one.mean, 3), num(one.std, 3), ...heads.map((head) => num(one.quantiles?.[head], 3))])));
}

function agreementPanel(agreement) {
  const people = Object.entries(agreement ?? {}).filter(([, one]) => one);
  if (!people.length) return null;
  const more = people.length > ANNOTATORS ? `The first ${ANNOTATORS} of ${people.length}; readiness.json has all.` : null;
  return panel("By annotator", "How often it agrees with each of them; the dashed line is chance.",
    intervals(people.slice(0, ANNOTATORS).map(([name, one]) => ({ name: name.length > 28 ? `${name.slice(0, 27)}…` : name, ...one, chance: 0.5, note: `${one.rows} pairs` })), "Accuracy by annotator"),
    more ? h("p", { class: "soft small" }, more) : null);
}

function tiesPanel(ties) {
  if (!ties) return null;
  return panel("Ties", "Pairs that people called equal: their scores should lie closer together than those of other pairs.",
    table(["mean score difference", "value"], [[`${ties.count} ties`, num(ties.difference, 3)], ["pairs that people decided", num(ties.decided_difference, 3)]]));
}

/** A prompt as it was written: the report quotes it on one line. */
function unquoted(text) {
  if (!/^(['"]).*\1$/s.test(text)) return text;
  const marks = { n: "\n", t: "\t" };
  return text.slice(1, -1).replace(/\\([nt'"\\])/g, (_, mark) => marks[mark] ?? mark);
}

function mistakesPanel(mistakes) {
  const known = (mistakes ?? []).filter((one) => one?.chosen !== null && one?.rejected !== null && one);
  if (!known.length) return null;
  const answer = (title, text, score, kind) => h("div", { class: `mistake-answer ${kind}` }, h("div", { class: "line" }, h("b", {}, title), h("span", { class: "soft numbers" }, `score ${num(score, 3)}`)), h("div", { class: "text" }, text));
  return panel("Worst mistakes", "Pairs in which the model is surest of the opposite of what people said.",
    known.map((one, i) => h("details", { open: i === 0 }, h("summary", {}, `${percent(one.confidence)} sure of the wrong one${one.annotator ? `, annotator ${one.annotator}` : ""}`),
      h("p", { class: "text soft small mistake-prompt" }, unquoted(one.prompt ?? "")),
      h("div", { class: "two" }, answer("People chose", one.chosen, one.chosen_score, "people"), answer("The model chose", one.rejected, one.rejected_score, "model")))));
}

function trainingPanel(training, about) {
  const rows = [["base model", training.model_name], ["data", training.data.join(", ")], ["training rows", training.training_rows], ["training prompts", training.training_prompts],
    ["validation rows", training.validation_rows], ["kept: update", training.best_step], ["folder", about.folder]].filter(([, value]) => value !== null && value !== undefined && value !== "");
  const history = training.validation;
  const series = [["loss", "validation loss"], ["training_loss", "training loss"], ["accuracy", "accuracy"]].map(([name, title]) => ({ name: title, x: history.map((row) => row.step), y: history.map((row) => row[name]) }))
    .filter((one) => one.y.filter((value) => value !== null).length > 1);
  return panel("Training", null, h("table", {}, h("tbody", {}, rows.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "text mono" }, String(value)))))),
    history.length > 1 ? curves(series, "Loss and accuracy during training") : null);
}

/** The whole report; `about` is what the server says of the reward model. */
export function reportPanels(about) {
  const { report } = about;
  return h("div", { class: "reports" }, h("div", { class: "columns" }, chartPanels(about)), report ? mistakesPanel(report.mistakes) : null);
}

function chartPanels(about) {
  const { report, training } = about;
  if (!report) return [trainingPanel(training, about)];
  const calibrated = report.calibration;
  const rows = measures(report);
  return [
    rows.length ? panel("Agreement with people", "Each with its 95 % interval; the dashed line is chance.", intervals(rows, "Agreement with people, by slice")) : null,
    calibrated ? panel("Calibration", `Expected calibration error ${num(calibrated.ece, 3)}; a calibrated model stays below ${num(calibrated.ece_by_chance, 3)} on 95 % of such samples. Confidence minus accuracy: ${signed(calibrated.overconfidence)}.`,
      calibration(calibrated.buckets ?? [], "Calibration")) : null,
    editsPanel(report.edits), scoresPanel(report.distribution), lengthPanel(report.length), tiesPanel(report.ties), agreementPanel(report.agreement), trainingPanel(training, about),
  ];
}

