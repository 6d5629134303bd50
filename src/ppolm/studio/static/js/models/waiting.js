// Asking a model: it may have to be loaded first, so what happens is said, and it can be cancelled.
import { get, post, trying } from "../api.js";
import { fill, h, say } from "../dom.js";

/** A bar that shows what a model does, with a button to cancel. `ask(path, body)` gives the answer, or null if cancelled. */
export class Waiting {
  constructor() {
    this.node = h("div", { class: "waiting hidden", role: "status", "aria-live": "polite" });
    this.request = null;
  }

  get busy() { return this.request !== null; }

  async ask(path, body) {
    this.cancel();
    const request = new AbortController();
    this.request = request;
    const began = Date.now();
    let doing = "Asking the model";
    const text = h("span", {});
    const seconds = h("span", { class: "numbers soft" });
    const show = () => { text.textContent = `${doing} …`; seconds.textContent = `${Math.round((Date.now() - began) / 1000)} s`; };
    fill(this.node, h("span", { class: "spinner", "aria-hidden": "true" }), text, seconds,
      h("button", { type: "button", onclick: () => this.cancel() }, "Cancel ", h("kbd", {}, "Esc")));
    this.node.classList.remove("hidden");
    show();
    const timer = setInterval(async () => {
      show();
      try {
        const { models } = await get("/api/models");
        if (models.some((model) => model.working && !model.about)) doing = "Loading the model, in a process of its own";
        else if (models.some((model) => model.working)) doing = "The model computes";
      } catch { /* the request itself will say what is wrong */ }
    }, 1000);
    try { return await post(path, body, { signal: request.signal }); }
    catch (error) {
      if (error.name === "AbortError") return null;
      throw error;
    } finally {
      clearInterval(timer);
      if (this.request === request) { this.request = null; this.node.classList.add("hidden"); }
    }
  }

  cancel() {
    this.request?.abort();
  }
}

/** Esc cancels what is asked; without anything to cancel it leaves the text field, so that single keys work again. */
export function escapes(waiting) {
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
    if (waiting.busy) waiting.cancel();
    else document.activeElement?.blur();
  });
}

/** Ctrl+Enter (or Cmd+Enter) in a text field does what the main button does. */
export function onSubmit(node, work) {
  node.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); work(); }
  });
}

/** A button that gives the memory back before the minutes are over after which a model goes by itself. */
export function unloadButton() {
  return h("button", { type: "button", class: "quiet", title: "It is unloaded by itself when it was not used for some minutes", onclick: async () => {
    const done = await trying(() => post("/api/models/unload"));
    if (done) say(done.unloaded ? "The model is unloaded; the next request loads it again." : "No model is loaded, or it is at work.");
  } }, "Unload the model");
}

/** A sentence in the place of an answer. */
export function problemBox(sentence) {
  return h("div", { class: "problem", role: "alert" }, sentence);
}
