// Notes what the page reads of an answer that is not in it: `unsent` has each place once, such as "GET /api/sources [].state".
{
  const found = new Set();
  window.unsent = () => [...found].sort();

  /** The same value; a name that it lacks is noted when it is read. */
  const watched = (value, place) => {
    if (Array.isArray(value)) value.forEach((one) => watched(one, `${place}[]`));
    else if (value && typeof value === "object") {
      for (const [name, one] of Object.entries(value)) watched(one, `${place}.${name}`);
      Object.setPrototypeOf(value, new Proxy(Object.prototype, {
        get(target, name, receiver) {
          // An answer that is awaited is asked whether it is a promise, and one that is sent how it wants to be.
          const isOwn = typeof name === "symbol" || name in target || ["then", "toJSON"].includes(name);
          if (!isOwn) found.add(`${place}.${name}`);
          return Reflect.get(target, name, receiver);
        },
      }));
    }
    return value;
  };

  const json = Response.prototype.json;
  Response.prototype.json = async function () {
    return watched(await json.call(this), `${new URL(this.url).pathname} `);
  };
  const parse = JSON.parse;
  JSON.parse = (text, ...more) => {
    const value = parse(text, ...more);
    if (Array.isArray(value) && value.every((one) => one?.kind)) value.forEach((one) => watched(one, `feed ${one.kind} `));
    else if (value && typeof value === "object") watched(value, value.kind ? `live ${value.kind} ` : `{${Object.keys(value)}} `);
    return value;
  };

  // The page copies what it keeps: these copies are watched as well.
  addEventListener("load", async () => {
    const model = await import("/static/model.js");
    for (const name of ["sources", "daemons", "events"]) {
      const store = model[name];
      const set = store.set.bind(store);
      store.set = (value) => {
        for (const one of value.values()) if (Object.getPrototypeOf(one) === Object.prototype) watched(one, `${name} `);
        set(value);
      };
    }
  });
}
