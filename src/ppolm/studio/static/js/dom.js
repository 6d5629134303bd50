// Building pages. Text goes in as text, never as HTML: a response may hold anything.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "line", "rect", "circle", "g", "text", "title", "polyline"]);

/** An element. Properties: `class`, `onclick` and other handlers, `style` as an object, attributes by name.
 *  Children: elements, texts, numbers, arrays of these; null, undefined and false are left out. */
export function h(tag, properties = {}, ...children) {
  const node = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on") && typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(node.style, value);
    else if (name === "dataset") Object.assign(node.dataset, value);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "selected") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...flat(children));
  return node;
}

function flat(children) {
  return children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false)
    .map((one) => (one instanceof Node ? one : visible(String(one))));
}

/** Put new children in the place of the old ones. */
export function fill(node, ...children) {
  node.replaceChildren(...flat(children));
  return node;
}

const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\u061c\ufeff]/g;

/** Text in which control characters and marks that turn its direction show as their code, such as ␛ or ⟨202E⟩. */
export function visible(text) {
  return text.replace(CONTROL, (mark) => {
    const code = mark.codePointAt(0);
    if (code < 32) return String.fromCodePoint(0x2400 + code);
    if (code === 127) return "\u2421";
    return `⟨${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

export const main = () => document.getElementById("main");

/** What to show where there is nothing yet: what it would be, and what to do next. */
export function empty(title, ...next) {
  return h("section", { class: "empty" }, h("h2", {}, title), ...next.map((one) => (one instanceof Node ? one : h("p", {}, one))));
}

/** A box that scrolls when its content is too wide or long, and can be scrolled with the keyboard, too. */
export function scroller(label, child, extra = "") {
  return h("div", { class: `scroll ${extra}`.trim(), tabindex: "0", role: "region", "aria-label": label }, child);
}

/** A command that can be copied with a click. */
export function command(text) {
  const button = h("button", { type: "button", class: "copy", title: "Copy" }, "Copy");
  button.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; }
    catch { button.textContent = "Select and copy"; }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return h("div", { class: "command" }, h("code", {}, text), button);
}

/** A short message at the foot of the page; errors stay until they are closed. */
export function say(text, kind = "note") {
  const note = h("div", { class: `message ${kind}` }, h("span", {}, text),
    h("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: () => note.remove() }, "×"));
  document.getElementById("messages").append(note);
  if (kind !== "error") setTimeout(() => note.remove(), 4000);
}
