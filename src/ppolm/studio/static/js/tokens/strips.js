// Small charts along the tokens, with a cursor that is linked to the text.
import { h } from "../dom.js";
import { num } from "../format.js";

const WIDTH = 1000;
const HEIGHT = 44;
const STRIPS = [
  { name: "reward", bars: true }, { name: "kl", bars: true },
  { name: "value", second: true }, { name: "advantage", bars: true },
];
const SHOWN = 2000;

/** The charts of a response, `changed` (columns of a "what if") dashed beside them. `on.hover(index or null)`, `on.open(index)`. */
export class Strips {
  constructor(columns, target, changed, on) {
    this.length = Object.values(columns)[0]?.length ?? 0;
    this.on = on;
    this.strips = STRIPS.filter((one) => columns[one.name]).map((one) => this.strip(one, columns, target, changed));
    this.node = h("div", { class: "strips" }, this.strips.map((one) => one.node));
    this.node.addEventListener("pointermove", (event) => { const index = this.indexAt(event); if (index !== null) on.hover(index); });
    this.node.addEventListener("pointerleave", () => on.hover(null));
    this.node.addEventListener("click", (event) => { const index = this.indexAt(event); if (index !== null) on.open(index); });
  }

  strip({ name, bars, second }, columns, target, changed) {
    const other = (second ? columns[target] : changed?.[name]) ?? null;
    const known = [...columns[name], ...(other ?? [])].filter((value) => value !== null);
    const low = Math.min(0, ...bounds(known));
    const high = Math.max(0, ...bounds(known));
    const y = (value) => HEIGHT - 2 - ((value - low) / (high - low || 1)) * (HEIGHT - 4);
    const cursor = h("line", { class: "cursor", x1: -9, x2: -9, y1: 0, y2: HEIGHT });
    const value = h("span", { class: "numbers" });
    const drawing = h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      h("line", { class: "zero", x1: 0, x2: WIDTH, y1: y(0), y2: y(0) }),
      other ? h("path", { class: "other", d: this.path(other, y) }) : null,
      h("path", { class: bars ? (this.length > 250 ? "bars dense" : "bars") : "line", d: bars ? this.bars(columns[name], y) : this.path(columns[name], y) }), cursor);
    const title = other ? [name, h("span", { class: "soft" }, second ? ` and ${target.replaceAll("_", " ")}` : ", what if")] : name;
    const node = h("div", { class: "strip" }, h("div", { class: "strip-name" }, h("span", {}, title), value), drawing,
      h("div", { class: "strip-range numbers" }, h("span", {}, num(high, 3)), h("span", {}, num(low, 3))));
    return { node, cursor, drawing, value, values: columns[name] };
  }

  /** A line; of a very long response every so many tokens, as no screen has more points. */
  path(values, y) {
    const stride = Math.ceil(values.length / SHOWN);
    let text = "";
    let pen = "M";
    for (let i = 0; i < values.length; i += stride) {
      if (values[i] === null) { pen = "M"; continue; }
      text += `${pen}${this.x(i).toFixed(1)} ${y(values[i]).toFixed(1)}`;
      if (pen === "M") text += "h.01"; // a point alone is seen, too
      pen = "L";
    }
    return text;
  }

  bars(values, y) {
    const zero = y(0).toFixed(1);
    return values.map((value, i) => (value ? `M${this.x(i).toFixed(1)} ${zero}V${y(value).toFixed(1)}` : "")).join("");
  }

  x(index) {
    return ((index + 0.5) / Math.max(1, this.length)) * WIDTH;
  }

  indexAt(event) {
    const box = event.target.closest(".strip")?.querySelector("svg").getBoundingClientRect();
    if (!box || event.clientX < box.left || event.clientX > box.right) return null;
    return Math.min(this.length - 1, Math.floor(((event.clientX - box.left) / box.width) * this.length));
  }

  point(index) {
    for (const { cursor, value, values } of this.strips) {
      const x = index >= 0 ? this.x(index) : -9;
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      value.textContent = index >= 0 ? num(values[index], 3) : "";
    }
  }
}

function bounds(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
  return values.length ? [low, high] : [0];
}
