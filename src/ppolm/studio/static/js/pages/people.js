// People: who judged how much, how far they agree with each other and with themselves, and where a reward model says otherwise.
import { get, trying } from "../api.js";
import { onBack, readView, writeView } from "../address.js";
import { command, empty, fill, h, main } from "../dom.js";
import { num } from "../format.js";
import { agreement, share } from "../people_words.js";

const DEFAULTS = { study: "" };
const KINDS = { preferences: "Comparisons", scores: "Scores", thumbs: "Thumbs" };
let view = readView(DEFAULTS);

const heading = (text, note) => h("th", { scope: "col", class: "number", title: note }, text);
const cell = (text, note = null) => h("td", { class: "number" }, text, note ? h("div", { class: "soft" }, note) : null);

function seconds(value) {
  return value === null ? "–" : value < 10 ? `${value.toFixed(1)} s` : `${Math.round(value)} s`;
}

function person(one) {
  const bias = one.first && one.first.low !== null && (one.first.low > 0.5 || one.first.high < 0.5);
  return h("tr", {}, h("th", { scope: "row", class: "name" }, one.annotator), cell(one.judgements), cell(seconds(one.seconds)), cell(share(one.consistency), one.repeats ? `${one.repeats} asked again` : null),
    h("td", { class: "number" }, share(one.first), bias ? h("div", {}, h("span", { class: "badge warn" }, one.first.mean > 0.5 ? "leans to the first" : "leans to the second")) : one.decided ? h("div", { class: "soft" }, `${one.decided} decided`) : null),
    cell(share(one.gold), one.golds ? `${one.golds} gold questions` : null));
}

function peopleTable(found) {
  return h("section", { class: "panel" }, h("h2", {}, "Annotators"), h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Name"), heading("Judgements", ""), heading("Median time", "active seconds per judgement"), heading("Self-consistency", "share of pairs that were answered the same way when they came again with the sides swapped"),
    heading("First side chosen", "share of decided comparisons in which the answer shown first won; 50 % without a side bias"), heading("Gold right", "share of questions with a known answer that were answered right"))),
  h("tbody", {}, found.people.map(person)))),
  h("p", { class: "soft" }, `In brackets: 95 % intervals by item. Without a side bias the first side is chosen in 50 % of the cases.${found.unnamed ? ` ${found.unnamed} judgements name no annotator and are not in this table.` : ""}`));
}

function kindPanel(kind, one) {
  const pairs = one.pairs.filter((pair) => pair.kappa !== null || pair.items > 0);
  return h("section", { class: "panel" }, h("h2", {}, KINDS[kind]), h("div", { class: "tiles" }, [[one.judgements, "judgements"], [one.items, "items"], [one.overlap, "items judged by two or more"], [one.conflicts, "of them in conflict"], [agreement(one.alpha, one.alpha_interval), "Krippendorff’s alpha"]].map(([value, label]) => h("div", { class: "tile" }, h("b", {}, value), h("span", {}, label)))),
    one.alpha === null ? h("p", { class: "soft" }, "Agreement needs items that two annotators judged: ask for two or more judgements per item.") : null,
    pairs.length ? h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Two annotators"), heading("Items in common", ""), heading("Cohen’s kappa", one.metric === "interval" ? "with quadratic weights" : "agreement beyond chance"))),
      h("tbody", {}, pairs.map((pair) => h("tr", {}, h("th", { scope: "row", class: "name" }, pair.annotators.join(" and ")), cell(pair.items), cell(agreement(pair.kappa, pair.interval))))))) : null);
}

function gap(one) {
  const chosen = one.kind === "preferences";
  const side = (i) => h("div", {}, h("h3", {}, chosen ? (i ? "Rejected" : "Chosen") : "Answer", h("span", { class: "soft" }, ` reward ${num(one.scores[i], 3)}`)), h("div", { class: "clip text", tabindex: "0", role: "group", "aria-label": chosen ? (i ? "Rejected" : "Chosen") : "Answer" }, one.responses[i]));
  const said = one.kind === "scores" ? `scored ${num(one.verdict, 3)}` : one.kind === "thumbs" ? (one.verdict > 0 ? "thumb up" : "thumb down") : "chose";
  return h("article", { class: "panel conflict" }, h("p", {}, h("b", {}, one.annotator ?? "unnamed"), ` ${said}; the reward says otherwise by ${num(one.gap, 2)} deviations.`, h("span", { class: "soft" }, ` ${one.run}, step ${one.step}`)),
    h("details", {}, h("summary", {}, "Prompt"), one.prompt.map((turn) => h("p", { class: "text" }, turn.role ? h("b", {}, `${turn.role}: `) : null, turn.text))),
    h("div", { class: "two" }, one.responses.map((_, i) => side(i))), one.note ? h("p", { class: "soft" }, `Note: ${one.note}`) : null);
}

function rewardPanel(reward) {
  if (!reward) {
    return h("section", { class: "panel" }, h("h2", {}, "Against the reward model"), h("p", {}, "No judged response has a logged score. A study of the responses of a logged step has them: make one on the page ", h("a", { href: "/studies?make=1" }, "Studies"), ". Or measure a reward model on the exported judgements:"),
      command("ppolm readiness REWARD_MODEL --data export.jsonl"));
  }
  return h("section", {}, h("h2", {}, "Against the reward model"), h("p", {}, reward.agrees === null ? null : `The logged scores agree with ${Math.round(100 * reward.agrees)} % of ${reward.comparisons} comparisons. `, `${reward.judgements} judgements have scores; those that disagree most:`),
    reward.most.length ? reward.most.map(gap) : h("p", { class: "soft" }, "None disagrees."));
}

async function load() {
  const found = await trying(() => get("/api/people", { study: view.study }));
  if (!found) { fill(main(), empty("The people cannot be shown", h("p", {}, h("a", { href: "/people" }, "All judgements")))); return; }
  const choice = h("select", { "aria-label": "Study" }, h("option", { value: "" }, "all judgements"), found.studies.map((study) => h("option", { value: study.id, selected: study.id === view.study }, study.name)));
  choice.addEventListener("change", () => { view.study = choice.value; writeView(view, DEFAULTS, true); load(); });
  const head = h("div", { class: "page-head" }, h("h1", {}, "People"), h("div", { class: "right" }, found.studies.length ? choice : null));
  if (!found.people.length && !found.unnamed) {
    fill(main(), head, empty("Nobody has judged yet", h("p", {}, "Here you will see who judged how much, how far people agree with each other and with themselves, and where the reward model says otherwise."),
      h("p", {}, h("a", { class: "button main", href: "/judge" }, "Judge"), " ", h("a", { class: "button", href: "/studies" }, "Studies"))));
    return;
  }
  fill(main(), head, peopleTable(found), h("div", { class: "people-kinds" }, Object.entries(found.kinds).map(([kind, one]) => kindPanel(kind, one))), rewardPanel(found.reward));
}

onBack(() => { view = readView(DEFAULTS); load(); });
await load();
