// Where the tiles of a wall lie, in pixels. All of it is computed, so that the screen is used whatever the number and
// the shape of the cameras.

const STEPS = 40; // of a search for the greatest height: to a fraction of a pixel
const SMALLEST_WIDTH = 150; // on average, px; where tiles would be smaller, the wall is higher than the screen
const SCROLLED_WIDTH = 260; // of a tile of 16:9 there

/** Columns and rows of a screen, and how many cells the first tile is wide and high; null: whatever fits best. */
export const GRIDS = {
  auto: null,
  list: null,
  "1": { columns: 1, rows: 1, big: 1 },
  "2x2": { columns: 2, rows: 2, big: 1 },
  "3x3": { columns: 3, rows: 3, big: 1 },
  "4x4": { columns: 4, rows: 4, big: 1 },
  "5x5": { columns: 5, rows: 5, big: 1 },
  "1+5": { columns: 3, rows: 3, big: 2 },
  "1+7": { columns: 4, rows: 4, big: 3 },
};

/** Tiles of one height in lines, as many in each as there is room for: [[tile, ...], ...]. */
function linesOf(tiles, height, { width, gap }) {
  const lines = [];
  let left = -1;
  for (const tile of tiles) {
    const wide = Math.min(width, height * tile.ratio);
    if (wide > left) {
      lines.push([]);
      left = width;
    }
    lines[lines.length - 1].push(tile);
    left -= wide + gap;
  }
  return lines;
}

/** The greatest value in a range for which something holds that holds for all smaller ones. */
function greatest(low, high, holds) {
  let [good, bad] = [low, high];
  if (holds(high)) return high;
  for (let step = 0; step < STEPS; step += 1) {
    const middle = (good + bad) / 2;
    if (holds(middle)) good = middle;
    else bad = middle;
  }
  return good;
}

const gapsOf = (number, gap) => Math.max(0, number - 1) * gap;
/** The height at which a line is as wide as the room. */
const fullHeight = (line, { width, gap }) => (width - gapsOf(line.length, gap)) / line.reduce((sum, tile) => sum + tile.ratio, 0);

/** Lines of all groups with heights that fill the room as far as the shapes allow. */
function filled(groups, room) {
  const { width, height, gap, heading } = room;
  const headings = groups.reduce((sum, { name }) => sum + (name ? heading : 0), 0);
  const count = groups.reduce((sum, { tiles }) => sum + tiles.length, 0);
  const linesAt = (tall) => groups.map(({ tiles }) => linesOf(tiles, tall, room));
  const sumOf = (lines, tallOf) => headings + gapsOf(lines.flat().length, gap) + lines.flat().reduce((sum, line) => sum + tallOf(line), 0);
  let tall = greatest(1, Math.max(1, height), (one) => sumOf(linesAt(one), () => one) <= height);
  const ratios = groups.flatMap(({ tiles }) => tiles).reduce((sum, tile) => sum + tile.ratio, 0);
  const isSmall = (tall * ratios) / Math.max(1, count) < Math.min(SMALLEST_WIDTH, width);
  if (isSmall) tall = Math.min(width, SCROLLED_WIDTH) * (9 / 16);
  const lines = linesAt(tall);
  const grown = (most) => (line) => Math.min(tall * most, Math.max(tall, fullHeight(line, room)), fullHeight(line, room));
  const most = isSmall ? 1.35 : greatest(1, Math.max(1, height / tall), (one) => sumOf(lines, grown(one)) <= height);
  return lines.map((rows) => rows.map((line) => ({ line, tall: grown(most)(line) })));
}

/** Rectangles of lines. Without headings they are in the middle of the room, across and down. */
function auto(groups, room) {
  const { width, height, gap, heading } = room;
  const found = { tiles: new Map(), headings: new Map(), height: 0 };
  let top = 0;
  filled(groups, room).forEach((lines, number) => {
    if (groups[number].name) {
      found.headings.set(groups[number].name, top);
      top += heading;
    }
    for (const { line, tall } of lines) {
      const rest = width - gapsOf(line.length, gap) - line.reduce((sum, { ratio }) => sum + tall * ratio, 0);
      let left = groups[number].name ? 0 : rest / 2;
      for (const { key, ratio } of line) {
        found.tiles.set(key, { left, top, width: tall * ratio, height: tall });
        left += tall * ratio + gap;
      }
      top += tall + gap;
    }
  });
  found.height = Math.max(0, top - gap);
  const down = found.headings.size ? 0 : Math.max(0, (height - found.height) / 2);
  for (const place of found.tiles.values()) place.top += down;
  found.height += down;
  return found;
}

/** Rectangles of equal cells, of which the first tile may have several. Tiles beyond the screen are below it. */
function cells(groups, { columns, rows, big }, { width, height, gap, heading }) {
  const found = { tiles: new Map(), headings: new Map(), height: 0 };
  const wide = (width - gapsOf(columns, gap)) / columns;
  const tall = Math.max(60, (height - gapsOf(rows, gap)) / rows);
  const sizeOf = (number) => ({ width: wide * number + gapsOf(number, gap), height: tall * number + gapsOf(number, gap) });
  let [top, isFirst] = [0, true];
  for (const { name, tiles } of groups) {
    if (name) {
      found.headings.set(name, top);
      top += heading;
    }
    const taken = isFirst ? big : 1;
    let [place, end] = [0, 0];
    tiles.forEach(({ key }, index) => {
      const isBig = index === 0 && taken > 1;
      while (!isBig && taken > 1 && place % columns < taken && Math.floor(place / columns) < taken) place += 1;
      const [column, row] = [place % columns, Math.floor(place / columns)];
      const size = sizeOf(isBig ? taken : 1);
      found.tiles.set(key, { left: column * (wide + gap), top: top + row * (tall + gap), ...size });
      end = Math.max(end, row * (tall + gap) + size.height);
      place += 1;
    });
    top += end + gap;
    isFirst = false;
  }
  found.height = Math.max(0, top - gap);
  return found;
}

/**
 * @param groups [{name, tiles: [{key, ratio}, ...]}, ...]: a group without a name has no heading
 * @param layout a name of GRIDS
 * @param room {width, height, gap, heading} of the screen that is left for the wall, px
 * @returns {{tiles: Map, headings: Map, height: number}} {left, top, width, height} of each key, the top of each name, px
 */
export function placed(groups, layout, room) {
  const grid = GRIDS[layout];
  return grid ? cells(groups, grid, room) : auto(groups, room);
}
