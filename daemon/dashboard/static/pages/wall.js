// The wall: any number of cameras. Tiles on the screen load stills; the most active of them show live video.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { daemons, loaded, mayChange, sources } from "../model.js";
import { Empty, Icon, useNow } from "../parts.js";
import { ratioOf } from "../picture.js";
import { useStore } from "../store.js";
import { t } from "../texts.js";
import { useWall } from "../wall/address.js";
import { GRIDS, placed } from "../wall/layout.js";
import { Tile } from "../wall/tile.js";
import { Views } from "../wall/views.js";

export const MAX_LIVE = 16;
const ACTIVE_S = 15; // an object was seen so lately
const CHOOSE_MS = 5000; // how often the live tiles are chosen again: video should not come and go
const NARROW = 640; // px; a phone scrolls
const GAP = 6;
const HEADING = 34;
const PINNED_SCORE = 4;

const keyOf = (row) => `${row.daemon}/${row.id}`;
const byName = (a, b) => a.id.localeCompare(b.id, undefined, { numeric: true }) || a.daemon.localeCompare(b.daemon);
// In steps: tiles should not change places with each object.
const levelOf = (row, now) => (row.state !== "up" ? 0 : now - row.activeAt < ACTIVE_S ? 2 : 1);

/** Rows in order, and in groups: [{name, rows}, ...]. Pinned ones come first, in the order in which they were pinned. */
export function arrange(rows, { find, sort, group, pin }, now) {
  const wanted = rows.filter((row) => row.id.toLowerCase().includes(find.trim().toLowerCase()));
  wanted.sort(sort === "name" ? byName : (a, b) => levelOf(b, now) - levelOf(a, now) || byName(a, b));
  const pinned = pin.flatMap((key) => wanted.filter((row) => keyOf(row) === key));
  const others = wanted.filter((row) => !pinned.includes(row));
  if (group === "none") return pinned.length + others.length ? [{ name: "", rows: [...pinned, ...others] }] : [];
  const nameOf = {
    daemon: (row) => row.daemon,
    state: (row) => t.states[row.state] ?? row.state,
    prefix: (row) => /^[^-_.\d]+/.exec(row.id)?.[0] ?? "…",
  }[group];
  const groups = new Map();
  for (const row of others) groups.set(nameOf(row), [...(groups.get(nameOf(row)) ?? []), row]);
  const found = [...groups].sort(([a], [b]) => a.localeCompare(b)).map(([name, members]) => ({ name, rows: members }));
  return pinned.length ? [{ name: t.wall.pinned, rows: pinned }, ...found] : found;
}

export default function Wall() {
  const rows = [...useStore(sources).values()].filter((row) => row.enabled !== false);
  const ready = useStore(loaded);
  const now = useNow(CHOOSE_MS);
  const [wall, change] = useWall();
  const visible = useVisible();
  const groups = arrange(rows, wall, now);
  const chosen = useChosen(rows, visible.keys, wall, now);
  if (ready && !rows.length) return html`<h1>${t.wall.title}</h1><${NoCameras} />`;
  const pin = (key) => change({ pin: wall.pin.includes(key) ? wall.pin.filter((one) => one !== key) : [...wall.pin, key] });
  return html`
    ${wall.full ? html`<${Corner} change=${change} />` : html`<div class="bar">
      <h1>${t.wall.title} <small aria-live="polite">${ready && summaryOf(rows)}</small></h1>
      <${Controls} wall=${wall} change=${change} />
    </div>`}
    ${!ready && html`<p class="quiet">${t.loading}</p>`}
    ${ready && !groups.length && html`<${Empty} title=${t.wall.noMatch(wall.find)} />`}
    <${Tiles} ...${{ groups, wall, chosen, pin }} onVisible=${visible.tell} />`;
}

/** All tiles in one list: one that moves to another group stays what it is, with its picture. */
function Tiles({ groups, wall, chosen, onVisible, pin }) {
  const list = useRef(null);
  const room = useRoom(list, wall.full);
  const isList = wall.layout === "list" || (room.width < NARROW && !wall.full && !GRIDS[wall.layout]);
  const tiles = groups.map(({ name, rows }) => ({ name, tiles: rows.map((row) => ({ key: keyOf(row), ratio: ratioOf(row) ?? 16 / 9 })) }));
  const found = isList || !room.width ? null : placed(tiles, wall.layout, room);
  return html`<ul ref=${list} class=${found ? "wall wall-filled" : "wall"} data-layout=${wall.layout} style=${{ height: found ? `${found.height}px` : null }}>
    ${groups.flatMap(({ name, rows }) => [
      name && html`<li key=${`heading ${name}`} class="wall-heading" style=${{ top: found ? `${found.headings.get(name)}px` : null }}><h2>${name} <small>${rows.length}</small></h2></li>`,
      ...rows.map((row) => html`<${Tile} key=${keyOf(row)} row=${row} live=${chosen.has(keyOf(row))} place=${found?.tiles.get(keyOf(row)) ?? null}
        isPinned=${wall.pin.includes(keyOf(row))} onVisible=${onVisible} onPin=${pin} />`),
    ])}</ul>`;
}

