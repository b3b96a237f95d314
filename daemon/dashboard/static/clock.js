// The clocks of others, as far as they can be known from here: a browser's own may be hours off.

const SAMPLES = 20;

/** The server's monotonic clock, ms: a question and its answer say what it was between the two. */
export class Clock {
  constructor() {
    this.samples = []; // [ms between question and answer, the server's clock less this one]
    this.offset = null;
  }

  /** @param asked, told: this clock when the server was asked, and the server's when it answered */
  note(asked, told) {
    const heard = performance.now();
    this.samples = [...this.samples.slice(1 - SAMPLES), [heard - asked, told - (asked + heard) / 2]];
    // The quickest answer says most, and old ones nothing: clocks drift.
    this.offset = this.samples.reduce((best, row) => (row[0] < best[0] ? row : best))[1];
  }

  /** The server's clock now; null while it is not known. */
  now() {
    return this.offset === null ? null : performance.now() + this.offset;
  }
}

let offset = 0; // s

/** The server says what time it is. What it says comes later than it was said, and never earlier. */
export function tellTime(seconds) {
  const found = seconds - Date.now() / 1000;
  // A message that took long is not believed; a clock that was set is.
  if (found > offset || Math.abs(found - offset) > 2) offset = found;
}

/** UTC by the server's clock, s. All times that are shown come from there. */
export const utc = () => Date.now() / 1000 + offset;
