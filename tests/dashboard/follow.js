// Follow a link to a moment, as those of events are.
window.follow = (path) => {
  const link = Object.assign(document.createElement("a"), { href: path });
  document.body.append(link);
  link.click();
  link.remove();
};
0;
