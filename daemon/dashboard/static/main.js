// Starts the pages: session, feed, the frame around each page.
import { send } from "./api.js";
import { followBridges } from "./bridges.js";
import { feed } from "./feed.js";
import { html, render, useEffect, useRef, useState } from "./html.js";
import { daemons, follow, loadSession, session } from "./model.js";
import { Announcer, Icon, Notice } from "./parts.js";
import { Notifications, resume } from "./notify.js";
import { go, route } from "./router.js";
import { useStore } from "./store.js";
import { t } from "./texts.js";
import { Tray, useTroubles } from "./troubles.js";

const PAGES = ["wall", "events", "recordings", "health", "sources", "fleet", "bridge"];
const PATHS = { wall: "/", events: "/events", recordings: "/recordings", health: "/health", sources: "/sources", fleet: "/fleet", bridge: "/bridge" };
let following = false;

function Navigation({ page }) {
  const rows = [...useStore(daemons).values()];
  const has = { fleet: rows.some((row) => row.fleet), recordings: rows.some((row) => row.recordings), bridge: rows.some((row) => row.bridge) };
  return html`<nav class="navigation" aria-label=${t.nav.label}>
    ${PAGES.filter((name) => has[name] !== false || page === name).map((name) => html`<a href=${PATHS[name]} aria-current=${page === name ? "page" : null}>
      <${Icon} name=${name} /> <span>${t.nav[name]}</span>
    </a>`)}
  </nav>`;
}

/** Says in words what is away: the page's own server, or a daemon. */
function Connection() {
  const { open, tries } = useStore(feed.state);
  const away = [...useStore(daemons).values()].filter((row) => row.state !== "up");
  const words = !open && tries > 0 ? t.connection.lost : away.map((row) => t.connection.daemon(row)).join(" ");
  return html`<div class="connection" role="status">${words && html`<${Notice} kind="warning">${words}<//>`}</div>`;
}

function Account() {
  const { role, login } = useStore(session) ?? {};
  if (!login || role === "none") return null;
  const leave = async () => {
    await send("POST", "/api/logout").catch((error) => error.status === 503 && alert(error.message));
    location.assign("/login");
  };
  return html`<div class="account"><span class="quiet">${t.roles[role]}</span>
    <button class="plain" onClick=${leave}>${t.login.out}</button></div>`;
}

/** Whether the wall is to have the screen for itself. */
const isBare = ({ page, query }) => page === "wall" && Boolean(query.get("full"));

function Title({ page, parts }) {
  const count = useTroubles().filter((row) => !row.isNote).length;
  useEffect(() => {
    document.title = `${count ? `(${count}) ` : ""}${t.titles[page]?.(...parts) ?? t.titles.missing()} – Lookout`;
  });
  return null;
}

function Page({ value }) {
  const [loaded, setLoaded] = useState(null);
  const main = useRef(null);
  const first = useRef(true);
  useEffect(() => {
    let stopped = false;
    if (value.page === "missing") setLoaded({ page: "missing", View: Missing });
    else {
      import(`./pages/${value.page}.js`)
        .then((module) => stopped || setLoaded({ page: value.page, View: module.default }))
        .catch(() => stopped || setLoaded({ page: value.page, View: Unloaded }));
    }
    return () => (stopped = true);
  }, [value.page]);
  useEffect(() => {
    // Focus follows to the new page, or keyboard and screen reader stay in the old one.
    if (!loaded) return;
    if (!first.current) main.current.focus({ preventScroll: true });
    first.current = false;
  }, [loaded, value.path]);
  const ready = loaded?.page === value.page;
  return html`<main id="main" ref=${main} tabindex="-1" class=${`page page-${value.page} ${isBare(value) ? "is-bare" : ""}`}>
    ${ready && html`<${loaded.View} key=${value.path} route=${value} />`}
  </main>`;
}

const Missing = () => html`<h1>${t.titles.missing()}</h1><p>${t.missing} <a href="/">${t.nav.wall}</a></p>`;
const Unloaded = () => html`<${Notice} kind="error">${t.errors.unloaded}<//>`;

function App() {
  const value = useStore(route);
  const who = useStore(session);
  const needsLogin = who && who.role === "none";
  useEffect(() => {
    if (needsLogin && value.page !== "login") go(`/login?next=${encodeURIComponent(value.path)}`, { replace: true });
    else if (who && !needsLogin && value.page === "login") go(value.query.get("next") ?? "/", { replace: true });
    else if (who && !needsLogin && !following) {
      following = true;
      resume();
      follow();
      followBridges();
    }
  }, [needsLogin, who, value.page]);
  if (!who) return null;
  const plain = value.page === "login" || isBare(value);
  return html`
    <a class="skip" href="#main">${t.nav.skip}</a>
    ${!plain && html`<header class="top">
      <a class="brand" href="/" aria-label=${t.nav.home}><img src="/static/icon.svg" alt="" width="22" height="22" />
        <span>Lookout</span></a>
      <${Navigation} page=${value.page} />
      <${Tray}><${Notifications} /><//>
      <${Account} />
    </header><${Connection} />`}
    ${isBare(value) && html`<div class="bare-tray"><${Tray} /></div>`}
    <${Title} page=${value.page} parts=${value.parts} />
    <${Page} value=${value} />
    <${Announcer} />`;
}

async function start(wait = 500) {
  const app = document.getElementById("app");
  try {
    await loadSession();
  } catch (error) {
    render(html`<main class="page"><${Notice} kind="error">${error.message} ${t.errors.retrying}<//></main>`, app);
    setTimeout(() => start(Math.min(5000, wait * 2)), wait);
    return;
  }
  render(null, app);
  render(html`<${App} />`, app);
}

document.addEventListener("lookout-signed-out", () => loadSession().catch(() => {}));
start();
