// The little of MP4 that a player of fragments must know by itself: when each picture is shown.

const name = (view, at) => String.fromCharCode(view.getUint8(at), view.getUint8(at + 1), view.getUint8(at + 2), view.getUint8(at + 3));
const INSIDE = ["moov", "trak", "mdia", "moof", "traf"];

/** Boxes between two offsets, and those inside of them: calls `found(kind, content, end)`. */
function walk(view, begin, end, found) {
  for (let at = begin; at + 8 <= end;) {
    const size = view.getUint32(at);
    const kind = name(view, at + 4);
    const behind = size < 8 ? end : Math.min(end, at + size);
    if (INSIDE.includes(kind)) walk(view, at + 8, behind, found);
    else found(kind, at + 8, behind);
    at = behind;
  }
}

const viewOf = (bytes) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** Ticks a second of a file's only track. */
export function timescaleOf(beginning) {
  const view = viewOf(beginning);
  let scale = 1000;
  walk(view, 0, beginning.byteLength, (kind, at) => {
    if (kind === "mdhd") scale = view.getUint32(at + (view.getUint8(at) === 1 ? 20 : 12));
  });
  return scale;
}

/**
 * When the pictures of a fragment are shown.
 * @param bytes of the fragment, from its first box on
 * @param timescale of its file
 * @returns {number[]} seconds by the file's own times, in order
 */
export function picturesOf(bytes, timescale) {
  const view = viewOf(bytes);
  const found = [];
  let time = 0;
  walk(view, 0, bytes.byteLength, (kind, at) => {
    if (kind === "tfdt") time = view.getUint8(at) === 1 ? view.getUint32(at + 4) * 2 ** 32 + view.getUint32(at + 8) : view.getUint32(at + 4);
    if (kind === "trun") time = run(view, at, time, found, timescale);
  });
  return found.sort((a, b) => a - b);
}

/** One `trun`; returns when what follows is decoded, ticks. */
function run(view, at, begin, found, timescale) {
  const flags = view.getUint32(at) & 0xffffff;
  const count = view.getUint32(at + 4);
  let [place, time] = [at + 8 + (flags & 1 ? 4 : 0) + (flags & 4 ? 4 : 0), begin];
  const has = (flag) => flags & flag;
  for (let index = 0; index < count; index += 1) {
    const duration = has(0x100) ? view.getUint32(place) : 0;
    const composition = has(0x800) ? place + 4 * [0x100, 0x200, 0x400].filter(has).length : null;
    found.push((time + (composition === null ? 0 : view.getInt32(composition))) / timescale);
    place += 4 * [0x100, 0x200, 0x400, 0x800].filter(has).length;
    time += duration;
  }
  return time;
}
