// The past: when each camera was recorded, and the player of one to four of them on one clock.
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { daemons, loaded } from "../model.js";
import { Empty, Notice } from "../parts.js";
import { useStore } from "../store.js";
import { t } from "../texts.js";
import { allPlaces, placeOf } from "../recorded/places.js";
import { Overview } from "../recorded/overview.js";
import { PlayerView } from "../recorded/player_view.js";

const AGAIN_MS = 20000;

/** Sources with recordings; null while nothing is known. */
function usePlaces() {
  const [state, setState] = useState(null);
  const rows = useStore(daemons);
  const isLoaded = useStore(loaded);
  const names = [...rows.values()].filter((row) => row.recordings).map((row) => row.name).sort().join();
  useEffect(() => {
    if (!isLoaded) return undefined;
    let current = true;
    const load = () => allPlaces().then((found) => current && setState((before) => (same(before, found) ? before : found)));
    load();
    const timer = setInterval(() => document.hidden || load(), AGAIN_MS);
    return () => {
      current = false;
      clearInterval(timer);
    };
  }, [isLoaded, names]);
  return state;
}

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

export default function Recordings({ route }) {
  const [daemon, source] = route.parts;
  const state = usePlaces();
  const first = useRef(null); // a place keeps its identity while it is played
  const last = useRef(null); // it is played on while nobody answers
  const found = (state && source !== undefined ? placeOf(state.places, daemon, source) : null) ?? last.current;
  last.current = found;
  if (found) first.current ??= { ...found, daemon };
  const place = useMemo(() => found && { ...first.current, daemons: found.daemons }, [found?.daemons.join()]);
  if (!state) return html`<h1>${source ?? t.recordings.title}</h1><p class="quiet">${t.loading}</p>`;
  const failed = state.failed.map((row) => html`<${Notice} kind="warning">${t.recordings.failed(row)}<//>`);
  if (source === undefined) return html`<${Overview} route=${route} places=${state.places} failed=${failed} />`;
  if (!place) return html`<h1>${source}</h1>${failed}<${Empty} title=${t.recordings.nothingOf(daemon, source)}><a href="/recordings">${t.recordings.all}</a><//>`;
  return html`${failed}<${PlayerView} route=${route} place=${place} places=${state.places} />`;
}
