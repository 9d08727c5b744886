/**
 * All views of the page: address, section of the navigation, and module.
 *
 * A module is loaded when its view is opened first. `main.js` gives the table to the router; no
 * other module imports it, because views import the router.
 */

/** @type {import("./router.js").Route[]} */
export const ROUTES = [
  route("/", "overview", () => import("./views/overview.js")),
  route("/node", "node", () => import("./views/node.js")),
  route("/queues", "queues", () => import("./views/queues.js")),
  route("/queues/:vhost/:name", "queues", () => import("./views/queue.js")),
  route("/queues/:vhost/:name/:tab", "queues", () => import("./views/queue.js")),
  route("/streams", "streams", () => import("./views/streams.js")),
  route("/streams/:vhost/:name", "streams", () => import("./views/stream.js")),
  route("/jobs", "jobs", () => import("./views/jobs.js")),
  route("/jobs/:namespace/:topic", "jobs", () => import("./views/jobs_topic.js")),
  route("/exchanges", "exchanges", () => import("./views/exchanges.js")),
  route("/exchanges/:vhost/:name", "exchanges", () => import("./views/exchange.js")),
  route("/exchanges/:vhost/:name/:tab", "exchanges", () => import("./views/exchange.js")),
  route("/trace", "trace", () => import("./views/trace.js")),
  route("/connections", "connections", () => import("./views/connections.js")),
  route("/connections/:name", "connections", () => import("./views/connection.js")),
  route("/channels", "channels", () => import("./views/channels.js")),
  route("/channels/:name", "channels", () => import("./views/channel.js")),
  route("/cluster", "cluster", () => import("./views/cluster.js")),
  route("/tasks", "tasks", () => import("./views/tasks.js")),
  route("/users", "users", () => import("./views/users.js")),
  route("/users/:name", "users", () => import("./views/user.js")),
  route("/vhosts", "vhosts", () => import("./views/vhosts.js")),
  route("/policies", "policies", () => import("./views/policies.js")),
  route("/limits", "limits", () => import("./views/limits.js")),
  route("/definitions", "definitions", () => import("./views/definitions.js")),
  route("/audit", "audit", () => import("./views/audit.js")),
  route("/manual/:first", "manual", () => import("./views/manual.js")),
  route("/manual/:first/:second", "manual", () => import("./views/manual.js")),
  route("/manual/:first/:second/:third", "manual", () => import("./views/manual.js")),
];

function route(path, section, load) {
  return { path, section, load };
}
