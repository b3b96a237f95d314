// The one WebSocket that brings messages. Parts of a page say what they want; the feed asks for the union.
import { Store } from "./store.js";

const FIRST_WAIT_MS = 400;
const LONGEST_WAIT_MS = 5000;

export class Feed {
  constructor() {
    this.state = new Store({ open: false, since: Date.now(), tries: 0 });
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
    this.socket = socket;
    this.asked = "";
    socket.onopen = () => {
      this.state.set({ open: true, since: Date.now(), tries: 0 });
      this.ask();
      this.tell({ kind: "open" });
    };
    socket.onmessage = (event) => JSON.parse(event.data).forEach((message) => this.tell(message));
    socket.onclose = () => this.retry();
  }

  retry() {
    if (!this.running) return;
    const { open, since, tries } = this.state.value;
    this.state.set({ open: false, since: open ? Date.now() : since, tries: tries + 1 });
    const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(tries, 8));
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.connect(), wait * (0.75 + Math.random() / 2));
  }

  /** Requests get no answer: the connection may be dead, and nobody has noticed. */
  suspect() {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    this.socket.onclose = null;
    this.socket.close();
    this.retry();
  }

  retryNow() {
    if (!this.running || this.socket?.readyState <= WebSocket.OPEN) return;
    clearTimeout(this.timer);
    this.connect();
  }

  tell(message) {
    for (const handler of this.handlers.get(message.kind) ?? []) handler(message);
  }
}

export const feed = new Feed();
