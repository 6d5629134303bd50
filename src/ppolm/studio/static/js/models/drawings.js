// Small charts of a report as SVG: their colours are classes, so that light and dark need no drawing again.
import { h } from "../dom.js";
import { num } from "../format.js";

const WIDTH = 520;

function chart(height, label, ...children) {
  return h("svg", { class: "drawing", viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label }, children);
}

function text(x, y, content, anchor = "start", kind = "") {
  return h("text", { x: x.toFixed(1), y: y.toFixed(1), "text-anchor": anchor, class: kind }, content);
}

function line(x0, y0, x1, y1, kind) {
  return h("line", { x1: x0.toFixed(1), y1: y0.toFixed(1), x2: x1.toFixed(1), y2: y1.toFixed(1), class: kind });
}

/** Round numbers from `low` to `high`, about `count` of them. */
export function ticks(low, high, count = 5) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough * 0.999);
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-6; value += step) found.push(Math.abs(value) < step * 1e-6 ? 0 : value);
  return found;
}

const short = (value) => String(Number(value.toPrecision(4))).replace("-", "−");

/** A row per measure: its value as a dot, its interval as a line. `rows`: {name, mean, low, high, chance, note, faint}. */
export function intervals(rows, label, { limits = [], zero = false } = {}) {
  const left = 232;
  const right = WIDTH - 12;
  const ends = rows.flatMap((row) => [row.low, row.high, row.mean, row.chance]).concat(limits.map((one) => one.at)).filter((one) => one !== null && one !== undefined);
  let [low, high] = [Math.min(...ends), Math.max(...ends)];
  if (zero) { low = Math.min(low, 0); high = Math.max(high, 0); }
  const pad = (high - low || 1) * 0.06;
  [low, high] = [low - pad, high + pad];
  const x = (value) => left + ((value - low) / (high - low)) * (right - left);
  const row = 34;
  const height = rows.length * row + 30;
  const foot = height - 22;
  return chart(height, label,
    ticks(low, high).map((at) => [line(x(at), 4, x(at), foot, "grid"), text(x(at), height - 6, short(at), "middle", "tick")]),
    limits.map((one) => line(x(one.at), 4, x(one.at), foot, one.kind)),
    rows.map((one, i) => {
      const y = i * row + 18;
      return h("g", {}, h("title", {}, `${one.name}: ${num(one.mean, 3)}${one.low === null ? "" : ` [${num(one.low, 3)}, ${num(one.high, 3)}]`}`),
        text(left - 12, y + (one.note ? -2 : 4), one.name, "end", one.faint ? "faint" : ""), one.note ? text(left - 12, y + 11, one.note, "end", "tick") : null,
        one.chance === undefined || one.chance === null ? null : line(x(one.chance), y - 11, x(one.chance), y + 11, "chance"),
        one.low === null || one.low === undefined ? null : line(x(one.low), y, x(one.high), y, one.faint ? "whisker pale" : "whisker"),
        one.mean === null ? null : h("circle", { cx: x(one.mean).toFixed(1), cy: y, r: 4.5, class: one.faint ? "dot pale" : "dot" }));
    }));
}

