// Texts in pieces, each coloured by a number that is one hover, or one arrow key, away.
import { fill, h } from "../dom.js";
import { num, signed } from "../format.js";
import { colorOf, scaleOf } from "../tokens/colors.js";
import { Cells, cellText } from "../tokens/cells.js";

const USUAL = 0.96;

/** A scale around zero that several texts share, so that their colours mean the same. Single outliers do not stretch it. */
export function sharedScale(title, ...columns) {
  const known = columns.flat().filter((value) => value !== null && value !== undefined).map(Math.abs).sort((x, y) => x - y);
  const most = known.at(-1) ?? 0;
  const end = known.length >= 10 ? known[Math.ceil(USUAL * known.length) - 1] || most : most;
  return scaleOf(title, { diverging: true, low: -end, high: end, min: -most, max: most }, title);
}

export function scaleBar(scale, below, above) {
  const stops = Array.from({ length: 21 }, (_, i) => colorOf(scale, scale.from + ((scale.to - scale.from) * i) / 20));
  const { min, max } = scale.range;
  const beyond = `The largest is ${num(Math.max(Math.abs(min), Math.abs(max)), 3)}`;
  return h("div", { class: "scale", title: max > scale.to ? beyond : null }, h("span", {}, below), h("span", { class: "numbers" }, min < scale.from ? "≤ " : "", num(scale.from, 3)),
    h("span", { class: "scale-bar", role: "img", "aria-label": `Colours from ${num(scale.from, 3)} to ${num(scale.to, 3)}`, style: { background: `linear-gradient(to right, ${stops.join(",")})` } }),
    h("span", { class: "numbers" }, max > scale.to ? "≥ " : "", num(scale.to, 3)), h("span", {}, above));
}

/** A response in cells. `columns`: [[title, values]], all of which the line below shows for the cell that is looked at. */
export class Colored {
  constructor(pieces, bytes, special, label, columns) {
    this.columns = columns;
    this.response = { texts: pieces, bytes, special };
    this.detail = h("div", { class: "detail numbers", "aria-live": "polite" });
    this.cells = new Cells(this.response, label, {
      hover: (index) => { this.cells.hover(index); this.show(index ?? this.cells.chosen); },
      choose: (index) => { this.cells.choose(index); this.show(index); },
      open: (index) => { this.cells.choose(index); this.show(index); this.cells.node.focus(); },
    });
    this.node = h("div", { class: "colored" }, this.cells.node, this.detail);
    this.show(-1);
  }

  color(scale, values) {
    this.cells.color(scale, values);
  }

  show(index) {
    if (index < 0 || index >= this.response.texts.length) {
      fill(this.detail, h("span", { class: "soft" }, "Point at a piece, or press Tab and the arrow keys, to see its numbers."));
      return;
    }
    fill(this.detail, h("b", { class: "mono" }, cellText(this.response, index)),
      this.columns.map(([title, values]) => h("span", {}, h("span", { class: "soft" }, `${title} `), signed(values[index] ?? null, 4))));
  }
}
