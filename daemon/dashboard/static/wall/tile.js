// One camera of a wall.
import { at } from "../api.js";
import * as format from "../format.js";
import { html, useEffect, useRef } from "../html.js";
import { counts, daemons } from "../model.js";
import { Icon, State } from "../parts.js";
import { Picture, useOnScreen } from "../picture.js";
import { useStore } from "../store.js";
import { t } from "../texts.js";

const OPTIONS = { small: true };

function objectsOf(row) {
  const occupied = counts.value.get(`${row.daemon}/${row.id}`)?.occupancy.filter((one) => one.rule === null);
  return occupied?.length ? occupied.reduce((sum, one) => sum + one.count, 0) : null;
}

/**
 * @param place {left, top, width, height} in px; null where the page's style places it
 * @param onPin pins it, or ends that
 */
export function Tile({ row, live, place, isPinned, onVisible, onPin }) {
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
  const style = place && { left: `${place.left}px`, top: `${place.top}px`, width: `${place.width}px`, height: `${place.height}px`, "--tile-height": `${place.height}px` };
  return html`<li ref=${tile} class=${`tile ${isPinned ? "is-pinned" : ""}`} data-state=${row.state} style=${style}>
    <a href=${`/camera/${at(row.daemon, row.id)}`}>
      <${Picture} row=${row} live=${live} options=${OPTIONS} />
      <div class="tile-words">
        <span class="tile-name">${row.id}${several && html`<small>${row.daemon}</small>`}</span>
        <${State} state=${row.state} reason=${row.reason} />
        ${row.state === "up" && html`<span class="tile-figures">${format.fps(row.analysed_fps)} /s${objects !== null && html` · ${t.wall.objects(objects)}`}${drops >= 1 && html` · <span class="warn">${t.wall.dropped(format.count(drops))}</span>`}</span>`}
        ${row.state !== "up" && row.reason && html`<p class="tile-reason">${t.inWords(row.reason)}</p>`}
      </div>
    </a>
    <button class="tile-pin icon-only" aria-label=${t.wall.pin(row.id)} aria-pressed=${isPinned} title=${t.wall.pinHint} onClick=${() => onPin(key)}><${Icon} name="pin" /></button>
  </li>`;
}
