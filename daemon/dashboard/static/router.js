// Client-side routes: one module a page, loaded when it is first opened.
import { Store } from "./store.js";

const ROUTES = [
  [/^\/$/, "wall"],
  [/^\/camera\/([^/]+)\/([^/]+)$/, "camera"],
  [/^\/events$/, "events"],
  [/^\/recordings$/, "recordings"],
  [/^\/recordings\/([^/]+)\/([^/]+)$/, "recordings"],
  [/^\/health$/, "health"],
  [/^\/sources$/, "sources"],
  [/^\/fleet$/, "fleet"],
  [/^\/bridge$/, "bridge"],
  [/^\/rules\/([^/]+)\/([^/]+)$/, "rules"],
  [/^\/login$/, "login"],
];

export const route = new Store(parse());
let blocker = null;
let place = history.state?.place ?? 0; // of the present entry among those that this tab has made
let returning = false;
history.replaceState({ place }, "");

function parse() {
  const query = new URLSearchParams(location.search);
  for (const [pattern, page] of ROUTES) {
    const match = pattern.exec(location.pathname);
    try {
      if (match) return { page, parts: match.slice(1).map(decodeURIComponent), query, path: location.pathname };
    } catch { /* a percent sign that begins nothing */ }
  }
  return { page: "missing", parts: [], query, path: location.pathname };
}

/** Ask this function before the page is left; it returns whether that is fine. */
export function guard(question) {
  blocker = question;
  return () => {
    if (blocker === question) blocker = null;
  };
}

const mayLeave = () => !blocker || blocker();

/** Write the address; `step` is 1 for a new entry of the history, and 0 for another address in the present one. */
function write(address, step) {
  place += step;
  history[step ? "pushState" : "replaceState"]({ place }, "", address);
  route.set(parse());
}

export function go(path, { replace = false } = {}) {
  if (!mayLeave()) return;
  const before = route.value.path;
  write(path, replace ? 0 : 1);
  if (route.value.path !== before) window.scrollTo(0, 0);
}

/** Back to what was seen before, or to an address if there was nothing here before. */
export function back(address) {
  if (place > 0) history.back();
  else go(address, { replace: true });
}

/** This page with another query: what is absent or empty is left out. */
export function withQuery(values) {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value));
  return location.pathname + (query.size ? `?${query}` : "");
}

/** Change the query alone: filters belong into the address, and not into the history. */
export const setQuery = (values) => write(withQuery(values), 0);

/** The same without telling anybody: a page says where it is, as somebody may send the address or load it again. */
export const noteQuery = (values) => history.replaceState({ place }, "", withQuery(values));

window.addEventListener("popstate", (event) => {
  if (!event.state) {
    // A part of this page, by a link: the browser has made the entry.
    place += 1;
    history.replaceState({ place }, "");
    return;
  }
  const step = event.state.place - place;
  if (step && !returning && !mayLeave()) {
    returning = true; // the browser has gone already, and is sent back
    history.go(-step);
    return;
  }
  place = event.state.place;
  if (!returning) route.set(parse());
  returning = false;
});
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!link || !plain || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  if (link.hash && link.pathname === location.pathname) return;
  event.preventDefault();
  go(link.pathname + link.search);
});
window.addEventListener("beforeunload", (event) => blocker && event.preventDefault());
