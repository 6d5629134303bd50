// Reward models: those below the studio's folders, and those that its runs were trained on.
import { get, trying } from "../api.js";
import { command, empty, fill, h, main } from "../dom.js";
import { ago, interval } from "../format.js";
import { explainKeys, onKeys } from "../frame.js";
import { readinessBadge } from "../models/report.js";

const STATES = { finished: "", unfinished: "still in training, or interrupted", given: "" };

function row(one) {
  const address = `/rewards/${encodeURIComponent(one.id)}`;
  const about = one.problem ?? STATES[one.state] ?? "";
  return h("tr", {}, h("td", { class: "name" }, h("a", { href: address }, one.name), about ? h("div", { class: "soft small" }, about) : null),
    h("td", {}, readinessBadge(one.verdict)), h("td", { class: "number" }, interval(one.accuracy)), h("td", { class: "number" }, one.accuracy?.rows ?? "–"),
    h("td", { class: "reason" }, one.reason ?? h("span", { class: "soft" }, one.state === "unfinished" ? "its report comes at the end of the training" : "no report beside it")),
    h("td", {}, one.runs.slice(0, 5).map((run, i) => [i ? ", " : "", h("a", { href: `/run/${encodeURIComponent(run)}` }, run)]), one.runs.length > 5 ? ` and ${one.runs.length - 5} more` : ""),
    h("td", { class: "mono small name" }, one.model_name ?? "–"), h("td", { class: "number" }, one.time && one.name !== "embedded" ? ago(Date.now() / 1000 - one.time) : "–"));
}

const heads = ["Reward model", "Verdict", "Accuracy", "Pairs", "Why", "Runs trained on it", "Base model", "Age"];
const found = await trying(() => get("/api/rewards"));
if (!found) {
  fill(main(), empty("Reward models cannot be listed", "Load the page again."));
} else if (!found.rewards.length) {
  fill(main(), empty("No reward model is here yet", `Looked below ${found.folders.join(", ")}. Train one from judgements, with its folder as --output; it then says itself whether it is fit to train on:`,
    command(`ppolm reward --model-name embedded --data examples/comparisons.jsonl --output ${found.folders[0]}/my-reward`)));
} else {
  fill(main(), h("div", { class: "page-head" }, h("h1", {}, "Reward models"), h("span", { class: "soft" }, "Is it fit to train on? Open one for its report, and to score texts with it.")),
    h("div", { class: "scroll" }, h("table", { class: "rewards" }, h("thead", {}, h("tr", {}, heads.map((one) => h("th", { scope: "col", class: ["Accuracy", "Pairs", "Age"].includes(one) ? "number" : "" }, one)))),
      h("tbody", {}, found.rewards.map(row)))));
}

const links = () => [...document.querySelectorAll("table.rewards tbody tr td:first-child a")];
const move = (by) => { const all = links(); const at = all.indexOf(document.activeElement); all[Math.min(all.length - 1, Math.max(0, at < 0 ? 0 : at + by))]?.focus(); };
explainKeys(["↓ ↑", "next, previous reward model"], ["Enter", "open it"]);
onKeys({ ArrowDown: () => { move(1); }, ArrowUp: () => { move(-1); } });
