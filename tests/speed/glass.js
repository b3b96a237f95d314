// Reads the clock that is drawn in the pictures, for some seconds: [[seconds since the begin, ms late], ...].
({ seconds, bits, block }) => new Promise((resolve) => {
  const video = document.querySelector(".stage video");
  const strip = Object.assign(document.createElement("canvas"), { width: bits * block, height: block });
  const context = strip.getContext("2d", { willReadFrequently: true });
  const begin = performance.now();
  const rows = [];
  const read = () => {
    const late = Date.now();
    context.drawImage(video, 0, 0, bits * block, block, 0, 0, bits * block, block);
    const row = context.getImageData(0, block / 2, bits * block, 1).data;
    let value = 0;
    for (let index = 0; index < bits; index += 1) value = value * 2 + (row[4 * (index * block + block / 2)] > 125 ? 1 : 0);
    const behind = (late % 2 ** bits) - value;
    rows.push([(performance.now() - begin) / 1000, behind < 0 ? behind + 2 ** bits : behind]);
    if (performance.now() - begin > 1000 * seconds) resolve(rows);
    else video.requestVideoFrameCallback(read);
  };
  video.requestVideoFrameCallback(read);
})
