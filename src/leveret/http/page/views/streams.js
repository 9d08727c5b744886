/** All streams. */

import { h } from "../dom.js";
import { empty, head } from "../parts/elements.js";
import { pagedList } from "../parts/paged_list.js";
import { Table } from "../parts/table.js";
import { link } from "../router.js";
import { counted, listPath, rateColumn, vhostColumn } from "./queues.js";

export function view({ reload }) {
  const table = new Table({
    label: "Streams",
    key: (queue) => `${queue.vhost}\n${queue.name}`,
    sortBy: 0,
    empty: empty("No streams. Declare a queue of type “stream” to create one."),
    columns: [
      {
        label: "Name",
        sort: "name",
        cell: (q) => h("a", { href: link("streams", q.vhost, q.name), title: q.name }, q.name),
      },
      vhostColumn(),
      { ...counted("Messages", "messages", "7rem"), minor: false },
      counted("Consumers", "consumers", "7rem"),
      { ...rateColumn("Published", "publish"), minor: false },
    ],
  });
  const search = pagedList(table, {
    label: "Search streams",
    path: listPath,
    fields: "name,vhost",
    only: "streams",
    reload,
  });
  const el = h(
    "div",
    { class: "view" },
    head({ title: "Streams" }),
    h("div", { class: "stack" }, search.el, table.el),
  );
  return { title: "Streams", el, refresh: search.refresh };
}
