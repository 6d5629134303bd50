// A response as text: one cell per token, coloured by a column, walked through with the arrow keys.
import { h, visible } from "../dom.js";
import { num } from "../format.js";
import { colorOf } from "./colors.js";

const LONGEST = 200;

/** What a cell shows: the token's text, or its bytes where it is only a part of a character. */
export function cellText(response, index) {
  const text = response.texts[index];
  const bytes = response.bytes[index];
  if ((text === "" || text.includes("\ufffd")) && bytes) return `⟨${spacedHex(bytes)}⟩`;
  if (text === "") return "⟨⟩";
  const marked = visible(text.replaceAll("\n", "⏎").replaceAll("\t", "⇥"));
  return marked.length > LONGEST ? `${marked.slice(0, LONGEST)}…` : marked;
}

export function spacedHex(bytes) {
  return (bytes ?? "").toUpperCase().replace(/(..)(?=.)/g, "$1 ");
}

/** The cells of a response. `on.hover(index or null)`, `on.choose(index)`, `on.open(index)`. */
export class Cells {
  constructor(response, label, on) {
    this.response = response;
    this.on = on;
    this.chosen = -1;
    this.key = `cell-${Cells.count += 1}`;
    const special = new Set(response.special);
    this.cells = response.texts.map((text, index) => {
      const cell = h("span", { class: special.has(index) ? "token special" : "token", role: "option", "aria-selected": "false", id: `${this.key}-${index}` }, cellText(response, index));
      cell.dataset.index = index;
      return cell;
    });
    const children = [];
    this.cells.forEach((cell, index) => {
      children.push(cell);
      const breaks = Math.min(3, response.texts[index].split("\n").length - 1);
      for (let i = 0; i < breaks; i += 1) children.push(document.createElement("br"));
    });
    this.node = h("div", { class: "cells", role: "listbox", tabindex: "0", "aria-label": label }, children);
    this.node.addEventListener("pointerover", (event) => { const index = this.indexAt(event); if (index !== null) on.hover(index); });
    this.node.addEventListener("pointerleave", () => on.hover(null));
    this.node.addEventListener("click", (event) => { const index = this.indexAt(event); if (index !== null) on.open(index); });
    this.node.addEventListener("keydown", (event) => this.pressed(event));
  }

  indexAt(event) {
    const cell = event.target.closest(".token");
    return cell ? Number(cell.dataset.index) : null;
  }

  /** Colour every cell; a number that is missing is hatched. */
  color(scale, values) {
    this.cells.forEach((cell, index) => {
      const value = values?.[index] ?? null;
      cell.style.backgroundColor = scale ? colorOf(scale, value) : "";
      cell.classList.toggle("gap", Boolean(scale) && value === null);
      const number = scale ? `${scale.title} ${num(value)}` : "";
      cell.title = number;
      cell.setAttribute("aria-label", `${this.response.texts[index].trim() || "token"}, ${number}`);
    });
  }

  choose(index, scroll = true) {
    if (this.chosen >= 0) this.mark(this.chosen, false);
    this.chosen = index >= 0 && index < this.cells.length ? index : -1;
    if (this.chosen < 0) { this.node.removeAttribute("aria-activedescendant"); return; }
    this.mark(this.chosen, true);
    this.node.setAttribute("aria-activedescendant", `${this.key}-${this.chosen}`);
    if (scroll) this.cells[this.chosen].scrollIntoView({ block: "nearest" });
  }

  mark(index, on) {
    this.cells[index].classList.toggle("chosen", on);
    this.cells[index].setAttribute("aria-selected", String(on));
  }

  hover(index) {
    if (this.hovered >= 0) this.cells[this.hovered]?.classList.remove("hovered");
    this.hovered = index ?? -1;
    if (this.hovered >= 0) this.cells[this.hovered]?.classList.add("hovered");
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const last = this.cells.length - 1;
    const moves = {
      ArrowRight: () => Math.min(last, this.chosen + 1), ArrowLeft: () => Math.max(0, this.chosen - 1),
      ArrowDown: () => this.line(1), ArrowUp: () => this.line(-1), Home: () => 0, End: () => last,
    };
    if (event.key in moves) this.on.choose(moves[event.key]());
    else if (event.key === "Enter" || event.key === " ") { if (this.chosen >= 0) this.on.open(this.chosen); }
    else return;
    event.preventDefault();
  }

  /** The cell nearest in the line above or below. */
  line(direction) {
    if (this.chosen < 0) return 0;
    const here = this.cells[this.chosen].getBoundingClientRect();
    const middle = here.left + here.width / 2;
    let best = this.chosen;
    let top = null;
    let distance = Infinity;
    for (let i = this.chosen + direction; i >= 0 && i < this.cells.length; i += direction) {
      const box = this.cells[i].getBoundingClientRect();
      if (Math.abs(box.top - here.top) < 3) continue;
      if (top === null) top = box.top;
      if (Math.abs(box.top - top) > 3) break;
      const away = Math.abs(box.left + box.width / 2 - middle);
      if (away < distance) { distance = away; best = i; }
    }
    return best;
  }
}
Cells.count = 0;
