// Small parts that several pages share.
import { html, useEffect, useRef, useState } from "./html.js";
import { Store, useStore } from "./store.js";
import { t } from "./texts.js";

const PATHS = {
  wall: "M3 4h8v7H3zM13 4h8v7h-8zM3 13h8v7H3zM13 13h8v7h-8z",
  events: "M5 5h14M5 12h14M5 19h9",
  recordings: "M12 4a8 8 0 1 1-7.4 5M4 4v5h5M12 8v4.5l3 2",
  health: "M3 12h4l2.5-7 5 14 2.5-7h4",
  sources: "M3 7h11v10H3zM14 10l7-3v10l-7-3",
  fleet: "M4 4h6v6H4zM14 14h6v6h-6zM14 4h6v6h-6zM7 10v7h7",
  bridge: "M3 17v-5a9 7 0 0 1 18 0v5M3 17h18M9 17v-4M15 17v-4",
  close: "M6 6l12 12M18 6L6 18",
  full: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
  undo: "M8 8H15a5 5 0 0 1 0 10H9M8 8l4-4M8 8l4 4",
  redo: "M16 8H9a5 5 0 0 0 0 10h6M16 8l-4-4M16 8l-4 4",
  trouble: "M12 4l9 16H3zM12 10v5M12 17.2v.3",
  fine: "M4 12.5l5 5L20 6.5",
  left: "M14 5l-7 7 7 7",
  right: "M10 5l7 7-7 7",
  larger: "M11 4a7 7 0 1 1 0 14a7 7 0 1 1 0-14M16 16l5 5M8 11h6M11 8v6",
  smaller: "M11 4a7 7 0 1 1 0 14a7 7 0 1 1 0-14M16 16l5 5M8 11h6",
  picture: "M4 7h4l1.5-2h5L16 7h4v12H4zM12 10a3 3 0 1 1 0 6a3 3 0 1 1 0-6",
  aside: "M3 5h18v14H3zM12 12h7v5h-7z",
  pin: "M9 4h6l-1 6 3 3H7l3-3zM12 13v7",
  play: "M8 5l11 7-11 7z",
  check: "M5 12.5l5 5L19 7",
  more: "M6 9l6 6 6-6",
  less: "M6 15l6-6 6 6",
  bin: "M5 7h14M9 7V4h6v3M7 7l1 13h8l1-13",
};

export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 24 24" width="18" height="18" aria-hidden="true" focusable="false">
    <path d=${PATHS[name]} fill="none" stroke="currentColor" stroke-width="1.8" stroke-linejoin="round"
      stroke-linecap="round" />
  </svg>`;
}

// A shape for each state: colour alone does not tell them apart.
const SHAPES = {
  up: "M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2z",
  connecting: "M8 3a5 5 0 1 1-5 5",
  stalled: "M3 3h3.5v10H3zM9.5 3H13v10H9.5z",
  down: "M8 1.8L15 14H1z",
  ended: "M3 3h10v10H3z",
  disabled: "M3 7h10v2H3z",
  away: "M8 1.8L15 14H1z",
};

export function State({ state, reason = null, words = null }) {
  const name = SHAPES[state] ? state : "disabled";
  return html`<span class=${`state state-${name}`} title=${t.inWords(reason)}>
    <svg viewBox="0 0 16 16" width="11" height="11" aria-hidden="true">
      <path d=${SHAPES[name]} fill=${name === "connecting" ? "none" : "currentColor"} stroke="currentColor"
        stroke-width=${name === "connecting" ? 2.4 : 0} />
    </svg>${words ?? t.states[state] ?? state}</span>`;
}

export function Notice({ kind = "info", children }) {
  return html`<div class=${`notice notice-${kind}`} role=${kind === "error" ? "alert" : null}>${children}</div>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p>${children}</div>`;
}

/** A label, its control, and a hint that the control refers to. */
export function Field({ label, hint = null, id, children }) {
  return html`<div class="field"><label for=${id}>${label}</label>${children}
    ${hint && html`<p class="hint" id=${`${id}-hint`}>${hint}</p>`}</div>`;
}

/** Figures with their names. */
export function Facts({ rows }) {
  return html`<dl class="facts">${rows
    .filter(Boolean)
    .map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** A dialog of the browser's own: it keeps the focus, and Escape closes it. */
export function Dialog({ title, onClose, children, wide = false }) {
  const element = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    element.current.showModal();
    element.current.querySelector("form :is(input, select), .dialog-actions button")?.focus();
    return () => before?.focus?.();
  }, []);
  const onCancel = (event) => {
    event.preventDefault();
    onClose();
  };
  return html`<dialog ref=${element} class=${wide ? "wide" : ""} aria-labelledby="dialog-title" onCancel=${onCancel}>
    <header><h2 id="dialog-title">${title}</h2>
      <button class="plain icon-only" aria-label=${t.close} onClick=${onClose}><${Icon} name="close" /></button></header>
    ${children}
  </dialog>`;
}

const spoken = new Store("");

/** Tell a screen reader. */
export const announce = (words) => spoken.set(words);

export function Announcer() {
  return html`<p class="spoken" aria-live="polite">${useStore(spoken)}</p>`;
}

/** The time now, in seconds; the component is drawn again at each interval. */
export function useNow(everyMs = 1000) {
  const [now, setNow] = useState(Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() / 1000), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

/** A value that this browser remembers. */
export function useRemembered(name, initial) {
  const [value, setValue] = useState(() => {
    try {
      return JSON.parse(localStorage.getItem(`lookout.${name}`)) ?? initial;
    } catch {
      return initial;
    }
  });
  const set = (next) => {
    setValue(next);
    try {
      localStorage.setItem(`lookout.${name}`, JSON.stringify(next));
    } catch { /* a browser that keeps nothing forgets this as well */ }
  };
  return [value, set];
}
