/**
 * The signed-in user and the selected vhost.
 *
 * Credentials are kept only in sessionStorage, never on disk. A new tab asks the open tabs of this
 * page for them, so that it is signed in too. Signing out signs out all tabs of the same user.
 */

const LOGIN = "leveret.login";
const VHOST = "leveret.vhost";

const OTHER_TABS_MS = 300; // to wait for an answer of another tab

const tabs = new BroadcastChannel("leveret.session");

/** Dispatches "signedout" (with a reason in `detail`), "offered" (a login by another tab), "vhost". */
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
  tabs.postMessage({ kind: "login", login: header });
}

export function signOut(reason = "") {
  const login = authorization();
  if (login === null) return;
  forget(reason);
  tabs.postMessage({ kind: "signedout", login, reason });
}

function forget(reason) {
  sessionStorage.removeItem(LOGIN);
  session.user = null;
  session.dispatchEvent(new CustomEvent("signedout", { detail: reason }));
}

tabs.onmessage = ({ data }) => {
  const login = authorization();
  if (data.kind === "ask" && login) tabs.postMessage({ kind: "login", login });
  if (data.kind === "login" && !login)
    session.dispatchEvent(new CustomEvent("offered", { detail: data.login }));
  if (data.kind === "signedout" && data.login === login) forget(data.reason);
};

/** Return the login of another tab, or null if no tab answers. */
export function askOtherTabs() {
  return new Promise((resolve) => {
    const done = (login) => {
      session.removeEventListener("offered", onOffer);
      resolve(login);
    };
    const onOffer = (event) => done(event.detail);
    session.addEventListener("offered", onOffer);
    setTimeout(() => done(null), OTHER_TABS_MS);
    tabs.postMessage({ kind: "ask" });
  });
}

/** Return the selected vhost; empty means all. */
export function vhost() {
  return sessionStorage.getItem(VHOST) ?? "";
}

/** Return whether the user has selected a vhost, or all, in this tab. */
export function hasChosenVhost() {
  return sessionStorage.getItem(VHOST) !== null;
}

/** Select a vhost, such as that of an address. */
export function setVhost(name) {
  sessionStorage.setItem(VHOST, name);
}

/** Select a vhost, and show it. */
export function chooseVhost(name) {
  session.dispatchEvent(new CustomEvent("vhost", { detail: name }));
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
