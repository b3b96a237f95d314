// The shown picture as a file.
import { utc } from "../clock.js";
import { drawOn } from "../overlay.js";

const WORDS_AT = 960; // px of width at which words are as large as on the page

/** A canvas of a picture as it is shown: upright, and with square pixels. */
function upright({ element, turns }, aspect) {
  const [across, down] = [element.videoWidth ?? element.naturalWidth, element.videoHeight ?? element.naturalHeight];
  const isTurned = turns % 2 === 1;
  const [width, height] = isTurned ? [down, across] : [across, down];
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: Math.round(width * aspect), height });
  const context = canvas.getContext("2d");
  context.save();
  context.translate(canvas.width / 2, canvas.height / 2);
  context.rotate((turns * Math.PI) / 2);
  const [w, h] = isTurned ? [canvas.height, canvas.width] : [canvas.width, canvas.height];
  context.drawImage(element, -w / 2, -h / 2, w, h);
  context.restore();
  return canvas;
}

/**
 * Give the browser a JPEG to keep, with all that is drawn over the picture now.
 * @param shown {element, turns, scene, age}: of the picture; the scene may be null
 */
export async function download(row, shown) {
  const canvas = upright(shown, row.pixel_aspect ?? 1);
  const context = canvas.getContext("2d");
  const scale = Math.max(0.5, canvas.width / WORDS_AT);
  context.scale(scale, scale);
  if (shown.scene) drawOn(context, canvas.width / scale, canvas.height / scale, shown.scene);
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.92));
  if (!blob) throw new Error("the picture has no pixels");
  const time = new Date((utc() - (shown.age ?? 0)) * 1000).toISOString().slice(0, 19).replaceAll(":", "-");
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: `${row.id}-${time}Z.jpg` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}