/** Confidence against the share that is right, with the number of pairs under each bucket. */
export function calibration(buckets, label) {
  const filled = buckets.filter((one) => one && one.count && one.confidence !== null && one.accuracy !== null);
  const [left, right, top, foot] = [44, WIDTH - 14, 10, 206];
  const low = Math.min(0.3, ...filled.map((one) => one.accuracy)) - 0.02;
  const x = (value) => left + ((value - 0.5) / 0.5) * (right - left);
  const y = (value) => foot - ((value - low) / (1 - low)) * (foot - top);
  const path = filled.map((one, i) => `${i ? "L" : "M"}${x(one.confidence).toFixed(1)} ${y(one.accuracy).toFixed(1)}`).join("");
  return chart(262, label,
    ticks(low, 1, 6).map((at) => [line(left, y(at), right, y(at), "grid"), text(left - 6, y(at) + 4, short(at), "end", "tick")]),
    [0.5, 0.6, 0.7, 0.8, 0.9, 1].map((at) => [line(x(at), foot, x(at), foot + 4, "grid"), text(x(at), foot + 17, short(at), "middle", "tick")]),
    line(x(0.5), y(0.5), x(1), y(1), "chance"), h("path", { d: path, class: "curve" }),
    filled.map((one) => h("g", {}, h("title", {}, `${one.count} pairs: ${num(one.confidence, 3)} sure, ${num(one.accuracy, 3)} right`),
      h("circle", { cx: x(one.confidence).toFixed(1), cy: y(one.accuracy).toFixed(1), r: 4.5, class: "dot" }))),
    buckets.filter(Boolean).map((one) => text(x((one.low + one.high) / 2), foot + 33, `${one.count} ${one.count === 1 ? "pair" : "pairs"}`, "middle", "tick")),
    text((left + right) / 2, foot + 51, "confidence of the model; dashed: calibrated", "middle", "tick"));
}

/** Histograms of the same bins over each other, as shares. `shown`: [{name, histogram, count}]. */
export function histograms(edges, shown, label) {
  const [left, right, top, foot] = [44, WIDTH - 14, 26, 200];
  const [low, high] = [edges[0], edges.at(-1)];
  const shares = shown.map((one) => one.histogram.map((count) => count / Math.max(1, one.count)));
  const most = Math.max(...shares.flat(), 1e-9);
  const x = (value) => left + ((value - low) / (high - low || 1)) * (right - left);
  const y = (value) => foot - (value / most) * (foot - top);
  const stairs = (values) => `M${x(low).toFixed(1)} ${foot}${values.map((value, i) => `V${y(value).toFixed(1)}H${x(edges[i + 1]).toFixed(1)}`).join("")}V${foot}`;
  return chart(242, label,
    ticks(0, most, 4).map((at) => [line(left, y(at), right, y(at), "grid"), text(left - 6, y(at) + 4, short(at), "end", "tick")]),
    ticks(low, high, 6).map((at) => text(x(at), foot + 17, short(at), "middle", "tick")),
    shares.map((values, i) => h("path", { d: stairs(values), class: `area area-${i + 1}` }, h("title", {}, shown[i].name))),
    shown.map((one, i) => [h("rect", { x: left + i * 150, y: 4, width: 12, height: 12, class: `area area-${i + 1}` }), text(left + 18 + i * 150, 14, `${one.name}, n = ${one.count}`, "start", "tick")]),
    text((left + right) / 2, foot + 36, "score before normalisation; height: share of the answers", "middle", "tick"));
}

/** Lines over training updates. `series`: [{name, x, y}]. */
export function curves(series, label) {
  const [left, right, top, foot] = [44, WIDTH - 14, 26, 170];
  const points = series.map((one) => one.x.map((at, i) => [at, one.y[i]]).filter(([at, value]) => at !== null && value !== null));
  const all = points.flat();
  if (all.length < 2) return null;
  const [xs, ys] = [all.map((one) => one[0]), all.map((one) => one[1])];
  const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const x = (value) => left + ((value - x0) / (x1 - x0 || 1)) * (right - left);
  const y = (value) => foot - ((value - y0) / (y1 - y0 || 1)) * (foot - top);
  return chart(212, label,
    ticks(y0, y1, 4).map((at) => [line(left, y(at), right, y(at), "grid"), text(left - 6, y(at) + 4, short(at), "end", "tick")]),
    ticks(x0, x1, 6).map((at) => text(x(at), foot + 17, short(at), "middle", "tick")),
    points.map((one, i) => h("path", { d: one.map(([at, value], n) => `${n ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join(""), class: `curve curve-${i + 1}` })),
    series.map((one, i) => [line(left + i * 150, 10, left + i * 150 + 14, 10, `curve curve-${i + 1}`), text(left + 20 + i * 150, 14, one.name, "start", "tick")]),
    text((left + right) / 2, foot + 36, "updates", "middle", "tick"));
}
