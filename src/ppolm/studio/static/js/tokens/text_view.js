// The middle of the page: the prompt, the response in one or two colourings, and the small charts under it.
import { fill, h } from "../dom.js";
import { num } from "../format.js";
import { isDark } from "../frame.js";
import { Cells } from "./cells.js";
import { legend } from "./colors.js";
import { Strips } from "./strips.js";

/** `on`: hover(index or null), choose(index), open(index), sample(sequence), only(prompt), step(step, prompt). */
export class TextView {
  constructor(on) {
    this.on = on;
    this.node = h("section", { class: "panel text-view" });
    this.head = h("div", { class: "text-head" });
    this.prompt = h("div", { class: "prompt text", tabindex: "0", role: "region", "aria-label": "Prompt" });
    this.panes = h("div", { class: "panes" });
    this.charts = h("div", {});
    this.over = h("div", { class: "over-steps" });
    this.cells = [];
    this.strips = null;
    this.response = null;
    fill(this.node, this.head, this.prompt, this.panes, this.charts, this.over);
  }

  /** A response; `scales` is a list of {scale, values}: one pane for each. */
  show(response, scales, target, score, changed) {
    const other = this.response !== response;
    this.response = response;
    if (other || this.changed !== changed) {
      this.changed = changed;
      this.strips = new Strips(response.columns, target, changed, this.on);
      fill(this.charts, this.strips.node);
    }
    if (other) {
      fill(this.prompt, response.prompt_text || h("span", { class: "soft" }, "The prompt was not stored."));
      this.drawHead(score);
    }
    if (other || this.cells.length !== scales.length) {
      const focused = this.cells.some((one) => one.node === document.activeElement);
      this.cells = scales.map((_, i) => new Cells(response, i ? "Response, second colouring" : "Response", this.on));
      fill(this.panes, this.cells.map((one) => h("div", { class: "pane" }, h("div", { class: "pane-legend" }), one.node)));
      this.panes.classList.toggle("double", scales.length > 1);
      if (focused) this.cells[0].node.focus({ preventScroll: true });
    }
    scales.forEach(({ scale, values }, i) => {
      const key = JSON.stringify([scale, isDark()]);
      if (this.cells[i].colored?.key === key && this.cells[i].colored.values === values) return; // a walk through the tokens changes no colour
      this.cells[i].colored = { key, values };
      fill(this.panes.children[i].querySelector(".pane-legend"), legend(scale));
      this.cells[i].color(scale, values);
    });
  }

  drawHead(score) {
    const { response } = this;
    const at = response.samples.indexOf(response.sequence);
    const many = response.samples.length;
    const step = (by) => this.on.sample(response.samples[(at + by + many) % many]);
    fill(this.head, h("h2", {}, `Response ${response.sequence}`),
      h("span", { class: "soft numbers" }, h("button", { type: "button", class: "link", title: "List only the responses to this prompt", onclick: () => this.on.only(response.prompt) }, `prompt ${response.prompt}`), ` · ${response.length} tokens · `, response.ended ? "ended" : h("span", { class: "badge warn" }, "not ended"), score === null ? "" : ` · score ${num(score, 3)}`),
      response.length > response.ids.length ? h("span", { class: "badge warn" }, `only the first ${response.ids.length} are shown`) : null,
      many > 1 ? h("span", { class: "right" }, h("button", { type: "button", class: "small", title: "Previous sample of this prompt", "aria-label": "Previous sample of this prompt", onclick: () => step(-1) }, "‹"),
        h("span", { class: "soft numbers" }, ` sample ${at + 1} of ${many} `), h("button", { type: "button", class: "small", title: "Next sample of this prompt", "aria-label": "Next sample of this prompt", onclick: () => step(1) }, "›")) : null);
  }

  /** The same prompt in other steps, with a slider over them. */
  showSteps(steps, here) {
    if (steps.length < 2) { fill(this.over, h("span", { class: "soft" }, "This prompt was answered in this stored step alone.")); return; }
    const at = steps.findIndex((one) => one.step === here);
    const said = h("output", { class: "numbers" }, `step ${here}`);
    const slider = h("input", { type: "range", min: 0, max: steps.length - 1, step: 1, value: at, "aria-label": "This prompt in other steps", "aria-valuetext": `step ${here}` });
    slider.addEventListener("input", () => { said.textContent = `step ${steps[Number(slider.value)].step}`; });
    slider.addEventListener("change", () => { const one = steps[Number(slider.value)]; this.on.step(one.step, one.prompt); });
    fill(this.over, h("span", {}, `This prompt was answered in ${steps.length} stored steps:`), slider, said);
  }

  choose(index, scroll = true) {
    this.cells.forEach((one, i) => one.choose(index, scroll && i === 0));
    this.strips?.point(index);
  }

  hover(index, chosen) {
    this.cells.forEach((one) => one.hover(index));
    this.strips?.point(index ?? chosen);
  }

  focus() {
    this.cells[0]?.node.focus({ preventScroll: true });
  }
}

/** All samples of a prompt side by side, in the same colours. */
export function drawSamples(node, responses, total, coloring, current, hover, open) {
  const { scale } = coloring(responses[0]);
  fill(node, total > responses.length ? h("p", { class: "soft" }, `The first ${responses.length} of ${total} samples.`) : null, h("div", { class: "prompt text", tabindex: "0", role: "region", "aria-label": "Prompt" }, responses[0]?.prompt_text ?? ""), h("div", { class: "pane-legend" }, legend(scale)),
    h("div", { class: "samples" }, responses.map((response) => {
      const cells = new Cells(response, `Response ${response.sequence}`, { hover: (index) => { cells.hover(index); hover(response, index); }, choose: (index) => { cells.choose(index); hover(response, index); }, open: (index) => open(response.sequence, index) });
      cells.color(scale, coloring(response).values);
      const score = (response.columns.score ?? []).reduce((sum, one) => sum + (one ?? 0), 0);
      return h("section", { class: response.sequence === current ? "sample here" : "sample" },
        h("div", { class: "text-head" }, h("button", { type: "button", class: "link", onclick: () => open(response.sequence, -1) }, `#${response.sequence}`), h("span", { class: "soft numbers" }, `${response.length} tok${response.ended ? "" : " · cut off"} · score ${num(score, 3)}`)), cells.node);
    })));
}
