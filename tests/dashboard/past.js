// What the tests of recordings ask in the page: which picture is shown, by its pixels, and where its object is.
window.shownNumber = () => {
  const video = document.querySelector(".past-picture video");
  const image = document.querySelector(".past-picture img");
  const source = video.hidden ? image : video;
  const [wide, high] = video.hidden ? [image.naturalWidth, image.naturalHeight] : [video.videoWidth, video.videoHeight];
  const canvas = Object.assign(document.createElement("canvas"), { width: wide, height: high });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(source, 0, 0);
  const side = Math.floor(wide / 12);
  let number = 0;
  for (let bit = 0; bit < 12; bit += 1) {
    const [red] = context.getImageData(bit * side + side / 2, high / 10, 1, 1).data;
    if (red > 128) number |= 1 << bit;
  }
  const colour = (x, y) => [...context.getImageData(Math.round(x), Math.round(y), 1, 1).data].slice(0, 3);
  return { number, wide, high, colour };
};
window.frames_ = [];
document.addEventListener("lookout-past-frame", ({ detail }) => {
  let read = null;
  try {
    read = window.shownNumber();
  } catch { /* no picture yet */ }
  const { boxes, image, ...rest } = detail;
  const boxed = boxes.map(({ box: [x1, y1, x2, y2] }) => {
    const [sx, sy] = read ? [read.wide / image.width, read.high / image.height] : [1, 1];
    return { box: [x1, y1, x2, y2], colour: read?.colour(((x1 + x2) / 2) * sx, ((y1 + y2) / 2) * sy) };
  });
  window.frames_.push({ ...rest, boxed, number: read?.number, at: performance.now() });
  if (window.frames_.length > 2000) window.frames_.splice(0, 1000);
});
// Follow a link to a moment, as those of events are; tells the first picture whose boxes are known, and after how long
// the first one was shown.
window.seekTo = (path) => new Promise((resolve) => {
  const link = Object.assign(document.createElement("a"), { href: path });
  document.body.append(link);
  const wanted = Date.parse(new URL(path, location.href).searchParams.get("at"));
  const begun = performance.now();
  link.click();
  link.remove();
  let took = null;
  const look = () => {
    const last = window.frames_[window.frames_.length - 1];
    const isNew = last && last.at >= begun && Math.abs(wanted - last.ms) < 100; // what was shown before may come late
    if (isNew) took ??= last.at - begun;
    if (isNew && last.kind !== "pending") resolve({ ...last, took, ...{ number: window.shownNumber().number } });
    else if (performance.now() - begun > 20000) resolve({ ...last, took, isLate: true });
    else setTimeout(look, 5);
  };
  look();
});
window.press = (...keys) => keys.forEach((key) => document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true })));
// The video goes on by so many seconds, and there is a step before the page is told of the picture.
window.stepFrom = (seconds) => {
  document.querySelector(".past-picture video").currentTime += seconds;
  window.press(".");
};
window.timesOf = (selector) => [...document.querySelectorAll(selector)].map((one) => one.getAttribute("datetime"));
// Seconds 0 to 6 of one daemon, and 2 to 4 of a later owner; and their timelines as one.
window.ofTwoOwners = async () => {
  const { chained } = await import("/static/recorded/fragments.js");
  const { merged } = await import("/static/recorded/spans.js");
  const owned = (daemon, epoch, begin, end) => {
    const file = { key: daemon, daemon, store: "main", epoch, place: 0, begin: begin * 1000 };
    const of = (n) => ({ id: `${daemon}${n}`, file, begin: 1000 * n, end: 1000 * (n + 1), pts: n, offset: n, size: 1, key: true });
    return { file, fragments: Array.from({ length: end - begin }, (_, n) => of(begin + n)) };
  };
  const row = (begin, end, kind, cause = null) => ({ begin, end, kind, cause, detail: null });
  const spans = merged([
    [row(0, 5, "video"), row(5, 9, "gap", "off")],
    [row(0, 3, "gap", "fenced"), row(3, 7, "video"), row(7, 9, "gap", "disk_full")],
  ]);
  const fragments = chained([owned("old", 3, 0, 6), owned("new", 4, 2, 4)]);
  return [fragments.map((one) => one.id), spans.map((one) => [one.begin, one.end, one.kind, one.cause])];
};
window.placesOf = (...selectors) => selectors.map((one) => {
  const { left, top, width, height } = document.querySelector(one).getBoundingClientRect();
  return [left, top, width, height];
});
// Whether something is loaded of what comes so many seconds later.
window.isAhead = (seconds) => {
  const { buffered, currentTime } = document.querySelector(".past-picture video");
  return buffered.end(buffered.length - 1) > currentTime + seconds;
};
// A clock at 38 s whose video has played to some moment, and stands there; tells where it was sought, twice.
window.playLate = async (moment, isReady) => {
  const { Together } = await import("/static/recorded/together.js");
  window.told_ = [];
  const clock = new Together(38000);
  clock.setRate(4);
  clock.add({
    isReady, isStill: false, isLost: false, moment,
    status: (ms) => (ms < 40000 || ms >= 50000 ? "video" : "gap"), endOf: (ms) => (ms < 40000 ? 40000 : null),
    seek: (ms) => window.told_.push(ms) > 1 && clock.pause(), follow: (ms, rate, apart) => Math.abs(ms - moment) > apart && window.told_.push(ms),
    next: async () => 50000, gapAt: () => null, hold() {}, play() {}, pause() {},
  }, true);
  clock.play();
};
// What a page is told of an answer whose body ends too early.
window.askCutOff = async () => {
  const { ask } = await import("/static/recorded/requests.js");
  const { fetch } = window;
  window.fetch = async () => new Response(new ReadableStream({ pull: (body) => body.error(new TypeError("cut off")) }));
  try {
    return await ask("/", new AbortController().signal).then(() => null, (error) => [error.status, error.message]);
  } finally {
    window.fetch = fetch;
  }
};
// The address of a day is followed; tells after how many ms all of its bars are drawn.
window.drawDay = async (path, count) => {
  const begun = performance.now();
  const link = Object.assign(document.createElement("a"), { href: path });
  document.body.append(link);
  link.click();
  link.remove();
  for (;;) {
    const bars = [...document.querySelectorAll("[role=slider]")];
    if (bars.length === count && !bars.some((one) => /Loading/.test(one.getAttribute("aria-valuetext")))) return performance.now() - begun;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
};
0;
