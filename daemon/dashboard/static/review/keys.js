// The keyboard of the review. Fields keep their keys, and so does everything with Ctrl, Alt or Meta.
import { html, useEffect } from "../html.js";
import { Dialog } from "../parts.js";
import { t } from "../texts.js";

const NAMES = {
  j: "next", J: "next", ArrowDown: "next", k: "previous", K: "previous", ArrowUp: "previous",
  " ": "play", s: "mark", S: "mark", x: "mark", X: "mark", u: "undo", U: "undo",
  l: "keep", L: "keep", d: "download", D: "download", c: "copy", C: "copy",
  ArrowRight: "expand", ArrowLeft: "collapse", ".": "fresh", "?": "help",
};
const ARROWS = new Set(["ArrowDown", "ArrowUp", "ArrowRight", "ArrowLeft", " "]);
const WITHIN_DIALOG = new Set(["next", "previous", "mark", "undo", "keep", "download", "copy", "play"]);
const FIELDS = "input, select, textarea, [contenteditable]";

/** Call actions[name](event) for keys; those of a page that scrolls only where the list has the focus. */
export function useKeys(actions) {
  useEffect(() => {
    const onKey = (event) => {
      const name = NAMES[event.key];
      const focused = event.target.closest ? event.target : document.body;
      if (!name || event.ctrlKey || event.metaKey || event.altKey || focused.closest(FIELDS)) return;
      const dialog = focused.closest("dialog") ?? document.querySelector("dialog[open]");
      if (dialog && !(dialog.querySelector(".opened") && WITHIN_DIALOG.has(name))) return;
      // Buttons, links and a video keep their own keys.
      const isOwn = dialog ? focused.closest("video, button, a[href]") : !focused.closest(".event-main");
      if (ARROWS.has(event.key) && isOwn) return;
      event.preventDefault();
      actions[name]?.();
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  });
}

export function Help({ onClose }) {
  return html`<${Dialog} title=${t.review.help.title} onClose=${onClose}>
    <table class="keys"><tbody>${t.review.help.rows.map(([keys, words]) => html`<tr><th scope="row">${keys}</th><td>${words}</td></tr>`)}
    </tbody></table><p class="dialog-actions"><button type="button" onClick=${onClose}>${t.close}</button></p><//>`;
}
