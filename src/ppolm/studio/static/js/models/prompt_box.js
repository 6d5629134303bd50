// A prompt: text, or the messages of a chat; typed, or picked from those that a run held out.
import { fill, h } from "../dom.js";
import { onSubmit } from "./waiting.js";

const ROLES = ["user", "assistant", "system"];
const SHOWN = 90;

/** The beginning of a prompt, on one line. */
export function beginning(content) {
  const text = typeof content === "string" ? content : content.map((one) => one.content).join(" ");
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > SHOWN ? `${line.slice(0, SHOWN)}…` : line;
}

/** `on.change()` after typing, `on.pick(number)` after a choice from the list, `on.submit()` for Ctrl+Enter. */
export class PromptBox {
  constructor(on) {
    this.on = on;
    this.content = "";
    this.fields = h("div", { class: "prompt-fields" });
    this.picker = h("select", { "aria-label": "Held-out prompts" });
    this.picker.addEventListener("change", () => { if (this.picker.value !== "") on.pick(Number(this.picker.value)); });
    this.chat = h("input", { type: "checkbox" });
    this.chat.addEventListener("change", () => { this.asChat(this.chat.checked); on.change(); });
    this.node = h("div", {},
      h("div", { class: "line" }, h("h2", {}, "Prompt"), h("div", { class: "right" }, this.picker, h("label", { title: "Write messages of a chat instead of one text" }, this.chat, "chat"))),
      this.fields);
  }

  /** Prompts to pick from. */
  offer(prompts, total) {
    this.picker.classList.toggle("hidden", !prompts.length);
    const more = total > prompts.length ? ` (${prompts.length} of ${total})` : "";
    fill(this.picker, h("option", { value: "" }, `Held-out prompts${more} …`), prompts.map((one, i) => h("option", { value: String(i) }, `${i + 1}. ${beginning(one)}`)));
  }

  picked(number) { this.picker.value = number === null ? "" : String(number); }

  set(content) {
    this.content = content;
    this.chat.checked = typeof content !== "string";
    this.draw();
  }

  asChat(chat) {
    if (chat && typeof this.content === "string") this.content = [{ role: "user", content: this.content }];
    else if (!chat && typeof this.content !== "string") this.content = this.content.map((one) => one.content).join("\n\n");
    this.draw();
  }

  draw() {
    if (typeof this.content === "string") {
      fill(this.fields, this.field(this.content, "Prompt", 8, (text) => { this.content = text; }));
      return;
    }
    fill(this.fields, this.content.map((message, i) => this.message(message, i)),
      h("button", { type: "button", onclick: () => { this.content = [...this.content, { role: "user", content: "" }]; this.draw(); this.on.change(); } }, "Add a message"));
  }

  message(message, number) {
    const roles = ROLES.includes(message.role) ? ROLES : [...ROLES, message.role];
    const role = h("select", { "aria-label": `Who says message ${number + 1}` }, roles.map((one) => h("option", { value: one, selected: one === message.role }, one)));
    role.addEventListener("change", () => { message.role = role.value; this.on.change(); });
    const remove = h("button", { type: "button", class: "quiet", "aria-label": `Remove message ${number + 1}`, disabled: this.content.length < 2,
      onclick: () => { this.content = this.content.filter((_, i) => i !== number); this.draw(); this.on.change(); } }, "×");
    return h("div", { class: "message-row" }, h("div", { class: "line" }, role, remove), this.field(message.content, `Message ${number + 1}`, 3, (text) => { message.content = text; }));
  }

  field(text, label, rows, take) {
    const area = h("textarea", { "aria-label": label, rows, spellcheck: "false", value: text });
    area.addEventListener("input", () => { take(area.value); this.on.change(); });
    onSubmit(area, () => this.on.submit());
    return area;
  }

  focus() { this.fields.querySelector("textarea")?.focus(); }
}
