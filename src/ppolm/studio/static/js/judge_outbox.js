// Answers on their way to the server. None is lost: each stays here, and in the browser's storage, until it is stored.
import { post } from "./api.js";

const PREFIX = "ppolm-unsent:";
const LONGEST_PAUSE = 15_000;
const PASSING = new Set([0, 401, 403, 408, 429, 500, 502, 503, 504]);

function storage() {
  try { return window.localStorage; } catch { return null; }
}

export class Outbox {
  /** `changed` is called with the state whenever it changes; `refused` with an entry and the reason why it was not stored. */
  constructor(annotator, changed, refused) {
    this.annotator = annotator;
    this.changed = changed;
    this.refused = refused;
    this.entries = this.load();
    this.flying = new Set();
    this.problem = "";
    this.pause = 1000;
    this.timer = null;
    this.waiters = [];
    window.addEventListener("online", () => this.send());
    this.send();
  }

  key(task) { return `${PREFIX}${this.annotator}:${task}`; }

  /** What an earlier visit could not send. */
  load() {
    const found = [];
    const store = storage();
    for (let i = 0; store && i < store.length; i += 1) {
      const key = store.key(i);
      if (!key?.startsWith(`${PREFIX}${this.annotator}:`)) continue;
      try { found.push(JSON.parse(store.getItem(key))); } catch { store.removeItem(key); }
    }
    return found.filter((one) => one?.answer?.task && one.scope);
  }

  /** `answer` names its task and the verdict, or that it is skipped; `scope` is what the task was asked for. */
  add(answer, scope) {
    const entry = { answer, scope };
    this.entries.push(entry);
    try { storage()?.setItem(this.key(answer.task), JSON.stringify(entry)); } catch { /* then it is kept in this page alone */ }
    this.send();
  }

  /** Take an answer out that has not been sent; false if it is too late for that. */
  withdraw(task) {
    if (this.flying.has(task) || !this.entries.some((one) => one.answer.task === task)) return false;
    this.drop(task);
    this.tell();
    return true;
  }

  tasks() { return this.entries.map((one) => one.answer.task); }

  /** Resolves when a task's answer is no longer on its way: to true if it was stored, to false if it is still here. */
  landed(task) {
    if (!this.tasks().includes(task)) return Promise.resolve(true);
    return new Promise((resolve) => {
      const waiter = { task, resolve };
      this.waiters.push(waiter);
      setTimeout(() => resolve(false), 4000);
    });
  }

  drop(task) {
    this.entries = this.entries.filter((one) => one.answer.task !== task);
    try { storage()?.removeItem(this.key(task)); } catch { /* nothing was kept */ }
    for (const waiter of this.waiters.filter((one) => one.task === task)) waiter.resolve(true);
    this.waiters = this.waiters.filter((one) => one.task !== task);
  }

  tell() { this.changed({ unsent: this.entries.length, problem: this.entries.length ? this.problem : "" }); }

  /** Send what is there, the answers of one scope together; the rest follows. */
  async send() {
    if (this.flying.size || !this.entries.length) { this.tell(); return; }
    clearTimeout(this.timer);
    const { scope } = this.entries[0];
    const batch = this.entries.filter((one) => JSON.stringify(one.scope) === JSON.stringify(scope)).slice(0, 20);
    for (const one of batch) this.flying.add(one.answer.task);
    this.tell();
    try {
      const found = await post("/api/judge/answer", { ...scope, annotator: this.annotator, answers: batch.map((one) => one.answer) });
      this.problem = "";
      this.pause = 1000;
      for (const { task, error } of found.refused) this.refused(batch.find((one) => one.answer.task === task), error);
      for (const one of batch) this.drop(one.answer.task);
    } catch (error) {
      this.failed(batch, error);
    } finally {
      this.flying.clear();
      for (const waiter of this.waiters.splice(0)) waiter.resolve(!this.tasks().includes(waiter.task));
      this.tell();
    }
    if (this.entries.length && !this.problem) this.send();
  }

  failed(batch, error) {
    if (!PASSING.has(error.status ?? -1)) {  // it would fail again and again: say so, and go on with the others
      for (const one of batch) { this.refused(one, error.message); this.drop(one.answer.task); }
      return;
    }
    this.problem = error.message;
    this.timer = setTimeout(() => this.send(), this.pause);
    this.pause = Math.min(LONGEST_PAUSE, 2 * this.pause);
  }
}
