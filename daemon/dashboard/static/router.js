// Client-side routes: one module a page, loaded when it is first opened.
import { Store } from "./store.js";

const ROUTES = [
  [/^\/$/, "wall"],
  [/^\/camera\/([^/]+)\/([^/]+)$/, "camera"],
  [/^\/events$/, "events"],
  [/^\/health$/, "health"],
  [/^\/sources$/, "sources"],
  [/^\/fleet$/, "fleet"],
  [/^\/rules\/([^/]+)\/([^/]+)$/, "rules"],
  [/^\/login$/, "login"],
];

export const route = new Store(parse());
let blocker = null;

function parse() {
  const query = new URLSearchParams(location.search);
  for (const [pattern, page] of ROUTES) {
    const match = pattern.exec(location.pathname);
    if (match) return { page, parts: match.slice(1).map(decodeURIComponent), query, path: location.pathname };
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

export function go(path, { replace = false } = {}) {
  if (blocker && !blocker()) return;
  history[replace ? "replaceState" : "pushState"](null, "", path);
  const before = route.value.path;
  route.set(parse());
  if (route.value.path !== before) window.scrollTo(0, 0);
}

/** Change the query alone: filters belong into the address, and not into the history. */
export function setQuery(values) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value) query.set(name, value);
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
  route.set(parse());
}

window.addEventListener("popstate", () => route.set(parse()));
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!link || !plain || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  if (link.hash && link.pathname === location.pathname) return;
  event.preventDefault();
  go(link.pathname + link.search);
});
window.addEventListener("beforeunload", (event) => blocker && event.preventDefault());
