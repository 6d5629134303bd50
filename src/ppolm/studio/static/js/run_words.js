// How states and verdicts of runs look, on every page alike.
import { h } from "./dom.js";

const STATES = { running: "running", waiting: "waiting for people", finished: "finished", stopped: "stopped" };
const VERDICTS = { improved: "good", unclear: "warn", unchanged: "warn", suspect: "bad", "over-optimised": "bad", collapsed: "bad" };

export function stateOf(run) {
  if (run.state === "waiting" && run.waits) return h("span", { class: "state waiting" }, h("a", { href: "/judge", title: `Step ${run.waits.step ?? "?"} waits for ${run.waits.left} judgements` }, "waiting for people"));
  const why = run.why ? `${STATES[run.state] ?? run.state}: ${run.why}` : "";
  const short = why.length > 42 ? `${why.slice(0, 40)}…` : why;
  return h("span", { class: `state ${run.state}`, title: why }, short || STATES[run.state] || run.state);
}

export function verdictBadge(verdict) {
  return verdict ? h("span", { class: `badge ${VERDICTS[verdict] ?? ""}` }, verdict) : h("span", { class: "soft" }, "–");
}
