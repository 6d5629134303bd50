// Held-out samples: what the policy of each evaluation answered to prompts that no training saw. Texts and rewards, no token numbers.
import { get, trying } from "../api.js";
import { empty, fill, h } from "../dom.js";
import { num, signed } from "../format.js";

const PAGE = 50;

/** `on.change(changes, push)` with `at` (the evaluation's step), `sample` and `page`. */
export class HeldOut {
  constructor(address, on) {
    this.address = address;
    this.on = on;
    this.node = h("div", { class: "held-out" });
    this.turn = 0;
  }

  async show(view) {
    const turn = this.turn += 1;
    const found = await trying(() => get(this.address));
    if (!found || turn !== this.turn) return;
    const { steps } = found;
    if (!steps.length) {
      fill(this.node, empty("No held-out samples yet", "They are written at every evaluation (eval_every) on prompts that were held out. This run has had none so far."));
      return;
    }
    const at = steps.includes(view.at) ? view.at : steps.at(-1);
    const page = await trying(() => get(`${this.address}/${at}`, { offset: view.page * PAGE, limit: PAGE }));
    if (!page || turn !== this.turn) return;
    const known = page.rows.map((row) => row.number);
    const number = view.sample >= 0 ? view.sample : known[0];
    if (at !== view.at || number !== view.sample) this.on.change({ at, sample: number }, false);
    const sample = await trying(() => get(`${this.address}/${at}/${number}`));
    if (turn === this.turn) this.draw(view, steps, at, page, sample);
  }

  draw(view, steps, at, page, sample) {
    const list = h("ul", { class: "responses" }, page.rows.map((row) => h("li", {}, h("button", { type: "button", class: "response-row", "aria-current": row.number === sample?.number ? "true" : null, onclick: () => this.on.change({ sample: row.number }, true) },
      h("span", { class: "row-head numbers" }, h("b", {}, `#${row.number}`), h("span", { class: "right", title: "reward" }, num(row.reward, 3))), h("span", { class: "row-text" }, row.preview.trim() || "(nothing)")))));
    const pager = h("div", { class: "pager" }, `${page.offset + 1}–${page.offset + page.rows.length} of ${page.total}`,
      page.total > PAGE ? [h("button", { type: "button", class: "small", disabled: view.page === 0, "aria-label": "Previous page of samples", onclick: () => this.on.change({ page: view.page - 1, sample: -1 }, true) }, "‹"),
        h("button", { type: "button", class: "small", disabled: page.offset + page.rows.length >= page.total, "aria-label": "Next page of samples", onclick: () => this.on.change({ page: view.page + 1, sample: -1 }, true) }, "›")] : null);
    const slider = h("input", { type: "range", min: 0, max: steps.length - 1, step: 1, value: steps.indexOf(at), "aria-label": "Evaluation after step", "aria-valuetext": `step ${at}` });
    slider.addEventListener("change", () => this.on.change({ at: steps[Number(slider.value)] }, true));
    fill(this.node, h("aside", { class: "panel response-list", "aria-label": "Held-out samples" }, list, pager),
      h("section", { class: "panel" },
        h("div", { class: "over-steps" }, h("span", {}, `Evaluation after step ${at}`), steps.length > 1 ? slider : null, h("span", { class: "soft" }, `${steps.indexOf(at) + 1} of ${steps.length}`)),
        sample ? this.body(sample) : h("p", { class: "soft" }, "This evaluation has no such sample.")));
  }

  body(sample) {
    const first = sample.over[0];
    const rows = sample.over.map((one) => h("tr", { class: one.step === sample.step ? "here" : null }, h("th", { scope: "row" }, h("button", { type: "button", class: "link", onclick: () => this.on.change({ at: one.step }, true) }, `step ${one.step}`)),
      h("td", { class: "number" }, num(one.reward, 3)), h("td", { class: "number soft" }, one === first || one.reward === null || first.reward === null ? "" : signed(one.reward - first.reward))));
    return [h("div", { class: "prompt text" }, sample.prompt), h("div", { class: "answer text" }, sample.response || "(nothing)"),
      h("p", {}, "Reward ", h("b", { class: "numbers" }, num(sample.reward))),
      h("p", { class: "soft" }, "Held-out samples are stored as text with their reward; the numbers of tokens are stored for steps of training."),
      sample.over.length > 1 ? h("table", { class: "row-table over-table" }, h("caption", {}, "The same prompt in every evaluation"), h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "evaluation"), h("th", { scope: "col", class: "number" }, "reward"), h("th", { scope: "col", class: "number" }, "since the first"))), h("tbody", {}, rows)) : null];
  }
}
