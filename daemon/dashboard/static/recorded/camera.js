// One camera of the past: its video or its stills, why there is none, and the boxes of what is shown.
import { Store } from "../store.js";
import { t } from "../texts.js";
import { Fragments } from "./fragments.js";
import { MsePlayer } from "./mse_player.js";
import { plays } from "./buffer.js";
import { Spans } from "./spans.js";
import { StillPlayer } from "./still_player.js";
import { now } from "./tiles.js";
import { Tracks } from "./tracks.js";

const EDGE_MS = 30000; // from the present: more is expected here
const NEAR_MS = 250;

export class PastCamera {
  /**
   * @param place see `places.js`
   * @param clock a `Together`
   */
  constructor(place, clock) {
    Object.assign(this, { place, clock, video: null, image: null, onShown: null, player: null, isStill: false, isRefused: false, asked: 0, told: null, leave: null });
    this.fragments = new Fragments(place.daemons, place.source);
    this.spans = new Spans(place.daemons, place.source);
    this.tracks = new Tracks(place.source);
    this.state = new Store({ shown: null, gap: null, stills: null, failure: null });
  }

  /**
   * @param elements {video, image}
   * @param onShown called for each picture that is shown
   * @param isFirst see `Together`
   */
  open({ video, image }, onShown, isFirst) {
    Object.assign(this, { video, image, onShown });
    this.player = this.videoPlayer();
    this.leave = this.clock.add(this, isFirst);
  }

  videoPlayer() {
    return new MsePlayer(this.video, this.fragments, {
      ...this.listeners(),
      refused: (mime) => this.useStills(t.recordings.noCodec(mime), true),
      broken: (reason) => this.useStills(t.recordings.broken(reason)),
    });
  }

  listeners() {
    return {
      shown: (what) => this.show(what),
      gap: (ms) => this.tellGap(ms),
      failed: (failure) => failure !== this.state.value.failure && this.set({ failure }),
    };
  }

  close() {
    this.leave();
    this.player.close();
    for (const part of [this.fragments, this.spans, this.tracks]) part.close();
  }

  set(changes) {
    this.state.set({ ...this.state.value, ...changes });
  }

  /** @param isRefused because of the type of the video: what is of another type is played again */
  useStills(reason, isRefused = false) {
    if (this.isStill) return;
    Object.assign(this, { isStill: true, isRefused });
    this.player.close();
    this.player = new StillPlayer(this.image, this.fragments, this.listeners());
    this.set({ stills: reason });
    this.player.seek(this.clock.at);
  }

  useVideo() {
    Object.assign(this, { isStill: false, isRefused: false });
    this.player.close();
    this.player = this.videoPlayer();
    this.set({ stills: null });
    this.player.seek(this.clock.at);
  }

  show(what) {
    const before = this.state.value;
    if (before.gap || before.shown?.pts !== what.pts || before.shown?.session !== what.session) this.set({ shown: what, gap: null });
    this.onShown(what);
    this.clock.shown(this, what);
    if (this.isRefused && plays(what.file.mime)) this.useVideo();
  }

  /** There is no picture of a moment: say why. */
  async tellGap(ms) {
    if (ms === null) return;
    this.asked += 1;
    const { asked } = this;
    let gap = null;
    try {
      gap = await this.spans.at(ms);
    } catch { /* it is not known */ }
    if (asked === this.asked) this.set({ gap: gap?.kind === "gap" ? gap : { begin: ms, end: ms, kind: "gap", cause: null, detail: null } });
  }

  // --- what the clock asks ---------------------------------------------------------------------------------------

  status(ms) {
    const found = this.fragments.peek(ms);
    if (found === undefined) return this.state.value.failure ? "gap" : "loading";
    if (found !== "gap") {
      if (this.state.value.gap) this.set({ gap: null });
      return "video";
    }
    if (ms > now() - EDGE_MS && !this.spans.peek(ms)) return "edge";
    if (!this.state.value.gap && this.told !== ms) this.tellGap(this.told = ms);
    return "gap";
  }

  seek(ms) {
    this.asked += 1;
    this.player.seek(ms);
  }

  seekKey(ms) {
    const found = this.fragments.peek(ms);
    if (found?.id && found.key && this.state.value.shown?.piece.fragment.id === found.id) return;
    this.player.seekKey(ms);
  }

  step(direction) {
    this.player.step(direction);
  }

  /** Go along with a clock that another player leads. */
  follow(ms, rate, apart) {
    const { moment, holeEnd } = this.player;
    if (holeEnd) return this.seek(holeEnd); // a browser may not play over it
    if (this.isStill || this.isLost || (moment !== null && Math.abs(moment - ms) > apart)) return this.seek(ms);
    if (moment === null) return undefined;
    const late = (ms - moment) / 1000;
    return this.player.play(rate * (1 + Math.max(-0.1, Math.min(0.1, late / 2))));
  }

  play(rate) {
    this.player.play(rate);
  }

  hold() {
    this.player.hold();
  }

  pause() {
    this.player.pause();
  }

  get isReady() {
    return this.player.isReady;
  }

  get isSettled() {
    return this.player.isSettled;
  }

  get isLost() {
    return Boolean(this.player.isLost);
  }

  get moment() {
    return this.player.moment;
  }

  /** The end of the video that shows a moment, if that is near. */
  endOf(ms) {
    let found = this.fragments.peek(ms);
    for (let end = null; found?.end; end = found.end) {
      const next = this.fragments.peek(found.end + NEAR_MS);
      if (!next?.end || next.end <= found.end) return found.end;
      if (found.end - ms > 2000 || end === found.end) return null;
      found = next;
    }
    return null;
  }

  /** The next moment with a picture: a step to another stream may have a second without one, and is no gap. */
  async next(ms) {
    const found = await this.spans.next(ms);
    if (found === null) return null;
    const fragment = await this.fragments.from(found).catch(() => null); // a daemon that is away holds no others up
    return Math.max(found, fragment?.begin ?? found);
  }

  gapAt(ms) {
    const row = this.spans.peek(ms);
    return row?.kind === "gap" ? row : null;
  }
}
