// The whole row of a token: what it says, its id and bytes to copy, and the number of every column.
import { fill, h, say } from "../dom.js";
import { num } from "../format.js";
import { cellText, spacedHex } from "./cells.js";
import { colorOf } from "./colors.js";

export function copyButton(text, what) {
  return h("button", { type: "button", class: "copy small", title: `Copy ${what}`, "aria-label": `Copy ${what}`, onclick: async () => {
    try { await navigator.clipboard.writeText(text); say(`Copied: ${what}.`); }
    catch { say("The browser does not let this page copy. Select the text instead.", "error"); }
  } }, "Copy");
}

/** Draw the row of token `index` into `node`. `scales` are those of all columns; `changed` the columns of a "what if". */
export function drawDetail(node, response, index, scales, changed = null) {
  if (index < 0 || index >= response.texts.length) {
    fill(node, h("p", { class: "soft" }, "Point at a token, or walk with the arrow keys: its whole row stands here. A click or Enter explains its advantage."));
    return;
  }
  const bytes = response.bytes[index];
  const hex = bytes === null ? null : spacedHex(bytes);
  const special = response.special.includes(index);
  const number = (name, value) => [h("span", { class: "swatch", style: { backgroundColor: colorOf(scales[name], value) } }), num(value)];
  const columns = Object.entries(response.columns);
  const table = changed
    ? h("table", { class: "row-table" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "column"), h("th", { scope: "col", class: "number" }, "stored"), h("th", { scope: "col", class: "number" }, "what if"))),
      h("tbody", {}, columns.map(([name, values]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "number" }, number(name, values[index])), h("td", { class: "number" }, name in changed ? num(changed[name][index]) : h("span", { class: "soft" }, "the same"))))))
    : h("dl", { class: "row-grid" }, columns.map(([name, values]) => h("div", {}, h("dt", {}, name), h("dd", {}, num(values[index])))));
  fill(node,
    h("h3", { class: "token-title" }, h("code", { class: "text" }, cellText(response, index)), h("span", { class: "soft" }, `token ${index + 1} of ${response.length}`), special ? h("span", { class: "badge" }, "special") : null),
    h("p", { class: "token-codes" }, h("span", {}, h("span", { class: "soft" }, "id "), h("code", {}, response.ids[index]), " ", copyButton(String(response.ids[index]), "the token's id")),
      hex === null ? h("span", { class: "soft" }, "bytes not known: the run's tokenizer is not here")
        : h("span", { title: hex }, h("span", { class: "soft" }, "bytes "), h("code", {}, hex.length > 30 ? `${hex.slice(0, 29)}…` : hex || "none"), " ", copyButton(bytes, "the token's bytes"))),
    table);
}
