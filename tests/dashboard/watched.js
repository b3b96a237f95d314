// What the page says of its live video, and how old the time is that is drawn in the picture: [[phase, s], ...], until
// a condition on them holds, or for some seconds.
({ seconds, until, bits, block }) => new Promise((resolve) => {
  const video = document.querySelector(".stage video");
  const strip = Object.assign(document.createElement("canvas"), { width: bits * block, height: block });
  const context = strip.getContext("2d", { willReadFrequently: true });
  const begin = performance.now();
  const rows = [];
  const drawn = () => {
    context.drawImage(video, 0, 0, bits * block, block, 0, 0, bits * block, block);
    const row = context.getImageData(0, block / 2, bits * block, 1).data;
    let value = 0;
    for (let index = 0; index < bits; index += 1) value = value * 2 + (row[4 * (index * block + block / 2)] > 125 ? 1 : 0);
    return value;
  };
  const look = () => {
    if (!video.hidden && video.readyState > 1) {
      const now = performance.timeOrigin + performance.now(); // the clock of this page is wrong
      const behind = (Math.floor(now) % 2 ** bits) - drawn();
      rows.push([document.querySelector(".phase").textContent, (behind < 0 ? behind + 2 ** bits : behind) / 1000]);
    }
    const last = rows[rows.length - 1];
    const isDone = until ? last?.[0] === until : performance.now() - begin > 1000 * seconds;
    if (isDone) resolve(rows);
    else setTimeout(look, 100);
  };
  look();
})
