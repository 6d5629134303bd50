// Who judges, and who waits for it.
import { fill, h, main } from "./dom.js";
import { duration } from "./format.js";

const KEY = "ppolm-annotator";

export function knownName() {
  try { return localStorage.getItem(KEY) || null; } catch { return null; }
}

/** Ask the owner for the name that goes with their judgements; asked once, then remembered. */
export function askName(before) {
  return new Promise((resolve) => {
    const field = h("input", { type: "text", required: true, maxlength: "100", autocomplete: "nickname", value: before, id: "annotator-name" });
    const form = h("form", { class: "panel ask-name" }, h("h1", {}, "Who judges?"), h("p", { class: "soft" }, "Your name is stored with each judgement, so that agreement between people can be measured. It is asked once."),
      h("label", { for: "annotator-name" }, "Name"), field, h("button", { class: "main" }, "Begin"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const name = field.value.trim().replace(/\s+/g, " ");
      if (!name) return;
      try { localStorage.setItem(KEY, name); } catch { /* then it is asked again next time */ }
      resolve(name);
    });
    fill(main(), form);
    field.focus();
  });
}

/** A calm word about runs that stand still: to their owner which and for how long, to annotators only that there is one. */
export function waitBanner(waits, elsewhere, goThere) {
  if (!waits.waiting) return null;
  const go = elsewhere ? h("button", { type: "button", onclick: goThere }, "Judge for it") : null;
  if (!waits.runs) return h("div", { class: "note-bar" }, "A training run is waiting.", go);
  return waits.runs.slice(0, 3).map((one) => {
    const name = one.run === null ? "A run" : one.run;
    const step = one.step === null ? "" : `, step ${one.step},`;
    const many = one.left === 1 ? "1 response" : `${one.left} responses`;
    return h("div", { class: "note-bar" }, h("span", {}, h("b", {}, name), `${step} has waited ${duration(one.seconds)}; ${many} left to judge.`), go);
  });
}
