/**
 * The signed-in user and the selected vhost.
 *
 * Credentials are kept only in sessionStorage: in this tab, until it is closed.
 */

const LOGIN = "leveret.login";
const VHOST = "leveret.vhost";

/** Dispatches "signedout" (with a reason in `detail`) and "vhost". */
export const session = Object.assign(new EventTarget(), {
  /** @type {{name: string, tags: string[]}|null} */
  user: null,
  /** @type {string[]} */
  vhosts: [],
});

export function authorization() {
  return sessionStorage.getItem(LOGIN);
}

/** Return the Authorization header for a name and a password. */
export function basic(name, password) {
  const octets = new TextEncoder().encode(`${name}:${password}`);
  return `Basic ${btoa(String.fromCharCode(...octets))}`;
}

export function remember(header, user) {
  sessionStorage.setItem(LOGIN, header);
  session.user = user;
}

export function signOut(reason = "") {
  if (authorization() === null) return;
  sessionStorage.removeItem(LOGIN);
  session.user = null;
  session.dispatchEvent(new CustomEvent("signedout", { detail: reason }));
}

/** Return the selected vhost; empty means all. */
export function vhost() {
  return sessionStorage.getItem(VHOST) ?? "";
}

export function chooseVhost(name) {
  sessionStorage.setItem(VHOST, name);
  session.dispatchEvent(new Event("vhost"));
}

/** Return the vhost for new objects: the selected one, or the first. */
export function vhostForNew() {
  return vhost() || (session.vhosts.includes("/") ? "/" : (session.vhosts[0] ?? "/"));
}

/** Return true if the user has the rights of a tag. As in RabbitMQ, some tags include others. */
export function may(tag) {
  const tags = session.user?.tags ?? [];
  if (tags.includes("administrator") || tags.includes(tag)) return true;
  return tag === "management" && (tags.includes("monitoring") || tags.includes("policymaker"));
}
