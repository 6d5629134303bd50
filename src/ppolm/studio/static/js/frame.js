// What every page has: the theme, and the list of keys.
import { h, fill } from "./dom.js";

const shortcuts = new Map([["?", "show these keys"], ["t", "light or dark"]]);

/** Tell the list of keys what a page does with some. */
export function explainKeys(...pairs) {
  for (const [key, what] of pairs) shortcuts.set(key, what);
}

const NOT_TYPED = new Set(["checkbox", "radio", "button", "submit", "range"]);

export function isTyping(event) {
  const { tagName, type, isContentEditable } = event.target;
  return (tagName === "INPUT" && !NOT_TYPED.has(type)) || tagName === "TEXTAREA" || tagName === "SELECT" || isContentEditable;
}

const maps = [];

/** Call handlers by key, unless somebody types text or holds a modifier. A page's own key goes before the frame's. */
export function onKeys(handlers) {
  maps.unshift(handlers);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event) || document.querySelector("dialog[open]")) return;
  const handler = maps.find((one) => Object.hasOwn(one, event.key))?.[event.key];
  if (handler && handler(event) !== false) event.preventDefault();
});

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function changeTheme() {
  const next = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem("theme", next); } catch { /* then it is not remembered */ }
  window.dispatchEvent(new Event("themechange"));
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => window.dispatchEvent(new Event("themechange")));

function showKeys() {
  if (document.querySelector("dialog.keys")) return;
  const dialog = h("dialog", { class: "keys", "aria-label": "Keys" }, h("h2", {}, "Keys"),
    h("table", {}, h("tbody", {}, [...shortcuts].map(([key, what]) => h("tr", {}, h("th", { scope: "row" }, h("kbd", {}, key)), h("td", {}, what))))),
    h("form", { method: "dialog" }, h("button", {}, "Close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

document.getElementById("theme-button").addEventListener("click", changeTheme);
document.getElementById("keys-button").addEventListener("click", showKeys);
onKeys({ "?": showKeys, t: changeTheme });
const main = document.getElementById("main");
window.addEventListener("error", () => {
  if (main.querySelector(".loading")) fill(main, h("p", { class: "empty" }, "This page could not be drawn. Load it again; the browser's console says more."));
});
