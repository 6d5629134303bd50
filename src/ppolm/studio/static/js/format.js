// Numbers as people read them.

/** Up to four significant digits, without exponents where they can be avoided; a gap for what is no number. */
export function num(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(2).replaceAll("-", "−");
  const places = Math.max(0, Math.min(6, digits - 1 - Math.floor(Math.log10(size))));
  return value.toFixed(Number.isInteger(value) ? 0 : places).replace("-", "−");
}

export function signed(value, digits = 3) {
  const text = num(value, digits);
  return value > 0 ? `+${text}` : text;
}

export function percent(value) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(0)} %`;
}

/** A value with its interval. */
export function interval(one) {
  if (!one) return "–";
  const value = num(one.value ?? one.mean, 3);
  return one.low === undefined || one.low === null ? value : `${value} [${num(one.low, 3)}, ${num(one.high, 3)}]`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 1) return "under 1 s";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${(seconds / 3600).toFixed(1)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export function ago(seconds) {
  return seconds < 5 ? "now" : `${duration(seconds)} ago`;
}

/** A setting as its YAML would show it. */
export function setting(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
}

/** 1 tie, 2 ties. */
export function counted(number, word) {
  return `${number} ${word}${number === 1 ? "" : "s"}`;
}
