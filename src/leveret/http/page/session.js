/**
 * Who is logged in, and which vhost they look at.
 *
 * Credentials live in sessionStorage, that is in this tab until it is closed, and nowhere else.
 */

const LOGIN = "leveret.login";
const VHOST = "leveret.vhost";

/** Tells "signedout" (with a reason in `detail`) and "vhost". */
export const session = Object.assign(new EventTarget(), {
  /** @type {{name: string, tags: string[]}|null} */
  user: null,
  /** @type {string[]} */
  vhosts: [],
});

export function authorization() {
  return sessionStorage.getItem(LOGIN);
}

/** The header for a name and a password. */
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

/** The chosen vhost; empty for all of them. */
export function vhost() {
  return sessionStorage.getItem(VHOST) ?? "";
}

export function chooseVhost(name) {
  sessionStorage.setItem(VHOST, name);
  session.dispatchEvent(new Event("vhost"));
}

/** The vhost for something new: the chosen one, or the first. */
export function vhostForNew() {
  return vhost() || (session.vhosts.includes("/") ? "/" : (session.vhosts[0] ?? "/"));
}

/** Whether the user has what a tag allows; tags include others as in RabbitMQ. */
export function may(tag) {
  const tags = session.user?.tags ?? [];
  if (tags.includes("administrator") || tags.includes(tag)) return true;
  return tag === "management" && (tags.includes("monitoring") || tags.includes("policymaker"));
}
