/** All connections. */

import { apiPath, del, get } from "../api.js";
import { h } from "../dom.js";
import { byteRate, short, time } from "../format.js";
import { formDialog } from "../parts/dialog.js";
import { badge, empty, head } from "../parts/elements.js";
import { notice } from "../parts/notice.js";
import { searchOver } from "../parts/search.js";
import { Table } from "../parts/table.js";
import { link } from "../router.js";
import { vhost } from "../session.js";

export function view() {
  const table = new Table({
    label: "Connections",
    key: (c) => c.name,
    sortBy: 0,
    empty: empty("No connections."),
    columns: [
      {
        label: "Name",
        sort: shownName,
        cell: (c) => h("a", { href: link("connections", c.name), title: c.name }, shownName(c)),
      },
      {
        label: "User",
        sort: (c) => c.user ?? "",
        cell: (c) => c.user ?? "",
        width: "8rem",
        minor: true,
      },
      {
        label: "State",
        sort: (c) => c.state ?? "",
        cell: (c) => connectionState(c),
        width: "7rem",
      },
      {
        label: "Channels",
        number: true,
        sort: (c) => c.channels ?? 0,
        cell: (c) => short(c.channels),
        width: "6.5rem",
        minor: true,
      },
      {
        label: "Received",
        number: true,
        sort: (c) => rateOf(c, "recv_oct") ?? -1,
        cell: (c) => byteRate(rateOf(c, "recv_oct")),
        width: "7rem",
        minor: true,
      },
      {
        label: "Sent",
        number: true,
        sort: (c) => rateOf(c, "send_oct") ?? -1,
        cell: (c) => byteRate(rateOf(c, "send_oct")),
        width: "7rem",
        minor: true,
      },
      {
        label: "Connected",
        sort: (c) => c.connected_at ?? 0,
        cell: (c) => time(c.connected_at),
        width: "13rem",
        minor: true,
      },
    ],
  });
  const search = searchOver(table, {
    label: "Search connections",
    text: (c) => `${c.name} ${c.user_provided_name ?? ""} ${c.user ?? ""}`,
  });
  const el = h(
    "div",
    { class: "view" },
    head({ title: "Connections" }),
    h("div", { class: "stack" }, search.el, table.el),
  );

  async function refresh(signal) {
    table.setRows(
      await get(vhost() ? apiPath`/vhosts/${vhost()}/connections` : "/connections", { signal }),
    );
    search.say();
  }
  return { title: "Connections", el, refresh };
}

function shownName(connection) {
  return connection.user_provided_name || connection.name;
}

function rateOf(connection, name) {
  return connection[`${name}_details`]?.rate;
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
