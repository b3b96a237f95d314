// Bridges: to whom events go, what waits for each, and what was left out.
import { askBridges, bridges, droppedOf } from "../bridges.js";
import * as format from "../format.js";
import { html, useEffect } from "../html.js";
import { daemons, loaded } from "../model.js";
import { Empty, Facts, Notice, State } from "../parts.js";
import { useStore } from "../store.js";
import { t } from "../texts.js";
import { Times } from "../troubles.js";

const REFRESH_MS = 3000;
// The shapes of states that cameras have.
const SHAPE = { up: "up", connecting: "connecting", away: "down", gone: "ended", off: "disabled" };

export default function Bridges() {
  const has = [...useStore(daemons).values()].some((row) => row.bridge);
  const rows = [...useStore(bridges).values()].sort((a, b) => a.daemon.localeCompare(b.daemon));
  useEffect(() => {
    askBridges();
    const timer = setInterval(() => document.hidden || askBridges(), REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  return html`<div class="bar"><h1>${t.bridge.title}</h1></div>
    ${loaded.value && !has && html`<${Empty} title=${t.bridge.none}>${t.bridge.how}<//>`}
    ${rows.map((row) => html`<${Bridge} key=${row.daemon} row=${row} />`)}`;
}

function Bridge({ row: { daemon, report, failure } }) {
  return html`<section class="daemon stack" aria-labelledby=${`bridge-${daemon}`}>
    <h2 id=${`bridge-${daemon}`}>${t.bridge.of(daemon)}</h2>
    ${failure && html`<${Notice} kind="error">${t.inWords(failure)}<//>`}
    ${report && html`${report.spool.failure && html`<${Notice} kind="error">${t.bridge.notKept(t.inWords(report.spool.failure))}<//>`}
      <${Facts} rows=${factsOf(report)} /><${Targets} rows=${report.targets} at=${report.at / 1e9} /><${Feeds} rows=${report.feeds} />`}
  </section>`;
}

const factsOf = ({ spool }) => [
  [t.bridge.spool, `${format.mib(spool.bytes)} / ${format.mib(spool.limit_bytes)}`],
  [t.bridge.waiting, format.count(spool.records)],
];

function Targets({ rows, at }) {
  const columns = [t.bridge.name, t.bridge.state, t.bridge.delivered, t.bridge.spooled, t.bridge.left, t.bridge.dropped, t.bridge.figures];
  return html`<section><h3>${t.bridge.targets}</h3><div class="scroll" tabindex="0" role="group" aria-label=${t.bridge.targets}><table><thead><tr>${columns.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<${Target} key=${row.name} row=${row} at=${at} />`)}</tbody></table></div></section>`;
}

function Target({ row, at }) {
  const retry = row.retry_in_s === null ? null : at + row.retry_in_s;
  const state = row.state === "away" ? "down" : row.state; // which alone has a next try
  const causes = Object.entries(row.dropped).filter(([, n]) => n).sort((a, b) => b[1] - a[1]);
  return html`<tr><th scope="row">${row.name}<br /><span class="quiet">${row.type}</span></th>
    <td><${State} state=${SHAPE[row.state]} reason=${row.reason} words=${t.bridge.states[row.state] ?? row.state} />
      ${row.reason && html`<p>${t.inWords(row.reason)}</p>`}
      <p class="hint"><${Times} since=${row.since / 1e9} retry_at=${retry} state=${state} /></p></td>
    <td class="figure">${format.count(row.delivered)}${row.repeated > 0 && html`<p class="hint">${t.bridge.repeated(row.repeated)}</p>`}</td>
    <td class="figure">${format.count(row.spooled)}${row.spooled > 0 && html`<p class="hint">${t.bridge.oldest(format.duration(row.oldest_s))}</p>`}</td>
    <td>${t.bridge.leftOut(row)}</td>
    <td class="figure">${format.count(droppedOf(row))}${causes.map(([cause, n]) => html`<p class="hint">${t.bridge.causes[cause] ?? cause}: ${format.count(n)}</p>`)}</td>
    <td>${row.figures.received ? t.bridge.sent(row.figures) : format.DASH}</td></tr>`;
}

function Feeds({ rows }) {
  const columns = [t.bridge.daemon, t.bridge.state, t.bridge.events, t.bridge.filled, t.bridge.lost];
  return html`<section><h3>${t.bridge.feeds}</h3><div class="scroll" tabindex="0" role="group" aria-label=${t.bridge.feeds}><table><thead><tr>${columns.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.daemon}><th scope="row">${row.daemon}</th>
      <td><${State} state=${SHAPE[row.state]} words=${t.bridge.states[row.state] ?? row.state} />${row.reason && html`<p>${t.inWords(row.reason)}</p>`}</td>
      <td class="figure">${format.count(row.events)}</td><td class="figure">${format.count(row.filled)}</td><td class="figure">${format.count(row.lost)}</td></tr>`)}</tbody></table></div></section>`;
}
