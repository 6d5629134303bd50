// Views with texts in them: in the address as long as it stays short enough for the server and for a mail.
import { writeView } from "../address.js";

const LONGEST = 5000;

/** Put a view into the address; `texts` names what is left out if all of it would be too long. Whether all of it is there. */
export function writeLongView(view, defaults, texts, push = false) {
  const size = texts.reduce((sum, name) => sum + encodeURIComponent(view[name] ?? "").length, 0);
  const short = size <= LONGEST;
  const cut = Object.fromEntries(texts.map((name) => [name, defaults[name]]));
  writeView(short ? view : { ...view, ...cut }, defaults, push);
  return short;
}

/** Messages out of an address, or null if they are none. */
export function readMessages(text) {
  if (!text) return null;
  try {
    const found = JSON.parse(text);
    const good = Array.isArray(found) && found.length && found.every((one) => typeof one?.role === "string" && typeof one?.content === "string");
    return good ? found.map(({ role, content }) => ({ role, content })) : null;
  } catch { return null; }
}
