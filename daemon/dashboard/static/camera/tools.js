// What can be done with one camera's picture, and the way to its neighbours and its past.
import { at } from "../api.js";
import { html, useLayoutEffect } from "../html.js";
import { daemons, keyOf, mayChange, sources } from "../model.js";
import { announce, Icon } from "../parts.js";
import { go } from "../router.js";
import { useStore } from "../store.js";
import { t } from "../texts.js";
import { download } from "./snapshot.js";

const pathOf = (row) => `/camera/${at(row.daemon, row.id)}`;

/** The cameras before and after this one, by name; the last one's next is the first. */
function neighboursOf(row, rows) {
  const all = rows.filter((one) => one.enabled !== false || one === row)
    .sort((a, b) => a.id.localeCompare(b.id, undefined, { numeric: true }) || a.daemon.localeCompare(b.daemon));
  const place = all.indexOf(row);
  return all.length < 2 ? [] : [all[(place + all.length - 1) % all.length], all[(place + 1) % all.length]];
}

/** Links, and the keys P and N where nobody types. */
export function Neighbours({ row }) {
  const [before, after] = neighboursOf(row, [...useStore(sources).values()]);
  // At once: a key goes to the camera that is shown.
  useLayoutEffect(() => {
    const onKey = (event) => {
      const isTyping = event.target.closest?.("input, select, textarea, dialog");
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      const to = { p: before, n: after }[event.key.toLowerCase()];
      if (to) go(pathOf(to));
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, [before && pathOf(before), after && pathOf(after)]);
  if (!before) return null;
  const link = (to, icon, words) => html`<a class="button icon-only" href=${pathOf(to)} aria-label=${words} title=${words}><${Icon} name=${icon} /></a>`;
  return html`${link(before, "left", t.cameraTools.before(before.id))}${link(after, "right", t.cameraTools.after(after.id))}`;
}

/**
 * @param picture a ref: see Picture's handle
 * @param isVideo whether video is shown
 */
export function Tools({ row, picture, isVideo, zoom, stage }) {
  const hasPast = useStore(daemons).get(row.daemon)?.recordings;
  const say = (words) => announce(words);
  const keep = () => {
    const shown = picture.current?.shown();
    if (!shown) return say(t.cameraTools.noPicture);
    return download(row, shown).then(() => say(t.cameraTools.kept), () => say(t.cameraTools.noPicture));
  };
  const aside = () => {
    if (document.pictureInPictureElement) document.exitPictureInPicture();
    else picture.current?.video()?.requestPictureInPicture().catch((error) => say(error.message));
  };
  const full = () => (document.fullscreenElement ? document.exitFullscreen() : stage.current.requestFullscreen());
  const button = (name, words, act, more = {}) => html`<button class="icon-only" aria-label=${words} title=${words} onClick=${act} ...${more}><${Icon} name=${name} /></button>`;
  return html`
    <a class="button" href=${`/rules/${at(row.daemon, row.id)}`}>${t.camera.editRules}</a>
    ${mayChange() && html`<a class="button" href=${`/sources?change=${encodeURIComponent(keyOf(row.daemon, row.id))}`}>${t.camera.configure}</a>`}
    ${hasPast && html`<a class="button" href=${`/recordings/${at(row.daemon, row.id)}`}>${t.cameraTools.past}</a>`}
    <span class="button-row">
      ${button("smaller", t.cameraTools.smaller, () => zoom.by(-1), { disabled: zoom.zoom.k === 1 })}
      ${button("larger", t.cameraTools.larger, () => zoom.by(1))}
      ${button("picture", t.cameraTools.keep, keep, { title: t.cameraTools.keepHint })}
      ${document.pictureInPictureEnabled && button("aside", t.cameraTools.aside, aside, { disabled: !isVideo, title: t.cameraTools.asideHint })}
      ${button("full", t.camera.full, full)}
    </span>`;
}
