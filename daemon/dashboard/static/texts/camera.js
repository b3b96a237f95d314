// Words of what can be done with one camera's picture.

export const cameraTools = {
  before: (id) => `Previous camera: ${id} (key P)`,
  after: (id) => `Next camera: ${id} (key N)`,
  larger: "Zoom in",
  smaller: "Zoom out",
  keep: "Download the picture",
  keepHint: "As it is shown, with or without boxes",
  kept: "The picture is downloaded.",
  noPicture: "There is no picture yet.",
  aside: "Picture in picture",
  asideHint: "A small window of its own, without boxes",
  past: "See the past",
  picture: (id) => `Picture of ${id}. Plus and minus zoom, arrow keys move it, 0 shows all of it.`,
  allStates: (n) => `All ${n}`,
};
