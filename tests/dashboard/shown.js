// Collects what is shown: for each frame with detections, the boxes on the canvas, and where each colour is in the video.
({ count, colours }) => new Promise((resolve) => {
  const stage = document.querySelector(".stage");
  const [video, overlay] = [stage.querySelector("video"), stage.querySelector("canvas")];
  const copy = Object.assign(document.createElement("canvas"), { width: video.videoWidth, height: video.videoHeight });
  const context = copy.getContext("2d", { willReadFrequently: true });
  const rows = [];

  const extent = (pixels, [red, green, blue]) => {
    const columns = new Uint16Array(copy.width);
    let [top, bottom] = [copy.height, 0];
    for (let y = 0; y < copy.height; y += 2) {
      for (let x = 0; x < copy.width; x += 1) {
        const at = 4 * (y * copy.width + x);
        const far = Math.abs(pixels[at] - red) + Math.abs(pixels[at + 1] - green) + Math.abs(pixels[at + 2] - blue);
        if (far > 90) continue;
        columns[x] += 1;
        if (y < top) top = y;
        if (y > bottom) bottom = y;
      }
    }
    const filled = [...columns.keys()].filter((x) => columns[x] > 3);
    return filled.length ? [filled[0], top, filled[filled.length - 1] + 1, bottom + 1] : null;
  };

  // Whether the canvas has something on the left side of a box.
  const isDrawn = ([x1, y1, , y2]) => {
    const [across, down] = [overlay.width / copy.width, overlay.height / copy.height];
    const left = Math.max(0, Math.round(x1 * across) - 4);
    const pixels = overlay.getContext("2d").getImageData(left, Math.round(((y1 + y2) / 2) * down), 9, 1).data;
    return pixels.some((value, index) => index % 4 === 3 && value > 100);
  };

  const onFrame = ({ detail }) => {
    if (detail.kind !== "exact" || video.hidden) return;
    // A busy browser may be at the next picture already: one that is not the one in question proves nothing.
    const picture = new VideoFrame(video);
    const isThis = Math.abs(picture.timestamp / 1e6 - detail.mediaTime) < 1e-3;
    if (isThis) context.drawImage(picture, 0, 0, copy.width, copy.height);
    picture.close();
    if (!isThis) return;
    const pixels = context.getImageData(0, 0, copy.width, copy.height).data;
    rows.push({
      boxes: detail.boxes.map((found) => found.box),
      drawn: detail.boxes.every((found) => isDrawn(found.box)),
      objects: colours.map((colour) => extent(pixels, colour)),
    });
    if (rows.length < count) return;
    stage.removeEventListener("lookout-frame", onFrame);
    resolve(rows);
  };
  stage.addEventListener("lookout-frame", onFrame);
})
