// Draws the charts of a report from the values that stand in the page; in its colours, light or dark.
(() => {
  "use strict";
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const grid = document.getElementById("grid");
  const plots = [];

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  }

  function trace(line) {
    const shade = color(`series-${(line.color % 8) + 1}`);
    const dash = line.judge || (line.right && !line.held) ? "dash" : line.held ? "dot" : "solid";
    return {
      type: "scatter", mode: line.held || line.x.length === 1 ? "lines+markers" : "lines", name: line.name, x: line.x, y: line.y,
      connectgaps: false, yaxis: line.right ? "y2" : "y", hovertemplate: "%{y:.4g}<extra>%{fullData.name}</extra>",
      line: { color: shade, width: 1.8, dash }, marker: { color: shade, size: 6, symbol: line.judge ? "square" : "circle" },
      error_y: line.errors ? { type: "data", array: line.errors, color: shade, thickness: 1, width: 3 } : undefined,
    };
  }

  function layout(chart) {
    const axis = { gridcolor: color("grid"), zerolinecolor: color("line"), linecolor: color("line"), tickfont: { size: 11 }, automargin: true };
    return {
      margin: { l: 46, r: chart.right ? 46 : 12, t: chart.legend ? 44 : 18, b: 36 }, height: chart.legend ? 264 : 240,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: color("soft"), size: 11, family: "inherit" },
      hovermode: "x", hoverlabel: { bgcolor: color("panel"), bordercolor: color("line"), font: { color: color("ink") } },
      showlegend: chart.legend, legend: { orientation: "h", x: 0, y: 1.08, yanchor: "bottom", font: { size: 11 } },
      xaxis: { ...axis, title: { text: "PPO step", font: { size: 11 }, standoff: 4 }, zeroline: false, rangemode: "nonnegative" },
      yaxis: axis,
      ...(chart.right ? { yaxis2: { ...axis, overlaying: "y", side: "right", showgrid: false, tickmode: "auto", title: { text: chart.right, font: { size: 11 } } } } : {}),
      shapes: chart.marks.map((mark) => ({ type: "line", x0: mark.x, x1: mark.x, yref: "paper", y0: 0, y1: 1, line: { color: color(mark.kind), width: 1.3, dash: "dot" } })),
      annotations: chart.marks.map((mark) => ({ x: mark.x, y: 1, yref: "paper", text: mark.label, showarrow: false, yanchor: "bottom", font: { size: 10, color: color(mark.kind) } })),
    };
  }

  function draw() {
    for (const { plot, chart } of plots) {
      Plotly.react(plot, chart.lines.map(trace), layout(chart), { displayModeBar: false, responsive: true, doubleClick: "reset" });
    }
  }

  function share(plot) {
    plot.on("plotly_hover", (event) => {
      if (!event.event) return; // made by the chart beside it
      for (const other of plots) {
        if (other.plot === plot) continue;
        try { Plotly.Fx.hover(other.plot, { xval: event.xvals?.[0] ?? event.points[0].x, yval: 0 }, "xy"); } catch { /* it has no such step */ }
      }
    });
    plot.on("plotly_unhover", () => { for (const other of plots) if (other.plot !== plot) Plotly.Fx.unhover(other.plot); });
  }

  for (const chart of charts) {
    const box = document.createElement("figure");
    const title = document.createElement("h3");
    const note = document.createElement("figcaption");
    const plot = document.createElement("div");
    box.className = "chart";
    box.style.margin = "0";
    title.textContent = chart.title;
    note.textContent = chart.note;
    plot.className = "plot";
    box.append(title, note, plot);
    grid.append(box);
    plots.push({ plot, chart });
  }
  document.getElementById("no-charts").classList.toggle("hidden", charts.length > 0);
  draw();
  for (const { plot } of plots) share(plot);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
