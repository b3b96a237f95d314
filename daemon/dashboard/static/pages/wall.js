// The wall: any number of cameras. Tiles on the screen load stills; the most active of them show live video.
import { at } from "../api.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import * as format from "../format.js";
import { counts, daemons, loaded, mayChange, sources } from "../model.js";
import { announce, Empty, Icon, State, useNow, useRemembered } from "../parts.js";
import { Picture, useOnScreen } from "../picture.js";
import { route, setQuery } from "../router.js";
import { useStore } from "../store.js";
import { t } from "../texts.js";

export const MAX_LIVE = 16;
const ACTIVE_S = 15; // an object was seen so lately
const CHOOSE_MS = 5000; // how often the live tiles are chosen again: video should not come and go

const byName = (a, b) => a.id.localeCompare(b.id, undefined, { numeric: true }) || a.daemon.localeCompare(b.daemon);
// In steps: tiles should not change places with each object.
const levelOf = (row, now) => (row.state !== "up" ? 0 : now - row.activeAt < ACTIVE_S ? 2 : 1);

/** Rows in order, and in groups: [[name, rows], ...]. */
export function arrange(rows, { text, sort, group }, now) {
  const wanted = rows.filter((row) => row.id.toLowerCase().includes(text.trim().toLowerCase()));
  wanted.sort(sort === "name" ? byName : (a, b) => levelOf(b, now) - levelOf(a, now) || byName(a, b));
  const nameOf = {
    none: () => "",
    daemon: (row) => row.daemon,
    state: (row) => t.states[row.state] ?? row.state,
    prefix: (row) => /^[^-_.\d]+/.exec(row.id)?.[0] ?? "…",
  }[group];
  const groups = new Map();
  for (const row of wanted) groups.set(nameOf(row), [...(groups.get(nameOf(row)) ?? []), row]);
  return [...groups].sort(([a], [b]) => a.localeCompare(b));
}

