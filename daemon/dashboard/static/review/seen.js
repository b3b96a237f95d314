// Marks of seen events. They are shown at once, and sent in turns: a hundred key presses are a few requests.
import { get, send } from "../api.js";
import { utc } from "../clock.js";
import { feed } from "../feed.js";
import { Store } from "../store.js";

const WAIT_MS = 150;
const MOST = 500; // ids of a request
const MOST_KNOWN = 20000;

const known = new Map(); // by id: {by, at}, or null; what rows say is older
export const marks = new Store(0); // grows with each change
export const keeping = new Store({ kept: true, reason: null });
export const failure = new Store(null);
const queue = []; // {method, ids}
let sending = false;

function note(ids, mark) {
  for (const id of ids) {
    known.delete(id);
    known.set(id, mark);
  }
  for (const id of known.keys()) {
    if (known.size <= MOST_KNOWN) break;
    known.delete(id);
  }
  marks.update((n) => n + 1);
}

feed.on("seen", ({ ids, by, at }) => note(ids, { by, at }));
feed.on("unseen", ({ ids }) => note(ids, null));

/** Who has seen an event, and when: {by, at}, or null. */
export const markOf = (event) => (known.has(event.id) ? known.get(event.id) : (event.seen ?? null));

/** Rows have come that are newer than what was told before. */
export function forget(events) {
  const waiting = new Set(queue.flatMap((order) => order.ids));
  for (const event of events) if (!waiting.has(event.id)) known.delete(event.id);
}

export const loadKeeping = () => get("/api/seen").then((found) => keeping.set(found), () => {});

/** Mark events, or take their marks back. The server says soon by whom. */
export function order(method, events) {
  const ids = events.map((event) => event.id);
  note(ids, method === "POST" ? { by: "", at: utc() * 1e9 } : null);
  for (let begin = 0; begin < ids.length; begin += MOST) queue.push({ method, ids: ids.slice(begin, begin + MOST) });
  if (!sending) void drain();
}

async function drain() {
  sending = true;
  await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
  while (queue.length) {
    const { method, ids } = queue.shift();
    while (queue.length && queue[0].method === method && ids.length + queue[0].ids.length <= MOST) ids.push(...queue.shift().ids);
    try {
      const { kept, reason } = await send(method, "/api/seen", { ids });
      keeping.set({ kept, reason });
      failure.set(null);
    } catch (error) {
      ids.forEach((id) => known.delete(id)); // what rows say
      marks.update((n) => n + 1);
      failure.set(error.message);
    }
  }
  sending = false;
}

/** Marks on their way must not be lost by leaving the page: the browser asks first. */
window.addEventListener("beforeunload", (event) => queue.length && event.preventDefault());
