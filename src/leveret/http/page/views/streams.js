/** All streams. */

import { apiPath, get } from "../api.js";
import { h } from "../dom.js";
import { rate, short } from "../format.js";
import { empty, head } from "../parts/elements.js";
import { searchOver } from "../parts/search.js";
import { Table } from "../parts/table.js";
import { link } from "../router.js";
import { vhost } from "../session.js";

const COLUMNS = "name,vhost,type,messages,consumers,message_stats.publish_details.rate";

export function view() {
  const table = new Table({
    label: "Streams",
    key: (queue) => `${queue.vhost}\n${queue.name}`,
    sortBy: 0,
    empty: empty("No streams. Declare a queue of type “stream” to create one."),
    columns: [
      {
        label: "Name",
        sort: (q) => q.name,
        cell: (q) => h("a", { href: link("streams", q.vhost, q.name), title: q.name }, q.name),
      },
      { label: "Vhost", sort: (q) => q.vhost, cell: (q) => q.vhost, width: "8rem", minor: true },
      {
        label: "Messages",
        number: true,
        sort: (q) => q.messages ?? 0,
        cell: (q) => short(q.messages ?? 0),
        width: "7rem",
      },
      {
        label: "Consumers",
        number: true,
        sort: (q) => q.consumers ?? 0,
        cell: (q) => short(q.consumers ?? 0),
        width: "7rem",
        minor: true,
      },
      { label: "Published", number: true, sort: rateIn, cell: (q) => rate(rateIn(q)), width: "7rem" },
    ],
  });
  const search = searchOver(table, { label: "Search streams", text: (q) => q.name });
  const el = h(
    "div",
    { class: "view" },
    head({ title: "Streams" }),
    h("div", { class: "stack" }, search.el, table.el),
  );

  async function refresh(signal) {
    const path = vhost() ? apiPath`/queues/${vhost()}` : "/queues";
    const queues = await get(`${path}?columns=${COLUMNS}`, { signal });
    table.setRows(queues.filter((queue) => queue.type === "stream"));
    search.say();
  }
  return { title: "Streams", el, refresh };
}

function rateIn(queue) {
  return queue.message_stats?.publish_details?.rate ?? 0;
}
