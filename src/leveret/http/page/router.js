/**
 * From the address to a view: `#/queues/%2F/orders/messages?state=ready`.
 *
 * `VIEWS` is the list of all of them; a module is loaded when it is first needed.
 */

/** @typedef {{path: string, load: () => Promise<{view: Function}>, section: string}} Route */

/** @type {Route[]} */
export const VIEWS = [
  at("/", "overview", () => import("./views/overview.js")),
  at("/queues", "queues", () => import("./views/queues.js")),
  at("/queues/:vhost/:name", "queues", () => import("./views/queue.js")),
  at("/queues/:vhost/:name/:tab", "queues", () => import("./views/queue.js")),
  at("/streams", "streams", () => import("./views/streams.js")),
  at("/streams/:vhost/:name", "streams", () => import("./views/stream.js")),
  at("/jobs", "jobs", () => import("./views/jobs.js")),
  at("/jobs/:namespace/:topic", "jobs", () => import("./views/jobs_topic.js")),
  at("/exchanges", "exchanges", () => import("./views/exchanges.js")),
  at("/exchanges/:vhost/:name", "exchanges", () => import("./views/exchange.js")),
  at("/exchanges/:vhost/:name/:tab", "exchanges", () => import("./views/exchange.js")),
  at("/trace", "trace", () => import("./views/trace.js")),
  at("/connections", "connections", () => import("./views/connections.js")),
  at("/connections/:name", "connections", () => import("./views/connection.js")),
  at("/channels", "channels", () => import("./views/channels.js")),
  at("/channels/:name", "channels", () => import("./views/channel.js")),
  at("/tasks", "tasks", () => import("./views/tasks.js")),
  at("/users", "users", () => import("./views/users.js")),
  at("/users/:name", "users", () => import("./views/user.js")),
  at("/vhosts", "vhosts", () => import("./views/vhosts.js")),
  at("/policies", "policies", () => import("./views/policies.js")),
  at("/limits", "limits", () => import("./views/limits.js")),
  at("/definitions", "definitions", () => import("./views/definitions.js")),
  at("/audit", "audit", () => import("./views/audit.js")),
];

function at(path, section, load) {
  return { path, section, load };
}

/**
 * An address within the page: link("queues", vhost, name).
 * @param {...string} parts
 */
export function link(...parts) {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

/** The address of an exchange; the default one goes by RabbitMQ's name for it. */
export function exchangeLink(vhost, name, ...more) {
  return link("exchanges", vhost, name || "amq.default", ...more);
}

/**
 * The view of an address, with the parts of it that the view takes.
 * @param {string} hash
 * @returns {{route: Route, params: Object<string, string>, query: URLSearchParams}|null}
 */
export function find(hash) {
  const [path, search = ""] = hash.replace(/^#/, "").split("?");
  const given = path.split("/").filter(Boolean);
  for (const route of VIEWS) {
    const params = match(route.path.split("/").filter(Boolean), given);
    if (params) return { route, params, query: new URLSearchParams(search) };
  }
  return null;
}

function match(wanted, given) {
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

export function go(address) {
  location.hash = address;
}
