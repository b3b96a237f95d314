// The one WebSocket that brings messages. Parts of a page say what they want; the feed asks for the union.
import { utc } from "./clock.js";
import { Store } from "./store.js";

const FIRST_WAIT_MS = 400;
const LONGEST_WAIT_MS = 5000;
const TURN_MS = 250;
const SAY_MS = 500; // between two reports of what has come,
const SAY_CHARACTERS = 32768; // unless this much has
const SILENT_MS = 8000; // the server says something every two seconds
const EAGER = 20; // arrays that are answered at once, so that the server learns soon what this link carries

export class Feed {
  constructor() {
    this.state = new Store({ open: false, since: utc(), tries: 0, retryAt: null }); // times are UTC, s
    this.handlers = new Map();
    this.demands = new Set();
    this.socket = null;
    this.timer = 0;
    this.asked = "";
    this.running = false;
  }

  start() {
    if (this.running) return;
    this.running = true;
    this.connect();
    setInterval(() => this.turn(), TURN_MS);
    window.addEventListener("online", () => this.retryNow());
    document.addEventListener("visibilitychange", () => document.hidden || this.retryNow());
  }

  stop() {
    this.running = false;
    clearTimeout(this.timer);
    this.socket?.close();
  }

  /** Call the handler for each message of a kind; returns a function that ends this. */
  on(kind, handler) {
    if (!this.handlers.has(kind)) this.handlers.set(kind, new Set());
    this.handlers.get(kind).add(handler);
    return () => this.handlers.get(kind).delete(handler);
  }

  /** Ask for detections of sources, [[daemon, source], ...], and for metrics; returns a function that ends this. */
  want({ sources = [], metrics = false }) {
    const demand = { sources, metrics };
    this.demands.add(demand);
    this.askSoon();
    return () => {
      this.demands.delete(demand);
      this.askSoon();
    };
  }

  askSoon() {
    queueMicrotask(() => this.ask());
  }

  ask() {
    const sources = new Map();
    let metrics = false;
    for (const demand of this.demands) {
      metrics ||= demand.metrics;
      for (const pair of demand.sources) sources.set(pair.join("/"), pair);
    }
    const text = JSON.stringify({ sources: [...sources.values()], metrics, events: true });
    if (text === this.asked || this.socket?.readyState !== WebSocket.OPEN) return;
    this.asked = text;
    this.socket.send(text);
  }

  connect() {
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/api/feed`);
    Object.assign(this, { socket, asked: "", heardAt: performance.now(), got: 0, characters: 0, said: 0, saidAt: 0 });
    socket.onopen = () => this.ask();
    socket.onmessage = (event) => {
      this.characters += event.data.length;
      this.take(JSON.parse(event.data));
    };
    socket.onclose = () => this.socket === socket && this.retry();
  }

  take(messages) {
    this.heardAt = performance.now();
    this.got += 1;
    if (this.got === 1) {
      this.state.set({ open: true, since: utc(), tries: 0, retryAt: null });
      this.tell({ kind: "open" });
    }
    // Not with the timer alone: that of a hidden tab runs once a minute.
    this.say(this.got <= EAGER);
    messages.forEach((message) => this.tell(message));
  }

  /** Tell the server what has come, if that is due: it sends no more than comes. */
  say(isDue) {
    const [now, { readyState }] = [performance.now(), this.socket];
    const waited = now - this.saidAt;
    const due = isDue || waited >= SAY_MS || (waited >= TURN_MS && this.characters >= SAY_CHARACTERS);
    if (!due || this.got === this.said || readyState !== WebSocket.OPEN) return;
    Object.assign(this, { said: this.got, saidAt: now, characters: 0 });
    this.socket.send(JSON.stringify({ got: this.got }));
  }

  turn() {
    this.say(false);
    const { readyState } = this.socket;
    const isSilent = performance.now() - this.heardAt > SILENT_MS;
    if (isSilent && readyState <= WebSocket.OPEN) this.giveUp();
  }

  /** The connection is dead, and nobody has noticed. */
  giveUp() {
    this.socket.onclose = null;
    this.socket.close();
    this.retry();
  }

  retry() {
    if (!this.running) return;
    const { open, since, tries } = this.state.value;
    if (open) this.tell({ kind: "closed" });
    const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(tries, 8)) * (0.75 + Math.random() / 2);
    this.state.set({ open: false, since: open ? utc() : since, tries: tries + 1, retryAt: utc() + wait / 1000 });
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.connect(), wait);
  }

  /** Requests get no answer: the connection may be dead as well. */
  suspect() {
    if (this.socket?.readyState === WebSocket.OPEN) this.giveUp();
  }

  retryNow() {
    if (!this.running || this.socket.readyState <= WebSocket.OPEN) return;
    clearTimeout(this.timer);
    this.connect();
  }

  tell(message) {
    for (const handler of this.handlers.get(message.kind) ?? []) handler(message);
  }
}

export const feed = new Feed();
