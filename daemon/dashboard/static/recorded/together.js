// One clock of several players. The first that has video leads it, the others follow; where none has video it goes on
// at the next moment that is recorded.
import { Store } from "../store.js";
import { now } from "./tiles.js";

const TURN_MS = 100;
const APART_MS = 350; // from here on a follower seeks
const KEYS_FROM = 8; // times as fast: key pictures alone
const TOLD_MS = 1000; // a shorter gap is passed over in silence
const END_MS = 400;
const STANDS_MS = 2000; // that a video may stand still while it plays

export const RATES = [1, 2, 4, 8, 16];

export class Together {
  /** @param at UTC ms */
  constructor(at) {
    Object.assign(this, { players: [], timer: 0, skipping: false, steps: false, stands: 0, seen: null });
    this.state = new Store({ at, playing: false, rate: 1, waiting: null, skipped: null });
  }

  get at() {
    return this.state.value.at;
  }

  set(changes) {
    this.state.set({ ...this.state.value, ...changes });
  }

  /** @param isFirst it says which gaps are told, and by its pictures steps go */
  add(player, isFirst = false) {
    this.players = isFirst ? [player, ...this.players] : [...this.players, player];
    player.seek(this.at);
    return () => (this.players = this.players.filter((one) => one !== player));
  }

  close() {
    clearInterval(this.timer);
    this.players = [];
  }

  seek(at, changes = {}) {
    const moment = Math.min(at, now());
    this.set({ at: moment, skipped: null, waiting: null, ...changes });
    this.steps = false;
    for (const player of this.players) player.seek(moment);
  }

  step(direction) {
    this.pause();
    this.steps = true;
    this.players[0]?.step(direction);
  }

  play() {
    if (this.state.value.playing) return;
    this.set({ playing: true, skipped: null });
    this.steps = false;
    this.last = performance.now();
    clearInterval(this.timer);
    this.timer = setInterval(() => this.turn(), TURN_MS);
    this.turn();
  }

  pause() {
    clearInterval(this.timer);
    if (this.state.value.playing) this.set({ playing: false, waiting: null });
    for (const player of this.players) player.pause();
  }

  toggle() {
    if (this.state.value.playing) this.pause();
    else this.play();
  }

  setRate(rate) {
    this.set({ rate });
    if (rate >= KEYS_FROM) for (const player of this.players) player.hold();
  }

  /** A player shows a picture. */
  shown(player, what) {
    if (!this.steps || player !== this.players[0]) return;
    this.set({ at: what.ms });
    for (const other of this.players.slice(1)) other.seek(what.ms);
  }

  turn() {
    const time = performance.now();
    const passed = Math.min(500, time - this.last);
    this.last = time;
    const { at, rate } = this.state.value;
    if (this.skipping || document.hidden) return;
    const rows = this.players.map((player) => ({ player, has: player.status(at) }));
    const active = rows.filter((row) => row.has === "video").map((row) => row.player);
    for (const { player, has } of rows) if (has !== "video") player.hold();
    if (rows.some((row) => row.has === "loading")) this.wait(active, "loading");
    else if (active.length) this.run(active, passed * rate, rate);
    else if (rows.some((row) => row.has === "edge")) this.wait([], "edge");
    else this.skip(at);
  }

  wait(players, waiting, at = this.at) {
    for (const player of players) player.hold();
    if (this.state.value.waiting !== waiting || this.at !== at) this.set({ waiting, at });
  }

  run(active, passed, rate) {
    // Where the video is ahead a turn was late, and it is right: it may have come to its end.
    const at = Math.max(this.at, active[0].moment ?? this.at);
    if (rate >= KEYS_FROM || active.every((player) => player.isStill)) return this.keys(active, at + passed, rate);
    const unready = active.filter((player) => !player.isReady);
    const end = Math.min(...active.map((player) => player.endOf(at) ?? Infinity));
    if (unready.length && end - at < END_MS * Math.max(1, rate)) return this.set({ at: end, waiting: null });
    const lead = active.find((player) => player.isReady && player.moment !== null);
    if (unready.length || !lead) {
      for (const player of active) if (player.isReady) player.hold();
      for (const player of unready) player.follow(at, rate, APART_MS * rate);
      return this.wait([], "loading", at);
    }
    lead.play(rate);
    const moment = lead.moment;
    // A busy browser may stand still some ms before an end.
    if (this.hasStood(moment, passed / rate)) return end - at < END_MS * rate ? this.set({ at: end, waiting: null }) : lead.seek(at);
    const next = moment > at - 50 ? moment : at;
    if (at - moment > APART_MS * rate) lead.seek(at);
    for (const player of active) if (player !== lead) player.follow(next, rate, APART_MS * rate);
    return this.set({ at: next, waiting: null });
  }

  /** Whether a moment has been the same for too long; `passed` is since the last turn. */
  hasStood(moment, passed) {
    this.stands = moment === this.seen && this.stands <= STANDS_MS ? this.stands + passed : 0;
    this.seen = moment;
    return this.stands > STANDS_MS;
  }

  /** Key pictures, as fast as they come. */
  keys(active, at, rate) {
    const coming = active.filter((player) => !player.isSettled);
    for (const player of coming) if (player.isLost) player.seek(at);
    if (coming.length) return this.wait([], "loading");
    for (const player of active) {
      player.hold();
      if (rate >= KEYS_FROM) player.seekKey(at);
      else player.seek(at);
    }
    return this.set({ at, waiting: null });
  }

  /** To the next moment of any player. */
  async skip(at) {
    this.skipping = true;
    this.set({ waiting: "gap" });
    try {
      const rows = await Promise.all(this.players.map((player) => player.next(at)));
      const found = Math.min(...rows.map((ms) => ms ?? Infinity));
      if (!this.state.value.playing || this.at !== at) return;
      if (found === Infinity) return void this.set({ waiting: "edge" });
      const gap = this.players[0]?.gapAt(at) ?? null;
      this.seek(found, { skipped: found - at > TOLD_MS ? { from: at, to: found, cause: gap } : this.state.value.skipped });
    } catch {
      this.set({ waiting: "loading" }); // it is tried again
    } finally {
      this.skipping = false;
    }
  }
}
