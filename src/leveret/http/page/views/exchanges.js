/** All exchanges. The broker sorts and searches; visible pages are loaded. */

import { apiPath, put } from "../api.js";
import { h } from "../dom.js";
import { exchangeName } from "../format.js";
import { formDialog } from "../parts/dialog.js";
import { badge, button, empty, head } from "../parts/elements.js";
import { notice } from "../parts/notice.js";
import { pagedList } from "../parts/paged_list.js";
import { Table } from "../parts/table.js";
import { exchangeLink, goTo } from "../router.js";
import { vhost, vhostForNew } from "../session.js";
import { rateColumn, vhostColumn, vhostOptions } from "./queues.js";

const FIELDS = "name,vhost,type,durable,auto_delete,internal,policy,arguments";
const TYPES = ["direct", "topic", "fanout", "headers", "x-delayed-message", "x-consistent-hash"];

export function view({ frame, reload }) {
  const types = () => (frame.overview?.exchange_types ?? []).map((type) => type.name);
  const declare = () => declareExchange(types(), reload);
  const table = new Table({
    label: "Exchanges",
    key: (x) => `${x.vhost}\n${x.name}`,
    sortBy: 0,
    empty: empty("No exchanges."),
    columns: [
      {
        label: "Name",
        sort: "name",
        cell: (x) =>
          h(
            "a",
            { href: exchangeLink(x.vhost, x.name), title: exchangeName(x.name) },
            exchangeName(x.name),
          ),
      },
      ...(vhost() === "" ? [vhostColumn()] : []),
      { label: "Type", sort: "type", cell: (x) => badge(x.type), width: "10rem" },
      { label: "Features", cell: features, width: "16rem", minor: true },
      rateColumn("Published", "publish_in"),
      rateColumn("Routed", "publish_out", "6rem"),
    ],
  });
  const search = pagedList(table, {
    label: "Search exchanges",
    path: () => (vhost() ? apiPath`/exchanges/${vhost()}` : "/exchanges"),
    fields: FIELDS,
    choices: [
      ["All", ""],
      ["User-defined", "user_defined"],
    ],
    reload,
  });
  const el = h(
    "div",
    { class: "view" },
    head({ title: "Exchanges", actions: [button("Declare an exchange", declare, "main")] }),
    h("div", { class: "stack" }, search.el, table.el),
  );
  return { title: "Exchanges", el, refresh: search.refresh };
}

export function features(exchange) {
  return [
    exchange.durable === false && badge("transient"),
    exchange.auto_delete && badge("auto-delete"),
    exchange.internal && badge("internal"),
    exchange.policy && badge(`policy ${exchange.policy}`),
    exchange.arguments?.["alternate-exchange"] && badge("alternate"),
  ];
}

async function declareExchange(types, reload) {
  let made = null;
  await formDialog({
    title: "Declare an exchange",
    verb: "Declare",
    fields: [
      { name: "name", label: "Name", required: true },
      {
        name: "vhost",
        label: "Virtual host",
        type: "select",
        options: vhostOptions(),
        value: vhostForNew(),
      },
      {
        name: "type",
        label: "Type",
        type: "select",
        options: types.length > 0 ? types : TYPES,
        value: types.includes("topic") || types.length === 0 ? "topic" : types[0],
      },
      { name: "durable", label: "Durable (survives a restart)", type: "check", value: true },
      { name: "auto_delete", label: "Auto-delete (deleted with its last binding)", type: "check" },
      { name: "internal", label: "Internal (clients cannot publish to it)", type: "check" },
      {
        name: "arguments",
        label: "Arguments",
        type: "lines",
        names: ["alternate-exchange", "x-delayed-type", "x-remember"],
        hint: "One name: value per line.",
      },
    ],
    submit: async ({ name, vhost: place, ...body }) => {
      await put(apiPath`/exchanges/${place}/${name}`, body);
      made = { name, place };
    },
  });
  if (made) {
    notice(`The exchange “${made.name}” is declared.`);
    reload();
    goTo(exchangeLink(made.place, made.name));
  }
}
