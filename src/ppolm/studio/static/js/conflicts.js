// Items on which annotators differ, with what each of them said. Who wrote which answer stays hidden here too.
import { get, post, trying } from "./api.js";
import { empty, fill, h } from "./dom.js";

const WORDS = { first: "first", second: "second", tie: "tie", both_bad: "both bad", up: "good", down: "bad" };
const AGAIN = { 1: "asked again, sides swapped", 2: "second look" };

function verdict(one) {
  return h("li", {}, h("b", {}, one.annotator ?? "unnamed"), ": ", typeof one.said === "number" ? `score ${one.said}` : WORDS[one.said],
    one.repetition ? h("span", { class: "badge" }, AGAIN[one.repetition]) : null, one.note ? h("span", { class: "soft" }, ` “${one.note}”`) : null);
}

function conflict(one) {
  const names = one.sides.length === 2 ? ["First answer", "Second answer"] : ["Answer"];
  const prompt = one.prompt.map((turn) => h("p", { class: "text" }, turn.role ? h("b", {}, `${turn.role}: `) : null, turn.text));
  return h("article", { class: "panel conflict" }, h("h3", {}, "Prompt"), h("div", { class: "clip", tabindex: "0", role: "group", "aria-label": "Prompt" }, prompt),
    h("div", { class: "two" }, one.sides.map((text, i) => h("div", {}, h("h3", {}, names[i]), h("div", { class: "clip text", tabindex: "0", role: "group", "aria-label": names[i] }, text || h("span", { class: "soft" }, "(empty)"))))),
    h("ul", { class: "said" }, one.verdicts.map(verdict)));
}

/** The conflicts of a study; `go` opens another page of them, `back` the list of studies. */
export async function drawConflicts(node, study, offset, go, back) {
  const found = await trying(() => get("/api/studies/conflicts", { study, offset }));
  if (!found) { fill(node, empty("These conflicts cannot be shown", h("p", {}, h("a", { href: "/studies" }, "All studies")))); return; }
  const box = h("input", { type: "checkbox", checked: found.study.second_look });
  box.addEventListener("change", async () => { if (!(await trying(() => post("/api/studies/second-look", { study, wanted: box.checked })))) box.checked = !box.checked; });
  const pages = h("div", { class: "together" }, offset > 0 ? h("button", { type: "button", onclick: () => go(Math.max(0, offset - 10)) }, "Before") : null,
    offset + found.conflicts.length < found.disputed ? h("button", { type: "button", onclick: () => go(offset + 10) }, "More") : null);
  fill(node, h("div", { class: "page-head" }, h("button", { type: "button", onclick: back }, "← Studies"), h("h1", {}, found.study.name), h("span", { class: "soft" }, `${found.disputed} of ${found.items} items: annotators differ`),
    h("div", { class: "right" }, h("label", {}, box, "Second look: ask annotators again, at the end"), h("a", { class: "button", href: `/judge?study=${encodeURIComponent(found.study.id)}` }, "Judge"))),
  h("p", { class: "soft" }, `What was said first stays; a second look is stored beside it. ${found.looked_at ? `So far ${found.looked_at} of them.` : ""}`),
  found.conflicts.length ? found.conflicts.map(conflict) : empty("Nobody differs", h("p", {}, "An item appears here when two annotators say different things of it. It needs studies with two or more judgements per item.")), pages);
}
