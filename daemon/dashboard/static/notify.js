// Notifications of events, while this tab is not looked at. The browser is asked by a click alone.
import { at } from "./api.js";
import { feed } from "./feed.js";
import { html, useState } from "./html.js";
import { useRemembered } from "./parts.js";
import { go } from "./router.js";
import { Store, useStore } from "./store.js";
import { t } from "./texts.js";

const TOGETHER_MS = 4000; // events of so long are one notification
const isOn = new Store(false);
let waiting = [];
let timer = 0;

/** Why there can be no notifications here, in words; null if there can. */
export function obstacle() {
  if (!window.isSecureContext) return t.notify.insecure;
  if (!("Notification" in window)) return t.notify.unknown;
  return Notification.permission === "denied" ? t.notify.denied : null;
}

function show() {
  timer = 0;
  const rows = waiting;
  waiting = [];
  const [first] = rows;
  const more = rows.length - 1;
  const options = { body: more ? t.notify.more(first.source, more) : first.source, icon: "/static/icons/192.png", tag: `lookout ${first.id}` };
  try {
    const told = new Notification(t.events.say(first), options);
    told.onclick = () => {
      window.focus();
      go(more ? "/events" : `/events?event=${at(first.daemon)}/${at(first.id)}`);
      told.close();
    };
  } catch { /* some phones allow it to installed pages alone, and the switch says so */ }
}

feed.on("event", ({ daemon, message }) => {
  if (!isOn.value || obstacle() || Notification.permission !== "granted" || (!document.hidden && document.hasFocus())) return;
  waiting.push({ daemon, ...message });
  timer ||= setTimeout(show, TOGETHER_MS);
});

/** A switch, or why there is none. */
export function Notifications() {
  const [wanted, remember] = useRemembered("notify", false);
  const [refused, setRefused] = useState(null);
  const [, redraw] = useState(0);
  useStore(isOn);
  const why = refused ?? obstacle();
  isOn.value = wanted && !why && Notification.permission === "granted";
  const change = async (on) => {
    const answer = on ? await Notification.requestPermission() : "granted";
    if (answer === "denied") setRefused(t.notify.denied);
    remember(on && answer === "granted");
    redraw((n) => n + 1); // a question that is left open changes nothing but the switch
  };
  return html`<div class="tray-more">
    <label class="switch"><input type="checkbox" role="switch" checked=${isOn.value} disabled=${Boolean(why)} aria-describedby="notify-why"
      onChange=${(event) => change(event.target.checked)} /><span>${t.notify.events}</span></label>
    <p class="hint" id="notify-why">${why ?? t.notify.hint}</p></div>`;
}

/** Whether they were wanted when this browser was here last. */
export function resume() {
  try {
    isOn.value = JSON.parse(localStorage.getItem("lookout.notify")) === true && !obstacle() && Notification.permission === "granted";
  } catch { /* nothing is kept */ }
}