export default function Wall() {
  const rows = [...useStore(sources).values()].filter((row) => row.enabled !== false);
  const ready = useStore(loaded);
  const now = useNow(CHOOSE_MS);
  const query = useStore(route).query;
  const [sort, setSort] = useRemembered("wall.sort", "activity");
  const [group, setGroup] = useRemembered("wall.group", "none");
  const [live, setLive] = useRemembered("wall.live", true);
  const text = query.get("find") ?? "";
  const visible = useVisible();
  const arranged = arrange(rows, { text, sort, group }, now);
  const chosen = useChosen(rows, visible.keys, live, now);
  useAnnouncedStates(rows);
  if (ready && !rows.length) return html`<h1>${t.wall.title}</h1><${NoCameras} />`;
  return html`
    <div class="bar">
      <h1>${t.wall.title} <small aria-live="polite">${ready && summaryOf(rows)}</small></h1>
      <${Controls} ...${{ text, sort, setSort, group, setGroup, live, setLive }} />
    </div>
    ${!ready && html`<p class="quiet">${t.loading}</p>`}
    ${ready && !arranged.length && html`<${Empty} title=${t.wall.noMatch(text)} />`}
    ${arranged.map(([name, members]) => html`<section key=${name} class="group">
      ${name && html`<h2>${name} <small>${members.length}</small></h2>`}
      <ul class="wall">${members.map((row) => {
        const key = `${row.daemon}/${row.id}`;
        return html`<${Tile} key=${key} row=${row} live=${chosen.has(key)} onVisible=${visible.tell} />`;
      })}</ul>
    </section>`)}`;
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

function Controls({ text, sort, setSort, group, setGroup, live, setLive }) {
  const full = () => (document.fullscreenElement ? document.exitFullscreen() : document.documentElement.requestFullscreen());
  const select = (id, label, options, value, set) => html`<label class="inline" for=${id}><span>${label}</span>
    <select id=${id} value=${value} onChange=${(event) => set(event.target.value)}>
      ${Object.entries(options).map(([key, words]) => html`<option value=${key}>${words}</option>`)}</select></label>`;
  return html`<div class="controls">
    <input type="search" aria-label=${t.wall.search} placeholder=${t.wall.search} value=${text}
      onInput=${(event) => setQuery({ find: event.target.value })} />
    ${select("wall-sort", t.wall.sort, t.wall.sorts, sort, setSort)}
    ${select("wall-group", t.wall.group, t.wall.groups, group, setGroup)}
    <label class="switch" title=${t.wall.liveHint(MAX_LIVE)}>
      <input type="checkbox" role="switch" checked=${live} onChange=${(event) => setLive(event.target.checked)} />
      <span>${t.wall.live}</span></label>
    <button class="icon-only" aria-label=${t.wall.full} title=${t.wall.full} onClick=${full}><${Icon} name="full" /></button>
  </div>`;
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

/** The keys of the most active of these rows, MAX_LIVE at most. Those of `before` stay if they can. */
export function mostActive(rows, before, now) {
  const score = (row) => levelOf(row, now) + (before.has(`${row.daemon}/${row.id}`) ? 0.5 : 0);
  const sorted = rows.filter((row) => row.state === "up").sort((a, b) => score(b) - score(a) || byName(a, b));
  return new Set(sorted.slice(0, MAX_LIVE).map((row) => `${row.daemon}/${row.id}`));
}

/** The keys of tiles that show live video: the most active on the screen. */
function useChosen(rows, visible, live, now) {
  const before = useRef(new Set());
  return useMemo(() => {
    const able = live ? rows.filter((row) => visible.has(`${row.daemon}/${row.id}`)) : [];
    before.current = mostActive(able, before.current, now);
    return before.current;
  }, [live, now, visible, rows.map((row) => row.state + row.daemon + row.id).join()]);
}

/** A screen reader hears of cameras that change their state. */
function useAnnouncedStates(rows) {
  const before = useRef(null);
  useEffect(() => {
    const after = new Map(rows.map((row) => [`${row.daemon}/${row.id}`, row.state]));
    for (const [key, state] of before.current ? after : []) {
      const old = before.current.get(key);
      if (old && old !== state) announce(t.wall.stateChanged(key.split("/")[1], t.states[state] ?? state));
    }
    before.current = after;
  });
}

function objectsOf(row) {
  const occupied = counts.value.get(`${row.daemon}/${row.id}`)?.occupancy.filter((one) => one.rule === null);
  return occupied?.length ? occupied.reduce((sum, one) => sum + one.count, 0) : null;
}

const OPTIONS = { small: true };

function Tile({ row, live, onVisible }) {
  const tile = useRef(null);
  const visible = useOnScreen(tile);
  const key = `${row.daemon}/${row.id}`;
  useStore(counts);
  useEffect(() => {
    onVisible(key, visible);
    return () => onVisible(key, false);
  }, [key, visible]);
  const several = useStore(daemons).size > 1;
  const objects = objectsOf(row);
  // Frames above a limit that somebody has set are no trouble.
  const { rate_limit: _, ...causes } = row.drops ?? {};
  const drops = Object.values(causes).reduce((sum, n) => sum + n, 0);
  return html`<li ref=${tile} class="tile" data-state=${row.state}>
    <a href=${`/camera/${at(row.daemon, row.id)}`}>
      <${Picture} row=${row} live=${live} options=${OPTIONS} />
      <div class="tile-words">
        <span class="tile-name">${row.id}${several && html`<small>${row.daemon}</small>`}</span>
        <${State} state=${row.state} reason=${row.reason} />
        ${row.state === "up" && html`<span class="tile-figures">${format.fps(row.analysed_fps)} /s${objects !== null && html` · ${t.wall.objects(objects)}`}${drops >= 1 && html` · <span class="warn">${t.wall.dropped(format.count(drops))}</span>`}</span>`}
      </div>
      ${row.state !== "up" && row.reason && html`<p class="tile-reason">${row.reason}</p>`}
    </a>
  </li>`;
}
