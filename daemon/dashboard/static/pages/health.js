// How each daemon is: latency and its stages, rates, drops, outbox, GPU, memory, over the last hour.
import { at, get } from "../api.js";
import { Chart } from "../chart.js";
import { feed } from "../feed.js";
import * as format from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { daemons, loaded, metrics } from "../model.js";
import { Empty, Facts, Notice, State } from "../parts.js";
import { useStore } from "../store.js";
import { t } from "../texts.js";

const REFRESH_MS = 10000;

const BYTES = ["memory", "gpu_memory"];
const inUnit = (key, values) => (BYTES.includes(key) ? values.map((value) => value && value / (1 << 20)) : values);
const named = (...keys) => (series) => keys.map((key) => ({ label: t.health.series[key], values: inUnit(key, series[key]) }));
const stages = (percentile) => (series) => Object.entries(series.stages).map(([stage, row]) => ({ label: t.camera.stageNames[stage], values: row[percentile] }));

// Charts, by their titles and units, with their lines.
const CHARTS = [
  ["latency", "ms", named("latency_p50_ms", "latency_p99_ms")],
  ["medians", "ms", stages("p50")],
  ["slowest", "ms", stages("p99")],
  ["frames", "fps", named("fps", "dropped_per_s")],
  ["outbox", "messages", named("outbox")],
  ["cpu", "percent", named("cpu_percent")],
  ["gpu", "percent", named("gpu", "decoder")],
  ["memory", "mib", named("memory", "gpu_memory")],
  ["power", "watts", named("power")],
];

/** Those that have data, and their lines that have. */
const chartsOf = (series) => CHARTS.map(([name, unit, linesOf]) => ({ name, unit, lines: linesOf(series).filter(({ values }) => values.some((value) => value !== null)) }))
  .filter(({ lines }) => lines.length);

export default function Health() {
  const rows = [...useStore(daemons).values()].sort((a, b) => a.name.localeCompare(b.name));
  useEffect(() => feed.want({ metrics: true }), []);
  useEffect(() => {
    if (document.getElementById("uplot-style")) return;
    const sheet = Object.assign(document.createElement("link"), { id: "uplot-style", rel: "stylesheet", href: "/static/vendor/uplot.css" });
    document.head.append(sheet);
  }, []);
  return html`<div class="bar"><h1>${t.health.title}</h1></div>
    ${loaded.value && !rows.length && html`<${Empty} title=${t.health.none} />`}
    ${rows.map((row) => html`<${Daemon} key=${row.name} row=${row} />`)}`;
}

function useHealth(name, instance) {
  const [state, setState] = useState({ health: null, failure: null });
  useEffect(() => {
    let [timer, stopped] = [0, false];
    const load = async () => {
      try {
        const health = await get(`/api/health/${at(name)}`);
        if (!stopped) setState({ health, failure: null });
      } catch (error) {
        if (!stopped) setState((before) => ({ ...before, failure: error.message }));
      }
      if (!stopped) timer = setTimeout(load, REFRESH_MS);
    };
    load();
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, [name, instance]);
  return state;
}

function Daemon({ row }) {
  const { health, failure } = useHealth(row.name, row.instance);
  const latest = useStore(metrics).get(row.name) ?? health?.metrics ?? null;
  const series = health?.series;
  return html`<section class="daemon" aria-labelledby=${`daemon-${row.name}`}>
    <h2 id=${`daemon-${row.name}`}>${row.name} <${State} state=${row.state === "up" ? "up" : row.state} reason=${row.reason} /></h2>
    ${row.state !== "up" && html`<${Notice} kind="warning">${t.health.away(row)}<//>`}
    ${failure && html`<${Notice} kind="error">${failure}<//>`}
    <${Facts} rows=${factsOf(row, latest)} />
    ${latest?.gpus_reason && html`<p class="quiet">${t.health.noGpu(latest.gpus_reason)}</p>`}
    ${series?.t.length > 1 ? html`<div class="charts">${chartsOf(series).map(({ name, unit, lines }) => html`<${Chart} key=${name}
      title=${t.health[name]} unit=${t.health[unit]} times=${series.t} lines=${lines} />`)}</div>` : html`<p class="quiet">${t.health.noData}</p>`}
    <div class="tables"><${Drops} drops=${health?.drops ?? {}} /><${Stages} latency=${latest?.latency} /></div>
  </section>`;
}

function factsOf(row, latest) {
  const [gpu] = latest?.gpus ?? [];
  return [
    [t.health.version, row.version ?? format.DASH],
    latest && [t.health.up, format.duration(latest.uptime_s)],
    latest && [t.health.frames, `${format.fps(latest.fps)} /s`],
    latest && [t.health.cpu, format.percent(latest.process.cpu_percent)],
    latest && [t.health.rss, format.mib(latest.process.rss_bytes)],
    latest && [t.health.threads, format.count(latest.process.threads)],
    latest && [t.health.files, format.count(latest.process.open_files)],
    latest && [t.health.subscriptions, format.count(latest.publisher.subscriptions)],
    latest && [t.health.outbox, `${latest.publisher.outbox} / ${latest.publisher.outbox_limit}`],
    row.missed > 0 && [t.health.missed, format.count(row.missed)],
    row.fenced > 0 && [t.health.fenced, format.count(row.fenced)],
    gpu && [t.health.gpu, `${gpu.name}, ${format.percent(gpu.utilisation)}`],
    gpu?.throttled?.length > 0 && [t.health.throttled, gpu.throttled.join(", ")],
  ];
}

function Drops({ drops }) {
  const rows = Object.entries(drops).filter(([, n]) => n).sort((a, b) => b[1] - a[1]);
  return html`<section><h3>${t.health.drops}</h3>${rows.length
    ? html`<table><thead><tr><th>${t.health.cause}</th><th>${t.health.number}</th></tr></thead><tbody>
      ${rows.map(([cause, n]) => html`<tr><th scope="row">${t.causes[cause] ?? cause}</th><td>${format.count(n)}</td></tr>`)}</tbody></table>`
    : html`<p class="quiet">${t.health.noDrops}</p>`}</section>`;
}

function Stages({ latency }) {
  if (!latency) return null;
  return html`<section><h3>${t.health.latency}</h3><table><thead><tr><th>${t.health.stage}</th><th>50 %</th><th>95 %</th><th>99 %</th></tr></thead>
    <tbody>${Object.entries(latency).map(([stage, p]) => html`<tr><th scope="row">${t.camera.stageNames[stage] ?? stage}</th>
      <td>${format.nsAsMs(p.p50)}</td><td>${format.nsAsMs(p.p95)}</td><td>${format.nsAsMs(p.p99)}</td></tr>`)}</tbody></table></section>`;
}
