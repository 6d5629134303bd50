// The responses of a step, a page at a time: found, filtered, sorted.
import { get, trying } from "../api.js";
import { fill, h } from "../dom.js";
import { num } from "../format.js";

const PAGE = 50;
const SORTS = [
  ["sequence", "in order"], ["score", "score"], ["kl", "KL"], ["length", "length"], ["abs_advantage", "mean |advantage|"],
  ["value_error", "value error"], ["reward", "reward"], ["prompt", "prompt"],
];

function options(pairs) {
  return pairs.map(([value, text]) => h("option", { value }, text));
}

/** `on.change(changes)` for other filters, `on.page(page)` for the page on which the response was found, `on.open(sequence, step)` for a response. */
export class ResponseList {
  constructor(on) {
    this.on = on;
    this.find = h("input", { type: "search", placeholder: "Find in texts and prompts", "aria-label": "Find in texts and prompts", maxlength: 200 });
    this.ended = h("select", { "aria-label": "Ended or not" }, options([["all", "all"], ["yes", "ended"], ["no", "not ended"]]));
    this.sort = h("select", { "aria-label": "Sort by" }, options(SORTS));
    this.order = h("button", { type: "button", "aria-label": "Direction of the order" });
    this.prompt = h("button", { type: "button", class: "chip hidden", onclick: () => on.change({ prompt: -1, page: 0 }) });
    this.rows = h("ul", { class: "responses" });
    this.foot = h("div", { class: "pager" });
    this.node = h("aside", { class: "panel response-list", "aria-label": "Responses" },
      this.find, h("div", { class: "filters" }, this.ended, this.sort, this.order), this.prompt, this.rows, this.foot);
    let timer = null;
    this.find.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => on.change({ find: this.find.value, page: 0 }), 200); });
    this.ended.addEventListener("change", () => on.change({ ended: this.ended.value, page: 0 }));
    this.sort.addEventListener("change", () => on.change({ sort: this.sort.value, order: this.sort.value === "sequence" || this.sort.value === "prompt" ? "up" : "down", page: 0 }));
    this.order.addEventListener("click", () => on.change({ order: this.order.dataset.order === "up" ? "down" : "up", page: 0 }));
    this.shown = "";
    this.found = null;
  }

  /** Show what a view asks for; what is there already is not asked for again. Resolves to the rows. */
  async show(address, view) {
    const parameters = {
      sort: view.sort, order: view.order, ended: view.ended, find: view.find, prompt: view.prompt < 0 ? null : view.prompt, limit: PAGE,
      ...(view.page < 0 ? { around: Math.max(0, view.response) } : { offset: view.page * PAGE }), // without a page: the one with the response
    };
    this.reflect(view);
    const key = this.keyOf(address, parameters);
    if (key !== this.shown) {
      this.shown = key;
      const found = await trying(() => get(`${address}/responses`, parameters));
      if (this.shown !== key) return null;
      if (!found) { this.shown = ""; return null; }
      this.found = found;
      if (view.page < 0) {
        this.on.page(found.offset / PAGE);
        this.shown = this.keyOf(address, { ...parameters, offset: found.offset, around: undefined });
      }
      this.draw({ ...view, page: found.offset / PAGE });
    }
    this.mark(view.response);
    return this.found;
  }

  /** The same for the same list, in whatever order its parameters are named. */
  keyOf(address, parameters) {
    return JSON.stringify([address, ...Object.entries(parameters).filter(([, value]) => value !== undefined).sort()]);
  }

  hasPage(page) {
    return page >= 0 && page * PAGE < (this.found?.total ?? 0);
  }

  reflect(view) {
    if (document.activeElement !== this.find) this.find.value = view.find;
    this.ended.value = view.ended;
    this.sort.value = view.sort;
    this.order.dataset.order = view.order;
    this.order.textContent = view.order === "up" ? "↑" : "↓";
    this.order.title = view.order === "up" ? "Lowest first" : "Highest first";
    this.prompt.classList.toggle("hidden", view.prompt < 0);
    this.prompt.textContent = `only prompt ${view.prompt} ×`;
  }

  draw(view) {
    const { rows, total, offset } = this.found;
    const about = view.sort === "sequence" || view.sort === "prompt" || view.sort === "length" ? "score" : view.sort;
    fill(this.rows, rows.map((row) => h("li", {}, h("button", { type: "button", class: "response-row", dataset: { sequence: row.sequence }, onclick: () => this.on.open(row.sequence, view.step) },
      h("span", { class: "row-head numbers" }, h("b", {}, `#${row.sequence}`), h("span", { class: "soft row-about" }, `prompt ${row.prompt} · ${row.length} tok${row.ended ? "" : " · cut off"}`),
        h("span", { class: "right", title: about }, num(row[about], 3))),
      h("span", { class: "row-text" }, row.preview.trim() || "(nothing)")))));
    if (!rows.length) fill(this.rows, h("li", { class: "soft" }, "No response is like that. ", h("button", { type: "button", class: "link", onclick: () => this.on.change({ find: "", ended: "all", prompt: -1, page: 0 }) }, "Show all")));
    fill(this.foot, total ? `${offset + 1}–${offset + rows.length} of ${total}` : "",
      total > PAGE ? [h("button", { type: "button", class: "small", disabled: view.page === 0, "aria-label": "Previous page of responses", onclick: () => this.on.change({ page: view.page - 1 }) }, "‹"),
        h("button", { type: "button", class: "small", disabled: offset + rows.length >= total, "aria-label": "Next page of responses", onclick: () => this.on.change({ page: view.page + 1 }) }, "›")] : null);
  }

  mark(sequence) {
    for (const row of this.rows.querySelectorAll(".response-row")) {
      const here = Number(row.dataset.sequence) === sequence;
      if (here) { row.setAttribute("aria-current", "true"); row.scrollIntoView({ block: "nearest" }); }
      else row.removeAttribute("aria-current");
    }
  }

  /** The response after or before one, in the order of the list. */
  next(sequence, direction) {
    const numbers = this.found?.rows.map((row) => row.sequence) ?? [];
    const at = numbers.indexOf(sequence);
    return at < 0 ? numbers[0] : numbers[at + direction];
  }
}
