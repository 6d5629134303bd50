// Shares with their intervals, as people read them.

const percent = (value) => Math.round(100 * value);

/** A share such as “62 % [51, 73]”; without bounds where there are too few to tell. */
export function share(one) {
  if (!one) return "–";
  const bounds = one.low === null || one.high === null || one.low === undefined ? "" : ` [${percent(one.low)}, ${percent(one.high)}]`;
  return `${percent(one.mean)} %${bounds}`;
}

/** Agreement such as 0.62 [0.4, 0.8]. */
export function agreement(value, interval) {
  if (value === null || value === undefined) return "–";
  const bounds = interval && interval.low !== null ? ` [${interval.low.toFixed(2)}, ${interval.high.toFixed(2)}]` : "";
  return `${value.toFixed(2)}${bounds}`.replaceAll("-", "−");
}
