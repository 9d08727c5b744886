/** All channels. */

import { apiPath, get } from "../api.js";
import { channelName, loadConnectionNames } from "../connection_names.js";
import { h } from "../dom.js";
import { rate, short } from "../format.js";
import { badge, empty, head } from "../parts/elements.js";
import { searchOver } from "../parts/search.js";
import { Table } from "../parts/table.js";
import { link } from "../router.js";
import { vhost } from "../session.js";

export function view() {
  const table = new Table({
    label: "Channels",
    key: (c) => c.name,
    sortBy: 0,
    empty: empty("No open channels."),
    columns: [
      {
        label: "Channel",
        sort: (c) => channelName(c.name),
        cell: (c) => h("a", { href: link("channels", c.name), title: c.name }, channelName(c.name)),
      },
      {
        label: "User",
        sort: (c) => c.user ?? "",
        cell: (c) => c.user ?? "",
        width: "7rem",
        minor: true,
      },
      {
        label: "State",
        sort: (c) => c.state ?? "",
        cell: (c) =>
          badge(c.state ?? "running", c.state === "flow" || c.state === "blocked" ? "warn" : ""),
        width: "6.5rem",
        minor: true,
      },
      {
        label: "In flight",
        number: true,
        sort: (c) => c.messages_unacknowledged ?? 0,
        cell: (c) => short(c.messages_unacknowledged),
        width: "6.5rem",
      },
      {
        label: "Unconfirmed",
        number: true,
        sort: (c) => c.messages_unconfirmed ?? 0,
        cell: (c) => short(c.messages_unconfirmed),
        width: "8rem",
        minor: true,
      },
      {
        label: "Prefetch",
        number: true,
        sort: (c) => c.prefetch_count ?? 0,
        cell: (c) => short(c.prefetch_count),
        width: "6.5rem",
        minor: true,
      },
      {
        label: "Published",
        number: true,
        sort: (c) => rateOf(c, "publish") ?? -1,
        cell: (c) => rate(rateOf(c, "publish")),
        width: "7rem",
        minor: true,
      },
      {
        label: "Delivered",
        number: true,
        sort: (c) => rateOf(c, "deliver_get") ?? -1,
        cell: (c) => rate(rateOf(c, "deliver_get")),
        width: "7rem",
        minor: true,
      },
    ],
  });
  const search = searchOver(table, {
    label: "Search channels",
    text: (c) => `${c.name} ${channelName(c.name)} ${c.user ?? ""}`,
    choices: [
      ["All", () => true],
      ["With messages in flight", (c) => (c.messages_unacknowledged ?? 0) > 0],
    ],
  });
  const el = h(
    "div",
    { class: "view" },
    head({ title: "Channels" }),
    h("div", { class: "stack" }, search.el, table.el),
  );

  async function refresh(signal) {
    await loadConnectionNames(signal);
    table.setRows(await get(vhost() ? apiPath`/vhosts/${vhost()}/channels` : "/channels", { signal }));
    search.say();
  }
  return { title: "Channels", el, refresh };
}

function rateOf(channel, name) {
  return channel.message_stats?.[`${name}_details`]?.rate;
}
