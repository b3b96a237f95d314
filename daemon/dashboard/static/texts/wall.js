// Words of the wall's layouts and views.

export const wallTexts = {
  layout: "Layout",
  layouts: {
    auto: "Fills the screen", list: "List", "1": "One", "2x2": "2 × 2", "3x3": "3 × 3", "4x4": "4 × 4", "5x5": "5 × 5", "1+5": "1 and 5",
    "1+7": "1 and 7",
  },
  pin: (id) => `Pin ${id}`,
  pinned: "Pinned",
  pinHint: "Pinned cameras come first.",
  whole: "Wall without the header",
  leave: "Show the header",
  views: "Views",
};

export const viewTexts = {
  title: "Views of this wall",
  name: "Name",
  hint: "This browser keeps layout, order, groups, pinned cameras and search. A link gives the same wall to others.",
  keep: "Keep this view",
  kept: (name) => `The view ${name} is kept.`,
  copy: "Copy link",
  forget: "Forget",
};
