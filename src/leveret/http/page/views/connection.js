/** One connection: its client, traffic and channels, and a button to close it. */

import { apiPath, get } from "../api.js";
import { fill, h } from "../dom.js";
import { byteRate, bytes, count, duration, time } from "../format.js";
import { Chart } from "../parts/chart.js";
import { button, facts, head, list, sheet, tableFacts } from "../parts/elements.js";
import { goTo, link } from "../router.js";
import { rateHistory } from "../rate_history.js";
import { closeConnection, connectionState } from "./connections.js";

const LINES = [
  { key: "recv_oct", label: "From the client" },
  { key: "send_oct", label: "To the client" },
];

export function view({ params }) {
  const { name } = params;
  const sub = h("div", { class: "row" });
  const about = h("div");
  const client = h("div");
  const channels = h("div");
  const chart = new Chart("Bytes per second", LINES, byteRate);
  const close = async () => {
    if (await closeConnection(name)) goTo("#/connections");
  };
  const el = h(
    "div",
    { class: "view" },
    head({
      title: name,
      crumb: h("a", { href: "#/connections" }, "Connections"),
      sub,
      actions: [button("Close", close, "danger")],
    }),
    sheet("Traffic", chart.el),
    h(
      "div",
      { class: "columns" },
      sheet("Details", about),
      sheet("Client properties", client),
    ),
    sheet("Channels", channels),
  );

  async function refresh(signal) {
    const connection = await get(apiPath`/connections/${name}`, { signal });
    const history = rateHistory(`connection ${name}`);
    history.count(
      { recv_oct: connection.recv_oct ?? 0, send_oct: connection.send_oct ?? 0 },
      { recv_oct: connection.recv_oct_details?.rate, send_oct: connection.send_oct_details?.rate },
    );
    chart.update(history);
    const given = connection.user_provided_name;
    if (given) fill(el.querySelector("h1"), given);
    fill(sub, connectionState(connection), given && h("span", { class: "mono" }, name), `${connection.user} in vhost ${connection.vhost}`);
    fill(about, drawFacts(connection));
    fill(client, tableFacts(connection.client_properties));
    fill(channels, drawChannels(await get(apiPath`/connections/${name}/channels`, { signal })));
  }
  return { title: name, el, refresh };
}

function drawFacts(c) {
  return facts([
    ["Protocol", c.protocol],
    ["Peer", c.peer_host && `${c.peer_host}:${c.peer_port}`],
    ["TLS", c.ssl ? (c.ssl_protocol ?? "yes") : "no"],
    ["Login", c.auth_mechanism],
    ["Connected", time(c.connected_at)],
    ["Heartbeat", c.timeout ? `every ${c.timeout} s` : "none"],
    [
      "Last heartbeat",
      typeof c.last_heartbeat_ago_ms === "number"
        ? `${duration(c.last_heartbeat_ago_ms)} ago`
        : null,
    ],
    ["Maximum frame size", c.frame_max ? bytes(c.frame_max) : null],
    ["Maximum channels", count(c.channel_max)],
    ["Received", bytes(c.recv_oct)],
    ["Sent", bytes(c.send_oct)],
  ]);
}

function drawChannels(channels) {
  return list(
    [
      {
        label: "Channel",
        cell: (c) => h("a", { href: link("channels", c.name) }, `Channel ${c.number}`),
      },
      { label: "State", cell: (c) => c.state },
      { label: "Consumers", number: true, cell: (c) => count(c.consumer_count) },
      { label: "In flight", number: true, cell: (c) => count(c.messages_unacknowledged) },
      { label: "Prefetch", number: true, cell: (c) => count(c.prefetch_count) },
      {
        label: "Mode",
        cell: (c) => (c.transactional ? "transactional" : c.confirm ? "confirms" : "plain"),
      },
    ],
    channels,
    "No channels.",
  );
}
