/** All connections. The broker sorts and searches; visible pages are loaded. */

import { apiPath, del } from "../api.js";
import { fill, h } from "../dom.js";
import { byteRate, time } from "../format.js";
import { formDialog } from "../parts/dialog.js";
import { badge, empty, head } from "../parts/elements.js";
import { notice } from "../parts/notice.js";
import { pagedList } from "../parts/paged_list.js";
import { Table } from "../parts/table.js";
import { link } from "../router.js";
import { vhost } from "../session.js";
import { counted } from "./queues.js";

const FIELDS = "name,user_provided_name,user,state";

export function view({ frame, reload }) {
  const how = h("p", { class: "soft" });
  const table = new Table({
    label: "Connections",
    key: (c) => c.name,
    sortBy: 0,
    empty: empty("No connections.", how),
    columns: [
      {
        label: "Name",
        sort: "user_provided_name",
        cell: (c) => h("a", { href: link("connections", c.name), title: c.name }, shownName(c)),
      },
      { label: "User", sort: "user", cell: (c) => c.user ?? "", width: "8rem", minor: true },
      { label: "State", sort: "state", cell: connectionState, width: "7rem" },
      counted("Channels", "channels", "6.5rem"),
      byteRateColumn("Received", "recv_oct"),
      byteRateColumn("Sent", "send_oct"),
      {
        label: "Connected",
        sort: "connected_at",
        field: "connected_at",
        cell: (c) => time(c.connected_at),
        width: "13rem",
        minor: true,
      },
    ],
  });
  const search = pagedList(table, {
    label: "Search connections",
    path: () => (vhost() ? apiPath`/vhosts/${vhost()}/connections` : "/connections"),
    fields: FIELDS,
    reload,
  });
  const el = h(
    "div",
    { class: "view" },
    head({ title: "Connections" }),
    h("div", { class: "stack" }, search.el, table.el),
  );

  async function refresh(signal) {
    const port = frame.overview?.listeners?.find((each) => each.protocol === "amqp")?.port;
    fill(how, port && `Clients connect over AMQP to port ${port} of this node.`);
    await search.refresh(signal);
  }
  return { title: "Connections", el, refresh };
}

/** Return a column of bytes per second. */
function byteRateColumn(label, name) {
  const field = `${name}_details.rate`;
  const cell = (c) => byteRate(c[`${name}_details`]?.rate);
  return { label, number: true, sort: field, field, cell, width: "7rem", minor: true };
}

function shownName(connection) {
  return connection.user_provided_name || connection.name;
}

export function connectionState(connection) {
  const state = connection.state ?? "running";
  return badge(state, state === "running" ? "good" : "warn");
}

/** Ask for a reason and close a connection. Resolves to true if it was closed. */
export function closeConnection(name) {
  return formDialog({
    title: `Close “${name}”?`,
    about: "Its channels are closed, and their unacknowledged messages return to the queues.",
    verb: "Close the connection",
    danger: true,
    fields: [
      {
        name: "reason",
        label: "Reason (sent to the client)",
        value: "Closed from the management page",
        whole: true,
      },
    ],
    submit: async ({ reason }) => {
      // Browsers refuse headers that are not ASCII.
      const said = reason.replace(/[^\x20-\x7e]/g, "?");
      await del(apiPath`/connections/${name}`, { headers: said ? { "X-Reason": said } : {} });
      notice("The connection is closed.");
    },
  });
}
