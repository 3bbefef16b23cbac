// Where the lanes of a timeline lie: a row for each rank, in each up to three lanes. Pure functions.
//
//   rank 0   planned, thin     |0|1|2|.....| 0 | 1 |         20%
//            measured          |F0|F1|F2|...| B0 | B1 |
//            beside, thin         |S0|S1|S2|
//                              0        5        10 ms

/** Heights in pixels of the lanes and of the gap below a row, by how many rows there are at most. */
const LANES = [
  { rows: 8, planned: 7, measured: 22, beside: 6, gap: 9 },
  { rows: 16, planned: 5, measured: 16, beside: 4, gap: 6 },
  { rows: 32, planned: 3, measured: 9, beside: 2, gap: 3 },
  { rows: 64, planned: 0, measured: 4, beside: 2, gap: 1 },
  { rows: Infinity, planned: 0, measured: 3, beside: 0, gap: 0 },
];
const TOP = 20; // pixels, for the heading of the column at the right
export const AXIS = 22;
export const RIGHT = 46; // of both decks, so that they end at the same place
export const LABEL_HEIGHT = 14;

/**
 * The places of all lanes in a canvas of a width, in pixels.
 *
 * ranks: of the rows. Returns plot: {x, width}; top; rows; row: the height of one; lanes: {name: {y, height}}
 * from the top of a row; every: how many rows share a label; height: of all; axis: where the axis lies.
 */
export function lanesOf(ranks, width, { isPlanned, isBeside }) {
  const rows = ranks.length;
  const sizes = LANES.find((one) => rows <= one.rows);
  const lanes = {};
  let y = 0;
  for (const [name, present] of [["planned", isPlanned], ["measured", true], ["beside", isBeside]]) {
    const height = present ? sizes[name] : 0;
    lanes[name] = { y, height };
    y += height + (height > 4 && name === "planned" ? 1 : 0);
  }
  const row = y + sizes.gap;
  const left = 12 + 6.8 * `rank ${Math.max(...ranks, 0)}`.length;
  const axis = TOP + row * rows - sizes.gap + Math.min(4, sizes.gap);
  return {
    plot: { x: left, width: Math.max(1, width - left - RIGHT) },
    top: TOP,
    rows,
    row,
    lanes,
    every: Math.ceil(LABEL_HEIGHT / row),
    axis,
    height: axis + AXIS,
    width,
  };
}

/** Which row and lane lie at a height; undefined between them. */
export function laneAt(layout, y) {
  const index = Math.floor((y - layout.top) / layout.row);
  if (index < 0 || index >= layout.rows) return undefined;
  const within = y - layout.top - index * layout.row;
  const name = ["planned", "measured", "beside"].find((lane) => {
    const { y: top, height } = layout.lanes[lane];
    return height > 0 && within >= top && within < top + height;
  });
  return name && { index, name };
}

/** The top of a lane of a row. */
export function topOf(layout, index, name) {
  return layout.top + index * layout.row + layout.lanes[name].y;
}
