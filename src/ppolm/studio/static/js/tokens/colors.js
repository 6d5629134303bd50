// Colours of numbers. Orange, nothing, blue around zero; pale to violet for levels: apart for every kind of colour vision,
// and light or dark enough for the text on them in either theme.
import { h } from "../dom.js";
import { isDark } from "../frame.js";
import { num } from "../format.js";

const LIGHT = { ground: [255, 255, 255], below: [240, 148, 62], above: [94, 166, 224], level: [176, 150, 220] };
const DARK = { ground: [34, 41, 51], below: [150, 78, 12], above: [30, 96, 156], level: [106, 76, 160] };

function mix(from, to, share) {
  return `rgb(${from.map((one, i) => Math.round(one + (to[i] - one) * share)).join(" ")})`;
}

/** What a column is coloured by. Outliers beyond the middle 96 % take the colour of its ends. */
export function scaleOf(name, range, title = name) {
  const low = range.low ?? 0;
  const high = range.high ?? 0;
  if (range.diverging) {
    const end = Math.max(Math.abs(low), Math.abs(high)) || Math.max(Math.abs(range.min ?? 0), Math.abs(range.max ?? 0)) || 1;
    return { name, title, range, diverging: true, from: -end, to: end };
  }
  const same = high <= low;
  return { name, title, range, diverging: false, from: same ? low - 1 : low, to: same ? low + 1 : high, unlikely: name.startsWith("logprob") };
}

export function colorOf(scale, value) {
  if (value === null || value === undefined) return "";
  const theme = isDark() ? DARK : LIGHT;
  if (scale.diverging) {
    const share = Math.min(1, Math.abs(value) / scale.to);
    return mix(theme.ground, value < 0 ? theme.below : theme.above, share ** 0.8);
  }
  const share = Math.min(1, Math.max(0, (value - scale.from) / (scale.to - scale.from)));
  return mix(theme.ground, theme.level, scale.unlikely ? 1 - share : share); // an unlikely token is the one to look at
}

/** The legend: the colours from one end to the other, and the true ends where they lie beyond. */
export function legend(scale) {
  const stops = Array.from({ length: 21 }, (_, i) => colorOf(scale, scale.from + ((scale.to - scale.from) * i) / 20));
  const { min, max, missing } = scale.range;
  const beyond = `Colours span the middle 96 % of the step; the ends are ${num(min)} and ${num(max)}.${missing ? ` ${missing} tokens have no number.` : ""}`;
  return h("div", { class: "legend", title: beyond },
    h("span", { class: "legend-name" }, scale.title),
    h("span", { class: "numbers" }, min !== null && min < scale.from ? "≤ " : "", num(scale.from, 3)),
    h("span", { class: "legend-bar", style: { background: `linear-gradient(to right, ${stops.join(",")})` }, role: "img", "aria-label": `Colours of ${scale.title}, from ${num(scale.from, 3)} to ${num(scale.to, 3)}. ${beyond}` }),
    h("span", { class: "numbers" }, max !== null && max > scale.to ? "≥ " : "", num(scale.to, 3)));
}
