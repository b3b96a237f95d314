// What is wrong now: since when, why, and when the next try is. A tray in the header shows it on each page.
import { at } from "./api.js";
import { utc } from "./clock.js";
import { bridges, bridgeTroubles } from "./bridges.js";
import { feed } from "./feed.js";
import * as format from "./format.js";
import { html, useEffect, useMemo, useRef, useState } from "./html.js";
import { daemons, slow, SLOW_S, sources } from "./model.js";
import { announce, Icon, useNow } from "./parts.js";
import { useStore } from "./store.js";
import { t } from "./texts.js";

const PATIENCE_S = 10; // a connection that is not made yet is no trouble for so long
const MANY = 3; // more news are told as a number

/**
 * @returns [{key, title, words, since, retryAt, href, isNote}, ...], the newest first; times are UTC, s, or null. A note is
 *   not counted.
 */
export function troublesOf({ connection, daemonRows, sourceRows, slowRows, bridgeRows = [] }, now) {
  const found = [];
  const add = (key, title, words, more = {}) => found.push({ key, title, words, since: null, retryAt: null, href: null, isNote: false, ...more });
  if (!connection.open && connection.tries > 0) add("page", t.troubles.page, t.troubles.pageAway, { since: connection.since, retryAt: connection.retryAt });
  const up = new Set();
  const several = daemonRows.length > 1;
  for (const row of daemonRows) {
    const { name, state, since } = row;
    const reason = t.inWords(row.reason);
    if (state === "up") up.add(name);
    if (state === "away") add(`daemon ${name}`, t.troubles.daemon(name), t.troubles.state(t.states.away, reason), { since });
    else if (state === "connecting" && now - since > PATIENCE_S) add(`daemon ${name}`, t.troubles.daemon(name), t.troubles.connecting, { since });
    else if (state === "up" && reason) add(`api ${name}`, t.troubles.daemon(name), t.troubles.api(reason), { isNote: true });
    for (const store of state === "up" ? (row.stores ?? []) : []) {
      if (store.cause) add(`store ${name}/${store.name}`, t.troubles.store(store.name, name), t.troubles.notWritten(t.inWords(store.reason) ?? store.cause), { since: store.since });
    }
  }
  for (const row of sourceRows) {
    if (!up.has(row.daemon) || row.enabled === false) continue;
    const [title, href] = [t.troubles.source(row.id, several ? row.daemon : null), `/camera/${at(row.daemon, row.id)}`];
    const key = `source ${row.daemon}/${row.id}`;
    if (row.trouble) {
      const { since, reason, retry_at: retryAt } = row.trouble;
      const words = reason ? t.troubles.state(t.states[row.state] ?? row.state, t.inWords(reason)) : row.state === "connecting" ? t.troubles.waits : (t.states[row.state] ?? row.state);
      if (row.state !== "connecting" || reason || now - since > PATIENCE_S) add(key, title, words, { since, retryAt: row.state === "down" ? retryAt : null, href });
    } else if (row.state === "up" && row.reason) add(key, title, t.troubles.partly(t.inWords(row.reason)), { href, isNote: true });
  }
  for (const row of bridgeRows) for (const { key, title, words, ...more } of bridgeTroubles(row, now)) add(key, title, words, more);
  const lost = slowRows.filter((row) => row.at > now - SLOW_S).reduce((sum, row) => sum + row.messages, 0);
  if (lost) add("slow", t.troubles.slow, t.troubles.slowFor(lost), { isNote: true });
  return found.sort((a, b) => a.isNote - b.isNote || (b.since ?? 0) - (a.since ?? 0));
}

export function useTroubles() {
  useNow(1000);
  const given = {
    connection: useStore(feed.state), daemonRows: [...useStore(daemons).values()], sourceRows: [...useStore(sources).values()], slowRows: useStore(slow),
    bridgeRows: [...useStore(bridges).values()],
  };
  return troublesOf(given, utc());
}

/** A screen reader hears of what is new, and of what is over. */
function useAnnounced(rows) {
  const before = useRef(null);
  const keys = rows.filter((row) => !row.isNote).map((row) => row.key);
  useEffect(() => {
    const fresh = rows.filter((row) => !row.isNote && before.current && !before.current.includes(row.key));
    if (fresh.length > MANY) announce(t.troubles.toldMany(fresh.length));
    else if (fresh.length) announce(t.troubles.told(fresh.map((row) => `${row.title}: ${row.words}`).join(". ")));
    else if (before.current && before.current.length > keys.length) announce(t.troubles.over(keys.length));
    before.current = keys;
  }, [keys.join("\n")]);
}

/** Since when, and when the next try is; both UTC, s, or null. */
export function Times({ since, retry_at: retryAt = null, state = "down" }) {
  useNow(1000);
  const now = utc();
  const wait = retryAt === null || state !== "down" ? null : Math.ceil(retryAt - now);
  return html`${since !== null && html`<time datetime=${format.isoOf(since)} title=${format.dateOf(since)}>${t.troubles.since(format.momentOf(since, now), format.duration(Math.max(0, now - since)))}</time>`}
    ${wait !== null && html`<span> · ${wait > 0 ? t.troubles.next(format.duration(wait)) : t.troubles.now}</span>`}`;
}

function Trouble({ row }) {
  const { title, words, since, retryAt, href } = row;
  return html`<li class=${row.isNote ? "trouble is-note" : "trouble"}>
    <b>${href ? html`<a href=${href}>${title}</a>` : title}</b> <span>${words}</span>
    ${(since !== null || retryAt !== null) && html`<p class="hint"><${Times} since=${since} retry_at=${retryAt} /></p>`}</li>`;
}

/** The button with the number, and the list below it. @param children stand below the list */
export function Tray({ children = null }) {
  const [open, setOpen] = useState(false);
  const rows = useTroubles();
  const whole = useRef(null);
  const button = useRef(null);
  useAnnounced(rows);
  const close = useMemo(() => () => setOpen(false), []);
  useEffect(() => {
    if (!open) return undefined;
    const outside = (event) => whole.current?.contains(event.target) || close();
    const onKey = (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      close();
      button.current?.focus();
    };
    document.addEventListener("pointerdown", outside);
    document.addEventListener("keydown", onKey, true);
    return () => {
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("keydown", onKey, true);
    };
  }, [open]);
  const count = rows.filter((row) => !row.isNote).length;
  return html`<div class="tray" ref=${whole}>
    <button ref=${button} class=${count ? "tray-button has-troubles" : "tray-button"} aria-expanded=${open} aria-controls="troubles" onClick=${() => setOpen(!open)}>
      <${Icon} name=${count ? "trouble" : "fine"} /><span class="tray-words">${t.troubles.button(count)}</span></button>
    <section id="troubles" class="tray-list" aria-label=${t.troubles.title} hidden=${!open} tabindex=${open ? 0 : null} onClick=${(event) => event.target.closest("a") && close()}>
      ${open && html`<h2>${t.troubles.title}</h2>
        ${rows.length ? html`<ul>${rows.map((row) => html`<${Trouble} key=${row.key} row=${row} />`)}</ul>` : html`<p class="quiet">${t.troubles.none}</p>`}
        ${children}`}
    </section></div>`;
}
