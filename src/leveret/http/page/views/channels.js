/** All channels. The broker sorts and searches; visible pages are loaded. */

import { apiPath } from "../api.js";
import { h } from "../dom.js";
import { badge, empty, head } from "../parts/elements.js";
import { pagedList } from "../parts/paged_list.js";
import { Table } from "../parts/table.js";
import { link } from "../router.js";
import { vhost } from "../session.js";
import { counted, rateColumn } from "./queues.js";

const FIELDS = "name,number,user,state,connection_details";

export function view({ reload }) {
  const table = new Table({
    label: "Channels",
    key: (c) => c.name,
    sortBy: 0,
    empty: empty("No open channels."),
    columns: [
      {
        label: "Channel",
        sort: "connection_details.user_provided_name",
        cell: (c) => h("a", { href: link("channels", c.name), title: c.name }, shownName(c)),
      },
      { label: "User", sort: "user", cell: (c) => c.user ?? "", width: "7rem", minor: true },
      {
        label: "State",
        sort: "state",
        cell: (c) =>
          badge(c.state ?? "running", c.state === "flow" || c.state === "blocked" ? "warn" : ""),
        width: "6.5rem",
        minor: true,
      },
      { ...counted("In flight", "messages_unacknowledged", "6.5rem"), minor: false },
      counted("Unconfirmed", "messages_unconfirmed", "8rem"),
      counted("Prefetch", "prefetch_count", "6.5rem"),
      rateColumn("Published", "publish"),
      rateColumn("Delivered", "deliver_get"),
    ],
  });
  const search = pagedList(table, {
    label: "Search channels",
    path: () => (vhost() ? apiPath`/vhosts/${vhost()}/channels` : "/channels"),
    fields: FIELDS,
    choices: [
      ["All", ""],
      ["With messages in flight", "with_unacknowledged"],
    ],
    reload,
  });
  const el = h(
    "div",
    { class: "view" },
    head({ title: "Channels" }),
    h("div", { class: "stack" }, search.el, table.el),
  );
  return { title: "Channels", el, refresh: search.refresh };
}

/** Return the client's name of the connection, or the broker's, and the number of the channel. */
function shownName({ name, number, connection_details: connection }) {
  return connection?.user_provided_name ? `${connection.user_provided_name} (${number})` : name;
}
