// How long somebody is active on one question: a hidden tab, or a minute without any input, does not count.

const IDLE = 60_000;
const INPUTS = ["keydown", "pointermove", "pointerdown", "wheel", "scroll", "touchmove"];

export class ActiveTime {
  /** `clock` gives milliseconds; `visible` says whether the page can be seen. */
  constructor(clock = () => performance.now(), visible = () => !document.hidden) {
    this.clock = clock;
    this.visible = visible;
    this.begin();
  }

  /** A new question is shown; what led to it was an input. */
  begin() {
    this.total = 0;
    this.since = this.visible() ? this.clock() : null;
    this.input = this.clock();
  }

  /** Somebody did something. */
  note() {
    this.settle();
    this.input = this.clock();
  }

  /** The page was hidden, or can be seen again: coming back is an input, too. */
  turn() {
    this.settle();
    if (this.visible()) { this.since = this.clock(); this.input = this.since; }
    else this.since = null;
  }

  settle() {
    const now = this.clock();
    if (this.since === null) return;
    this.total += Math.max(0, Math.min(now, this.input + IDLE) - this.since);
    this.since = now;
  }

  seconds() {
    this.settle();
    return this.total / 1000;
  }

  watch() {
    for (const name of INPUTS) document.addEventListener(name, () => this.note(), { capture: true, passive: true });
    document.addEventListener("visibilitychange", () => this.turn());
    return this;
  }
}