/** The part of the screen that is left for the wall, px. */
function useRoom(ref, full) {
  const [room, setRoom] = useState({ width: 0, height: 0, gap: GAP, heading: HEADING });
  useLayoutEffect(() => {
    const measure = () => {
      const { top, width } = ref.current.getBoundingClientRect();
      const height = Math.max(200, Math.floor(innerHeight - top - scrollY - (full ? GAP : 2 * GAP)));
      setRoom((before) => (before.width === width && before.height === height ? before : { ...before, width, height }));
    };
    const watcher = new ResizeObserver(measure);
    watcher.observe(ref.current.parentElement);
    watcher.observe(document.documentElement);
    window.addEventListener("resize", measure);
    measure();
    return () => {
      watcher.disconnect();
      window.removeEventListener("resize", measure);
    };
  }, [full]);
  return room;
}

function summaryOf(rows) {
  return t.wall.summary(rows.length, rows.filter((row) => row.state === "up").length);
}

function NoCameras() {
  const away = [...useStore(daemons).values()].filter((row) => row.state !== "up");
  if (away.length) return html`<${Empty} title=${t.wall.unknown}><p>${t.wall.unknownHint(away)}</p><//>`;
  return html`<${Empty} title=${t.wall.none}><p>${t.wall.noneHint}</p>
    ${mayChange() && html`<a class="button primary" href="/sources?add=1">${t.wall.add}</a>`}<//>`;
}

function Controls({ wall, change }) {
  const [views, setViews] = useState(false);
  const whole = () => {
    change({ full: "1" });
    document.documentElement.requestFullscreen?.().catch(() => {}); // a browser that does not allow it shows the wall alone
  };
  const select = (name, label, options) => html`<label class="inline" for=${`wall-${name}`}><span>${label}</span>
    <select id=${`wall-${name}`} value=${wall[name]} onChange=${(event) => change({ [name]: event.target.value })}>
      ${Object.entries(options).map(([key, words]) => html`<option value=${key}>${words}</option>`)}</select></label>`;
  return html`<div class="controls">
    <input type="search" aria-label=${t.wall.search} placeholder=${t.wall.search} value=${wall.find}
      onInput=${(event) => change({ find: event.target.value })} />
    ${select("layout", t.wall.layout, t.wall.layouts)}
    ${select("sort", t.wall.sort, t.wall.sorts)}
    ${select("group", t.wall.group, t.wall.groups)}
    <label class="switch" title=${t.wall.liveHint(MAX_LIVE)}>
      <input type="checkbox" role="switch" checked=${wall.live === "on"} onChange=${(event) => change({ live: event.target.checked ? "on" : "off" })} />
      <span>${t.wall.live}</span></label>
    <button onClick=${() => setViews(true)}>${t.wall.views}</button>
    <button class="icon-only" aria-label=${t.wall.whole} title=${t.wall.whole} onClick=${whole}><${Icon} name="full" /></button>
    ${views && html`<${Views} wall=${wall} onClose=${() => setViews(false)} />`}
  </div>`;
}

/** The way back from the wall that has the screen for itself: Escape, or a button that is seen while the mouse moves. */
function Corner({ change }) {
  const [seen, setSeen] = useState(true);
  const latest = useRef(change);
  latest.current = change;
  useEffect(() => {
    let timer = 0;
    const wake = () => {
      setSeen(true);
      clearTimeout(timer);
      timer = setTimeout(() => setSeen(false), 3000);
    };
    const leave = () => latest.current({ full: "" });
    const onKey = (event) => event.key === "Escape" && leave();
    const onScreen = () => document.fullscreenElement || leave();
    const listeners = [["pointermove", wake], ["pointerdown", wake], ["keydown", onKey], ["fullscreenchange", onScreen]];
    for (const [name, listener] of listeners) document.addEventListener(name, listener);
    wake();
    return () => {
      clearTimeout(timer);
      for (const [name, listener] of listeners) document.removeEventListener(name, listener);
    };
  }, []);
  const back = () => (document.fullscreenElement ? document.exitFullscreen() : change({ full: "" }));
  return html`<h1 class="spoken">${t.wall.title}</h1>
    <div class=${`corner ${seen ? "" : "is-quiet"}`}><button onClick=${back}>${t.wall.leave}</button></div>`;
}

/** The keys of tiles on the screen. */
function useVisible() {
  const [keys, setKeys] = useState(new Set());
  const tell = useMemo(() => (key, on) => setKeys((before) => {
    if (before.has(key) === on) return before;
    const after = new Set(before);
    if (on) after.add(key);
    else after.delete(key);
    return after;
  }), []);
  return { keys, tell };
}

/** The keys of pinned and of the most active of these rows, MAX_LIVE at most. Those of `before` stay if they can. */
export function mostActive(rows, before, now, pin = []) {
  const score = (row) => levelOf(row, now) + (before.has(keyOf(row)) ? 0.5 : 0) + (pin.includes(keyOf(row)) ? PINNED_SCORE : 0);
  const sorted = rows.filter((row) => row.state === "up").sort((a, b) => score(b) - score(a) || byName(a, b));
  return new Set(sorted.slice(0, MAX_LIVE).map(keyOf));
}

/** The keys of tiles that show live video: the most active on the screen. */
function useChosen(rows, visible, { live, pin }, now) {
  const before = useRef(new Set());
  return useMemo(() => {
    const able = live === "on" ? rows.filter((row) => visible.has(keyOf(row))) : [];
    before.current = mostActive(able, before.current, now, pin);
    return before.current;
  }, [live, now, visible, pin.join(), rows.map((row) => row.state + row.daemon + row.id).join()]);
}
