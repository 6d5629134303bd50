// The whole view is in the address: a copied link shows the same, and Back works.

/** The parameters of the address, with defaults for those that are missing. Arrays keep repeated ones. */
export function readView(defaults) {
  const query = new URLSearchParams(location.search);
  const view = {};
  for (const [name, fallback] of Object.entries(defaults)) {
    if (Array.isArray(fallback)) view[name] = query.has(name) ? query.getAll(name) : [...fallback];
    else if (!query.has(name)) view[name] = fallback;
    else if (typeof fallback === "number") {
      const number = Number(query.get(name));
      view[name] = Number.isFinite(number) ? number : fallback;
    } else view[name] = query.get(name);
  }
  return view;
}

/** Put a view into the address; what equals its default is left out. `push` makes a step for Back. */
export function writeView(view, defaults, push = false) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(view)) {
    const values = Array.isArray(value) ? value : [value];
    if (JSON.stringify(value) === JSON.stringify(defaults[name])) continue;
    for (const one of values) if (one !== null && one !== undefined && one !== "") query.append(name, one);
  }
  const text = query.toString();
  const address = text ? `${location.pathname}?${text}` : location.pathname;
  if (address === location.pathname + location.search) return;
  history[push ? "pushState" : "replaceState"](null, "", address);
}

/** Call `show` when Back or Forward was pressed. */
export function onBack(show) {
  window.addEventListener("popstate", show);
}

/** Part number `index` of the path, decoded: of /run/mine/tokens part 1 is "mine". */
export function pathPart(index) {
  return decodeURIComponent(location.pathname.split("/").filter(Boolean)[index] ?? "");
}
