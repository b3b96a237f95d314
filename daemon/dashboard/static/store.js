// Values that components watch. Listeners hear of all changes of one animation frame at once: a wall of 150 cameras
// gets hundreds of messages a second.
import { useEffect, useState } from "./html.js";

const due = new Set();
let scheduled = false;

function flush() {
  scheduled = false;
  const now = [...due];
  due.clear();
  for (const store of now) for (const listener of [...store.listeners]) listener(store.value);
}

// A hidden tab has no animation frames, and its title and states should stay right.
const soon = (task) => (document.hidden ? setTimeout(task, 250) : requestAnimationFrame(task));

export class Store {
  constructor(value) {
    this.value = value;
    this.listeners = new Set();
  }

  set(value) {
    if (value === this.value) return;
    this.value = value;
    this.touch();
  }

  update(change) {
    this.set(change(this.value));
  }

  /** Tell listeners, after a change within the value. */
  touch() {
    due.add(this);
    if (scheduled) return;
    scheduled = true;
    soon(flush);
  }

  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

/** The store's value; the component is drawn again when it changes. */
export function useStore(store) {
  const [, redraw] = useState(0);
  useEffect(() => {
    const before = store.value;
    const stop = store.listen(() => redraw((n) => n + 1));
    if (store.value !== before) redraw((n) => n + 1);
    return stop;
  }, [store]);
  return store.value;
}
