// A chart over time, and the same figures as a table: not everybody reads charts.
import * as format from "./format.js";
import { html, useEffect, useRef } from "./html.js";
import { t } from "./texts.js";
import uPlot from "./vendor/uplot.js";

const HEIGHT = 150;
const ROWS = 12;
const DASHES = [[], [6, 4], [2, 3], [10, 4, 2, 4], [10, 3, 2, 3, 2, 3]];

const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function optionsOf(width, lines) {
  const axis = { stroke: token("--ink-2"), grid: { stroke: token("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { points: { size: 6 }, y: false },
    scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(1, (high ?? 1) * 1.08)] } },
    axes: [{ ...axis, size: 30, space: 84, values: (_, splits) => splits.map((at, index) => (at % 60 || splits[index + 1] - at < 60 ? format.timeOf(at) : format.hourOf(at))) }, { ...axis, size: 44, space: 28 }],
    series: [{}, ...lines.map((line, index) => ({
      label: line.label, stroke: token(`--chart-${index + 1}`), width: 1.6, dash: DASHES[index], spanGaps: false, points: { show: false },
    }))],
  };
}

/**
 * @param times seconds
 * @param lines [{label, values}], at most five
 * @param unit of all values
 */
export function Chart({ title, times, lines, unit }) {
  const place = useRef(null);
  const plot = useRef(null);
  const shape = lines.map((line) => line.label).join();
  const data = [times, ...lines.map((line) => line.values.map((value) => value ?? null))];
  const latest = useRef(data);
  latest.current = data;
  useEffect(() => {
    const element = place.current;
    const make = () => {
      plot.current?.destroy();
      plot.current = new uPlot(optionsOf(element.clientWidth, lines), latest.current, element);
    };
    make();
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", make);
    // It has no width when the page is left.
    const watcher = new ResizeObserver(() => element.clientWidth && plot.current.setSize({ width: element.clientWidth, height: HEIGHT }));
    watcher.observe(element);
    return () => {
      dark.removeEventListener("change", make);
      watcher.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(data), [times[times.length - 1], times.length]);
  const last = (values) => values[values.length - 1];
  return html`<figure class="chart">
    <figcaption><h3>${title} <small>${unit}</small></h3>
      <ul class="legend">${lines.map((line, index) => html`<li><i class=${`key key-${index + 1}`} aria-hidden="true"></i>${line.label}
        <b>${format.fps(last(line.values))}</b></li>`)}</ul></figcaption>
    <div class="plot" ref=${place} role="img" aria-label=${t.health.chart(title)}></div>
    <details><summary>${t.health.table}<span class="spoken"> ${title}</span></summary><div class="scroll" tabindex="0" role="group" aria-label=${title}>
      <table><thead><tr><th>${t.health.time}</th>${lines.map((line) => html`<th>${line.label}</th>`)}</tr></thead>
      <tbody>${pick(times).map((index) => html`<tr><td>${format.timeOf(times[index])}</td>${lines.map((line) => html`<td>${format.fps(line.values[index])}</td>`)}</tr>`)}</tbody></table>
    </div></details>
  </figure>`;
}

/** Indices of a few moments, newest first, evenly over all. */
function pick(times) {
  const step = Math.max(1, Math.ceil(times.length / ROWS));
  const found = [];
  for (let index = times.length - 1; index >= 0; index -= step) found.push(index);
  return found;
}
