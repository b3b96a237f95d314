// Fleets: their members, their load, which one owns each source, and what has no place.
import { at, get, send } from "../api.js";
import * as format from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { mayChange } from "../model.js";
import { announce, Dialog, Empty, Field, Notice, State } from "../parts.js";
import { t } from "../texts.js";

const REFRESH_MS = 3000;
const MAX_ROWS = 200;
// The shapes of states that cameras have.
const SHAPE = { ready: "up", starting: "connecting", leaving: "stalled", drained: "stalled", gone: "down",
  owned: "up", claiming: "connecting", moving: "connecting", waiting: "down", disabled: "disabled" };

export default function Fleets() {
  const [{ fleets, failure }, setState] = useState({ fleets: null, failure: null });
  const load = () => get("/api/fleets").then(
    (fleets) => setState({ fleets, failure: null }),
    (error) => setState((before) => ({ ...before, failure: error.message })),
  );
  useEffect(() => {
    load();
    const timer = setInterval(() => document.hidden || load(), REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  return html`<div class="bar"><h1>${t.fleet.title}</h1></div>
    ${failure && html`<${Notice} kind="error">${failure}<//>`}
    ${fleets && !fleets.length && html`<${Empty} title=${t.fleet.none} />`}
    ${fleets?.map((row) => (row.daemon === null
      ? html`<${Notice} key=${row.name} kind="error">${t.fleet.failed(row.name, row.failure)}<//>`
      : html`<${Fleet} key=${row.name} row=${row} load=${load} />`))}`;
}

function Fleet({ row, load }) {
  const [draining, setDraining] = useState(null);
  const [failure, setFailure] = useState(null);
  const act = async (command, body, words) => {
    setFailure(null);
    try {
      const answer = await send("POST", `/api/fleet/${at(row.daemon, command)}`, body);
      announce(words(answer));
      await load();
    } catch (error) {
      setFailure(error.message);
    }
  };
  const owned = row.sources.filter((one) => one.state === "owned").length;
  return html`<section class="daemon stack" aria-labelledby=${`fleet-${row.name}`}>
    <h2 id=${`fleet-${row.name}`}>${row.name}</h2>
    <p>${t.fleet.summary(row, owned)}</p>
    ${!row.own.coordinator_up && html`<${Notice} kind="warning">${t.fleet.coordinatorAway(row.own.member)}<//>`}
    ${row.own.problem && html`<${Notice} kind="warning">${row.own.member}: ${row.own.problem}<//>`}
    ${Object.entries(row.problems).map(([key, reason]) => html`<${Notice} key=${key} kind="warning">${t.fleet.problem(key, reason)}<//>`)}
    ${failure && html`<${Notice} kind="error">${failure}<//>`}
    <${Members} rows=${row.members} onDrain=${setDraining}
      onUndrain=${(name) => act("undrain", { member: name }, () => t.fleet.undrained(name))} />
    <${Sources} rows=${row.sources} name=${row.name} />
    ${draining && html`<${DrainForm} member=${draining} onClose=${() => setDraining(null)} onDrain=${(reason) => {
      setDraining(null);
      act("drain", { member: draining.name, reason }, (answer) => t.fleet.drained(draining.name, answer.without_room.length));
    }} />`}
  </section>`;
}

function Members({ rows, onDrain, onUndrain }) {
  const may = mayChange();
  return html`<div class="scroll" tabindex="0" role="group" aria-label=${t.fleet.members}><table>
    <thead><tr><th>${t.fleet.member}</th><th>${t.fleet.state}</th><th>${t.fleet.owned}</th><th>${t.fleet.load}</th><th>${t.fleet.notes}</th>
      ${may && html`<th>${t.fleet.actions}</th>`}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.name}>
      <th scope="row">${row.name}</th>
      <td><${State} state=${SHAPE[row.state]} words=${t.fleet.memberStates[row.state]} /></td>
      <td class="figure">${t.fleet.ofWanted(row.owned, row.wanted)}</td>
      <td>${loadOf(row)}</td>
      <td>${notesOf(row)}</td>
      ${may && html`<td class="actions">${row.state === "drained" || (row.state === "gone" && row.reason)
        ? html`<button onClick=${() => onUndrain(row.name)}>${t.fleet.undrain}<span class="spoken"> ${row.name}</span></button>`
        : html`<button onClick=${() => onDrain(row)}>${t.fleet.drain}<span class="spoken"> ${row.name}</span></button>`}</td>`}
    </tr>`)}</tbody></table></div>`;
}

/** The fullest resources, the fullest first. */
function loadOf(row) {
  const shares = Object.entries(row.usage).sort((a, b) => b[1] - a[1]).slice(0, 2);
  return shares.length ? shares.map(([name, share]) => `${name} ${format.percent(100 * share)}`).join(", ") : format.DASH;
}

const notesOf = (row) => [
  row.reason,
  row.losses > 0 && t.fleet.losses(row.losses),
  row.held_down && t.fleet.heldDown,
  Object.entries(row.labels).map(([key, value]) => `${key}=${value}`).join(", "),
].filter(Boolean).join("; ");

function Sources({ rows, name }) {
  const [text, setText] = useState("");
  const [unsettled, setUnsettled] = useState(true);
  const sought = text.trim().toLowerCase();
  const matches = (row) => !sought || [row.id, row.owner, row.member].some((one) => one?.toLowerCase().includes(sought));
  const wanted = rows.filter((row) => matches(row) && (!unsettled || sought || !["owned", "disabled"].includes(row.state)));
  const shown = wanted.slice(0, MAX_ROWS);
  const id = `unsettled-${name}`;
  return html`<div class="controls">
      <input type="search" aria-label=${t.fleet.search} placeholder=${t.fleet.find} value=${text} onInput=${(event) => setText(event.target.value)} />
      <label class="switch" for=${id}><input id=${id} type="checkbox" checked=${unsettled} onChange=${(event) => setUnsettled(event.target.checked)} /> ${t.fleet.unsettled}</label>
      <span class="quiet">${t.fleet.found(shown.length, rows.length)}</span></div>
    ${shown.length ? html`<div class="scroll" tabindex="0" role="group" aria-label=${t.fleet.sources}><table>
      <thead><tr><th>${t.fleet.source}</th><th>${t.fleet.state}</th><th>${t.fleet.member}</th><th>${t.fleet.owner}</th><th>${t.fleet.reason}</th></tr></thead>
      <tbody>${shown.map((row) => html`<tr key=${row.id}>
        <th scope="row">${row.id}</th>
        <td><${State} state=${SHAPE[row.state]} words=${t.fleet.sourceStates[row.state]} /></td>
        <td>${row.member ?? format.DASH}${row.pinned && html` <small>${t.fleet.pinned}</small>`}</td>
        <td>${row.owner ?? format.DASH}</td>
        <td>${row.reason}</td>
      </tr>`)}</tbody></table></div>` : html`<p class="quiet">${unsettled && !sought ? t.fleet.allSettled : t.none}</p>`}`;
}

function DrainForm({ member, onClose, onDrain }) {
  const [reason, setReason] = useState(t.fleet.whyDefault);
  const submit = (event) => {
    event.preventDefault();
    onDrain(reason);
  };
  return html`<${Dialog} title=${t.fleet.drainTitle(member.name)} onClose=${onClose}>
    <form onSubmit=${submit}><p>${t.fleet.drainWords(member.owned)}</p>
      <${Field} label=${t.fleet.why} hint=${t.fleet.whyHint} id="drain-reason">
        <input id="drain-reason" aria-describedby="drain-reason-hint" value=${reason} onInput=${(event) => setReason(event.target.value)} /><//>
      <p class="dialog-actions"><button type="button" onClick=${onClose}>${t.cancel}</button>
        <button class="primary">${t.fleet.drain}</button></p></form><//>`;
}
