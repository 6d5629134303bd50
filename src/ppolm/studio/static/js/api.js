// Asking the server. Errors come as sentences, and are shown as they are.
import { say } from "./dom.js";

export class Problem extends Error {
  constructor(sentence, status) { super(sentence); this.status = status; }
}

async function answer(request) {
  let response;
  try { response = await request; }
  catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The server does not answer. Is `ppolm studio` still running?", 0);
  }
  let body = null;
  try { body = await response.json(); } catch { /* an answer without JSON is explained below */ }
  if (!response.ok) throw new Problem(body?.error ?? `The server answered with ${response.status}.`, response.status);
  return body;
}

/** `parameters` may hold arrays: the name is then repeated. Null and undefined are left out. */
export function get(path, parameters = {}, options = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") query.append(name, one);
    }
  }
  const text = query.toString();
  return answer(fetch(text ? `${path}?${text}` : path, { credentials: "same-origin", ...options }));
}

export function post(path, body = {}, options = {}) {
  const headers = {
    "content-type": "application/json",
    "x-csrf-token": document.querySelector('meta[name="csrf"]').content,
  };
  return answer(fetch(path, { method: "POST", credentials: "same-origin", headers, body: JSON.stringify(body), ...options }));
}

/** Run something that asks the server; a problem becomes a message, and null is returned. */
export async function trying(work) {
  try { return await work(); }
  catch (error) {
    if (error.name === "AbortError") return null;
    if (!(error instanceof Problem)) console.error(error);
    say(error.message, "error");
    return null;
  }
}

/** Call `changed` whenever a run (or, without one, any run) has something new. Falls back to looking now and then. */
export function listen(run, changed) {
  let timer = null;
  const address = run ? `/api/events?run=${encodeURIComponent(run)}` : "/api/events";
  const source = new EventSource(address);
  source.onmessage = () => changed();
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED && timer === null) timer = setInterval(changed, 5000);
  };
  const stop = () => { source.close(); if (timer !== null) clearInterval(timer); };
  window.addEventListener("pagehide", stop);
  return stop;
}
