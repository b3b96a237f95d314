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
0;
