/**
 * Addresses of the page: from an address to its route, and from names to an address.
 *
 * An address is a path after `#`: `#/queues/%2F/orders/messages?state=ready`. `main.js` fills the
 * table of routes (`routes.js`). This module imports nothing, so that views can import it.
 *
 * What the user has chosen in a list (search, order, vhost, place) is in the address too, so that
 * Back, a reload and a copied link show the same list.
 */

/** @typedef {{path: string, load: () => Promise<{view: Function}>, section: string}} Route */

/** @type {Route[]} */
const routes = [];

/** @param {Route[]} added */
export function addRoutes(added) {
  routes.push(...added);
}

/**
 * Return an address within the page: link("queues", vhost, name).
 * @param {...string} parts
 */
export function link(...parts) {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

/** Return the address of an exchange. The default exchange is called amq.default, as in RabbitMQ. */
export function exchangeLink(vhost, name, ...more) {
  return link("exchanges", vhost, name || "amq.default", ...more);
}

/**
 * Return the route of an address with its parameters, or null.
 * @param {string} hash
 * @returns {{route: Route, params: Object<string, string>, query: URLSearchParams}|null}
 */
export function findRoute(hash) {
  const [path, search = ""] = hash.replace(/^#/, "").split("?");
  const given = path.split("/").filter(Boolean);
  for (const route of routes) {
    const params = matchPath(route.path.split("/").filter(Boolean), given);
    if (params) return { route, params, query: new URLSearchParams(search) };
  }
  return null;
}

function matchPath(wanted, given) {
  if (wanted.length !== given.length) return null;
  const params = {};
  for (const [i, part] of wanted.entries()) {
    if (!part.startsWith(":")) {
      if (part !== given[i]) return null;
    } else {
      try {
        params[part.slice(1)] = decodeURIComponent(given[i]);
      } catch {
        return null;
      }
    }
  }
  return params;
}

export function goTo(address) {
  location.hash = address;
}

/** Return the current address without the choices. */
export function currentPath() {
  return location.hash.split("?")[0] || "#/";
}

/** Return the choices in the current address. */
export function currentQuery() {
  return new URLSearchParams(location.hash.split("?")[1] ?? "");
}

/**
 * Return the current address with other choices; null removes one.
 * @param {Object<string, string|null>} changes
 */
export function withQuery(changes) {
  const query = currentQuery();
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) query.delete(name);
    else query.set(name, value);
  }
  return `${currentPath()}${query.size > 0 ? `?${query}` : ""}`;
}

/** Note choices in the address, without a step for Back. */
export function noteQuery(changes) {
  history.replaceState(history.state, "", withQuery(changes));
}
