/** All exchanges. */

import { apiPath, get, put } from "../api.js";
import { h } from "../dom.js";
import { exchangeName, rate } from "../format.js";
import { formDialog } from "../parts/dialog.js";
import { badge, button, empty, head } from "../parts/elements.js";
import { notice } from "../parts/notice.js";
import { searchOver } from "../parts/search.js";
import { Table } from "../parts/table.js";
import { exchangeLink, goTo } from "../router.js";
import { vhost, vhostForNew } from "../session.js";
import { vhostOptions } from "./queues.js";

const TYPES = ["direct", "topic", "fanout", "headers", "x-delayed-message", "x-consistent-hash"];

export function view({ frame, reload }) {
  const types = () => (frame.overview?.exchange_types ?? []).map((type) => type.name);
  const declare = () => declareExchange(types(), reload);
  const isAll = vhost() === "";
  const table = new Table({
    label: "Exchanges",
    key: (x) => `${x.vhost}\n${x.name}`,
    sortBy: 0,
    empty: empty("No exchanges."),
    columns: [
      {
        label: "Name",
        sort: (x) => x.name,
        cell: (x) =>
          h(
            "a",
            { href: exchangeLink(x.vhost, x.name), title: exchangeName(x.name) },
            exchangeName(x.name),
          ),
      },
      ...(isAll
        ? [
            {
              label: "Vhost",
              sort: (x) => x.vhost,
              cell: (x) => x.vhost,
              width: "8rem",
              minor: true,
            },
          ]
        : []),
      { label: "Type", sort: (x) => x.type, cell: (x) => badge(x.type), width: "10rem" },
      { label: "Features", cell: features, width: "16rem", minor: true },
      {
        label: "Published",
        number: true,
        sort: (x) => rateOf(x, "publish_in") ?? -1,
        cell: (x) => rate(rateOf(x, "publish_in")),
        width: "7rem",
        minor: true,
      },
      {
        label: "Routed",
        number: true,
        sort: (x) => rateOf(x, "publish_out") ?? -1,
        cell: (x) => rate(rateOf(x, "publish_out")),
        width: "6rem",
        minor: true,
      },
    ],
  });
  const search = searchOver(table, {
    label: "Search exchanges",
    text: (x) => x.name,
    choices: [
      ["All", () => true],
      ["User-defined", (x) => x.name !== "" && !x.name.startsWith("amq.")],
    ],
  });
  const el = h(
    "div",
    { class: "view" },
    head({ title: "Exchanges", actions: [button("Declare an exchange", declare, "main")] }),
    h("div", { class: "stack" }, search.el, table.el),
  );

  async function refresh(signal) {
    table.setRows(await get(vhost() ? apiPath`/exchanges/${vhost()}` : "/exchanges", { signal }));
    search.say();
  }
  return { title: "Exchanges", el, refresh };
}

function rateOf(exchange, name) {
  return exchange.message_stats?.[`${name}_details`]?.rate;
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
