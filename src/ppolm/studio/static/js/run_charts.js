// Which charts a run has, and what each shows. One run, or several in the same charts.
import { fill, h, say } from "./dom.js";
import { lines, seriesColor, smooth } from "./charts.js";

/** name, title, what it is, metrics of training, metrics of evaluations; `right` stand on an axis of their own. */
export const CHARTS = [
  { key: "reward", title: "Reward", note: "mean score of the responses, before normalisation and KL; the judge is never trained on", train: ["avg_reward"], held: ["avg_reward"], right: { held: ["judge"], title: "judge" } },
  { key: "kl", title: "KL to the reference", note: "mean over responses of Σ log π − log π_ref, in nats", train: ["kl"], held: ["kl"] },
  { key: "losses", title: "Losses", note: "per token, mean over the updates of a step", train: ["policy_loss"], right: { train: ["value_loss"], title: "value loss" } },
  { key: "entropy", title: "Entropy", note: "of the full softmax, per token", train: ["entropy"], held: ["entropy"] },
  { key: "clip", title: "Clip fraction", note: "share of tokens whose probability ratio is outside the clip range", train: ["clip_fraction"] },
  { key: "value", title: "Value accuracy", note: "explained variance of the values before the update; 1 is perfect, below 0 is worse than a constant", train: ["value_accuracy"], held: ["value_accuracy"] },
  { key: "length", title: "Response length", note: "tokens, EOS included; on the right the share of responses that end", train: ["response_length"], held: ["response_length"], right: { train: ["ended_fraction"], title: "share that ends", range: [0, 1.05] } },
  { key: "seconds", title: "Seconds per phase", note: "wall-clock time of each phase of a step", phases: true },
];

const WORDS = { avg_reward: "reward", policy_loss: "policy loss", value_loss: "value loss", clip_fraction: "clip fraction", value_accuracy: "value accuracy",
  response_length: "length", ended_fraction: "share that ends" };
const words = (name) => WORDS[name] ?? name.replace("seconds/", "");

function phases(columns) {
  return Object.keys(columns).filter((name) => name.startsWith("seconds/"));
}

function twoErrors(rows, name) {
  const spread = { avg_reward: "reward_std", judge: "judge_std" }[name];
  const errors = rows.map((row) => (spread && row[spread] !== undefined && row.num_prompts > 1 ? (2 * row[spread]) / Math.sqrt(row.num_prompts) : null));
  return errors.some((error) => error !== null) ? errors : undefined;
}

/** The series of one chart for one run. `prefix` names the run where there are several. */
export function seriesOf(chart, run, weight, several) {
  const { columns, evaluations } = run;
  const found = [];
  const shade = (i) => (several ? run.color : seriesColor(i));
  const name = (metric, extra) => (several ? `${run.name}, ${extra}` : chart.held && !chart.right ? extra : metric === "judge" ? "judge" : chart.held ? (metric === "ended_fraction" ? words(metric) : extra) : words(metric));
  let index = 0;
  const addTrain = (metric, right) => {
    const y = columns[metric];
    if (!y?.some((value) => value !== null)) return;
    const color = shade(index);
    if (weight && !several) found.push({ name: "", x: columns.step, y, color, right, faint: true });
    const kind = several && right ? words(metric) : "training";
    found.push({ name: name(metric, kind), kind, x: columns.step, y: smooth(y, weight), color, right, dash: several && right ? "dash" : undefined });
    index += 1;
  };
  const addHeld = (metric, right) => {
    const rows = evaluations.filter((row) => typeof row[metric] === "number");
    if (!rows.length) return;
    const kind = metric === "judge" ? "judge" : "held out";
    found.push({ name: name(metric, kind), kind, x: rows.map((row) => row.step), y: rows.map((row) => row[metric]), color: shade(index), right, points: true,
      dash: metric === "judge" ? "dash" : "dot", symbol: metric === "judge" ? "square" : "circle", errors: several ? undefined : twoErrors(rows, metric) });
    index += 1;
  };
  for (const metric of chart.phases ? phases(columns) : chart.train ?? []) addTrain(metric, false);
  for (const metric of chart.held ?? []) addHeld(metric, false);
  for (const metric of chart.right?.train ?? []) addTrain(metric, true);
  for (const metric of chart.right?.held ?? []) addHeld(metric, true);
  return found;
}

/** A box for a chart; `plot` inside it is drawn by `drawChart`. */
export function chartBox(chart) {
  const plot = h("div", { class: "plot" });
  const legend = h("div", { class: "chart-legend" });
  const about = chart.note ? h("button", { type: "button", class: "about", title: chart.note, "aria-label": `${chart.title}: ${chart.note}`, onclick: () => say(`${chart.title}: ${chart.note}.`) }, "?") : null;
  const box = h("figure", { class: "chart", style: { margin: "0" } }, h("h3", {}, chart.title, about, legend), plot);
  return Object.assign(box, { plot, legend });
}

/** One run: a line and its name for each series. Several: what the kinds of lines mean; colours are the runs'. */
function drawLegend(legend, series, several) {
  const shown = series.filter((one) => !one.faint);
  const kinds = new Map(shown.map((one) => [several ? one.dash ?? "solid" : one.name, one]));
  fill(legend, kinds.size < 2 ? [] : [...kinds.values()].map((one) => {
    const key = h("span", { class: `key ${one.dash ?? "solid"}` }, several ? one.kind : one.name);
    key.style.setProperty("--key", several ? "var(--soft)" : one.color);
    return key;
  }));
}

export function drawChart(box, chart, runs, weight, marks) {
  const several = runs.length > 1;
  const series = runs.flatMap((run) => seriesOf(chart, run, weight, several));
  box.classList.toggle("hidden", series.length === 0);
  drawLegend(box.legend, series, several);
  const right = series.some((one) => one.right) ? chart.right?.title : undefined;
  if (series.length) return lines(box.plot, series, { marks, right, rightRange: right ? chart.right.range : undefined });
  return null;
}

/** A chart of any metric, made when somebody asks for it. */
export function anyChart(metric) {
  return { key: `metric:${metric}`, title: metric, note: "", train: [metric], held: [metric] };
}

export function otherMetrics(columns) {
  const shown = new Set(CHARTS.flatMap((chart) => [...(chart.train ?? []), ...(chart.right?.train ?? [])]).concat("step", "epoch"));
  return Object.keys(columns).filter((name) => !shown.has(name) && !name.startsWith("seconds/")).sort();
}
