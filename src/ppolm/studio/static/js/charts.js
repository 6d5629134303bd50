// Line charts by Plotly, in the page's colours, with one cursor for all charts of a page.

let loading = null;
const drawn = new Set();

function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "/static/plotly.js";
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => reject(new Error("The charts could not be loaded."));
    document.head.append(script);
  });
  return loading;
}

export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export function seriesColor(index) {
  return color(`series-${(index % 8) + 1}`);
}

/** Exponential moving average with its bias taken out; gaps stay gaps. `weight` from 0 (none) to below 1. */
export function smooth(values, weight) {
  if (!weight) return values;
  let sum = 0;
  let total = 0;
  return values.map((value) => {
    if (value === null || value === undefined) return null;
    sum = weight * sum + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return sum / total;
  });
}

function layout(options) {
  const axis = { gridcolor: color("grid"), zerolinecolor: color("line"), linecolor: color("line"), tickfont: { size: 11 }, automargin: true };
  return {
    margin: { l: 46, r: options.right ? 46 : 10, t: options.legend ? 34 : 16, b: 34 }, height: options.height ?? 220,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: color("soft"), size: 11, family: "inherit" },
    hovermode: "x", hoverlabel: { bgcolor: color("panel"), bordercolor: color("line"), font: { color: color("ink") } },
    showlegend: options.legend ?? false, legend: { orientation: "h", x: 0, y: 1.06, yanchor: "bottom", font: { size: 11 }, entrywidth: 0 },
    xaxis: { ...axis, title: { text: options.x ?? "PPO step", font: { size: 11 }, standoff: 4 }, zeroline: false, rangemode: "nonnegative" },
    yaxis: { ...axis, title: options.y ? { text: options.y, font: { size: 11 } } : undefined },
    ...(options.right ? { yaxis2: { ...axis, overlaying: "y", side: "right", showgrid: false, tickmode: "auto", range: options.rightRange, title: { text: options.right, font: { size: 11 } } } } : {}),
    shapes: (options.marks ?? []).map((mark) => ({ type: "line", x0: mark.x, x1: mark.x, yref: "paper", y0: 0, y1: 1,
      line: { color: color(mark.color ?? "bad"), width: 1.4, dash: "dot" } })),
    annotations: (options.marks ?? []).filter((mark) => mark.label).map((mark) => ({ x: mark.x, y: 1, yref: "paper", text: escaped(mark.label),
      showarrow: false, yanchor: "bottom", font: { size: 10, color: color(mark.color ?? "bad") } })),
    uirevision: "keep",
  };
}

// Plotly reads a few tags in texts; names of runs are not ours.
export function escaped(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").slice(0, 80);
}

function trace(one, index) {
  const shade = one.color ?? seriesColor(index);
  return {
    type: "scatter", mode: one.points ? "lines+markers" : "lines", name: escaped(one.name), x: one.x, y: one.y, connectgaps: false,
    line: { color: shade, width: one.faint ? 1 : 1.8, dash: one.dash }, opacity: one.faint ? .35 : 1, marker: { color: shade, size: 6, symbol: one.symbol },
    hovertemplate: one.faint ? undefined : "%{y:.4g}", hoverinfo: one.faint ? "skip" : undefined, showlegend: !one.faint,
    yaxis: one.right ? "y2" : "y",
    error_y: one.errors ? { type: "data", array: one.errors, color: shade, thickness: 1, width: 3 } : undefined,
  };
}

/** Draw lines into `node`, or draw them again: series of {name, x, y, points, dash, color, right, errors, faint}.
 *  Options: height, legend, x, y, right (axis titles), marks ([{x, label, color}]), apart (no shared cursor). */
export async function lines(node, series, options = {}) {
  const Plotly = await plotly();
  if (!node.isConnected) return;
  const first = !node.classList.contains("js-plotly-plot");
  await Plotly.react(node, series.map(trace), layout(options), { displayModeBar: false, responsive: true, doubleClick: "reset" });
  node.again = () => lines(node, series, options);
  if (first) {
    drawn.add(node);
    if (!options.apart) share(node, Plotly);
  }
}

function share(node, Plotly) {
  node.on("plotly_hover", (event) => {
    if (!event.event) return; // made by the chart beside it
    for (const other of drawn) if (other !== node && other.isConnected && other.layout?.xaxis) {
      try { Plotly.Fx.hover(other, { xval: event.xvals?.[0] ?? event.points[0].x, yval: 0 }, "xy"); } catch { /* it has no such step */ }
    }
  });
  node.on("plotly_unhover", () => {
    for (const other of drawn) if (other !== node && other.isConnected) Plotly.Fx.unhover(other);
  });
}

window.addEventListener("themechange", () => {
  for (const node of drawn) if (node.isConnected) node.again(); else drawn.delete(node);
});

/** A small line without axes. */
export function sparkline(values, h) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return h("span", { class: "soft" }, "–");
  const low = Math.min(...known);
  const span = Math.max(...known) - low || 1;
  let gap = true;
  const path = values.map((value, i) => {
    if (value === null) { gap = true; return ""; }
    const move = gap ? "M" : "L";
    gap = false;
    return `${move}${(2 + (116 * i) / (values.length - 1)).toFixed(1)} ${(23 - (20 * (value - low)) / span).toFixed(1)}`;
  }).join("");
  return h("svg", { class: "sparkline", viewBox: "0 0 120 26", role: "img", "aria-label": `Reward from ${known[0].toPrecision(3)} to ${known.at(-1).toPrecision(3)}` }, h("path", { d: path }));
}
