/** One queue: messages, the explanation of its state, consumers, bindings, and actions. */

import { apiPath, get } from "../api.js";
import { loadConnectionNames } from "../connection_names.js";
import { fill, h } from "../dom.js";
import { bytes, count, duration, percent, rate, short } from "../format.js";
import { Chart } from "../parts/chart.js";
import { facts, figures, head, sheet, tableFacts, tabs } from "../parts/elements.js";
import { RATES } from "../frame.js";
import { link } from "../router.js";
import { countStats, rateHistory } from "../rate_history.js";
import { explanation } from "./explain.js";
import { DEPTH_LINES, RATE_LINES } from "./overview.js";
import { bindingsTab } from "./queue_bindings.js";
import { consumersTab } from "./queue_consumers.js";
import { messagesTab } from "./queue_messages.js";
import { queueActions } from "./queue_actions.js";
import { features } from "./queues.js";

export function view({ params, query, reload }) {
  const { vhost, name } = params;
  const tab = params.tab ?? "overview";
  const sub = h("div", { class: "row" });
  const actions = h("div", { class: "row" });
  const content =
    {
      overview: overviewTab,
      messages: messagesTab,
      consumers: consumersTab,
      bindings: bindingsTab,
    }[tab] ?? overviewTab;
  const inner = content({ vhost, name, query, reload });
  const to = (key) => link("queues", vhost, name, key);
  const el = h(
    "div",
    { class: "view" },
    head({
      title: name,
      crumb: [h("a", { href: "#/queues" }, "Queues"), ` in vhost ${vhost}`],
      sub,
      actions: [actions],
    }),
    tabs("Queue sections", tab, [
      ["overview", "Overview", link("queues", vhost, name)],
      ["messages", "Messages", to("messages")],
      ["consumers", "Consumers", to("consumers")],
      ["bindings", "Bindings", to("bindings")],
    ]),
    inner.el,
  );

  async function refresh(signal) {
    const queue = await get(apiPath`/queues/${vhost}/${name}`, { signal });
    const history = rateHistory(`queue ${vhost}\n${name}`);
    await history.begin(() => get(apiPath`/queues/${vhost}/${name}/history`, { signal }));
    countStats(history, queue.message_stats, RATES, {
      ready: queue.messages_ready,
      unacked: queue.messages_unacknowledged,
    });
    fill(
      sub,
      features(queue),
      queue.type === "stream" &&
        h("a", { href: link("streams", vhost, name) }, "Browse the stream"),
    );
    fill(actions, queueActions(queue, reload));
    if (queue.consumers > 0 || queue.messages_unacknowledged > 0) await loadConnectionNames(signal);
    await inner.refresh(queue, signal);
  }
  return { title: name, el, refresh, leave: inner.leave };
}

function overviewTab({ vhost, name }) {
  const why = h("div");
  const counts = h("div");
  const chart = new Chart("Messages per second", RATE_LINES, rate);
  const depth = new Chart("Messages in the queue", DEPTH_LINES, short);
  const about = h("div");
  const args = h("div");
  const policy = h("div");
  const el = h(
    "div",
    { class: "stack" },
    h(
      "section",
      { class: "sheet", "aria-label": "Explanation" },
      h("h2", null, "Delivery"),
      why,
    ),
    h("div", { class: "columns" }, sheet("Messages", counts, depth.el), sheet("Rates", chart.el)),
    h(
      "div",
      { class: "columns" },
      sheet("Details", about),
      sheet("Arguments", args),
      sheet("Policy", policy),
    ),
  );

  async function refresh(queue, signal) {
    fill(counts, drawCounts(queue));
    for (const each of [chart, depth]) each.update(rateHistory(`queue ${vhost}\n${name}`));
    fill(about, drawFacts(queue));
    fill(args, tableFacts(queue.arguments, "No arguments."));
    fill(policy, drawPolicy(queue));
    fill(why, explanation(await get(apiPath`/queues/${vhost}/${name}/explain`, { signal })));
  }
  return { el, refresh };
}

function drawCounts(queue) {
  const parts = [
    ["ready", "Ready", queue.messages_ready],
    ["unacked", "In flight", queue.messages_unacknowledged],
    ["scheduled", "Scheduled", queue.messages_scheduled],
    ["damaged", "Damaged", queue.messages_damaged],
  ];
  const total = parts.reduce((sum, [, , value]) => sum + (value ?? 0), 0);
  const bar = parts
    .filter(([, , value]) => value > 0)
    .map(([key, , value]) => h("span", { class: key, style: { flex: String(value / total) } }));
  return [
    h("div", { class: "states", "aria-hidden": "true" }, bar),
    figures(
      parts.map(([key, label, value]) => [
        [h("span", { class: `key ${key}`, "aria-hidden": "true" }), label],
        h("span", { title: count(value), "data-count": key }, short(value)),
      ]),
    ),
    (queue.damage ?? []).map((text) => h("p", { class: "note bad" }, text)),
  ];
}

function drawFacts(queue) {
  const oldest = queue.oldest_ready_age_ms ?? queue.head_message_age_ms;
  return facts([
    ["Type", queue.type],
    ["State", queue.paused ? "paused (no deliveries)" : queue.state],
    ["Durable", queue.durable ? "yes" : "no (deleted by a restart)"],
    [
      "Confirms are sent",
      { sync: "after writing to disk", os: "after writing to the system", none: "at once (memory only)" }[
        queue.durability
      ],
    ],
    ["Consumers", count(queue.consumers)],
    [
      "Consumers that can take a message now",
      queue.consumers > 0 ? percent(queue.consumer_utilisation) : null,
    ],
    ["Size of bodies", bytes(queue.message_bytes)],
    ["Oldest message", typeof oldest === "number" ? duration(oldest) : null],
    ["Node", queue.node],
  ]);
}

function drawPolicy(queue) {
  const names = [
    queue.policy && `policy ${queue.policy}`,
    queue.operator_policy && `operator policy ${queue.operator_policy}`,
  ].filter(Boolean);
  if (names.length === 0) return h("p", { class: "soft" }, "No policy applies.");
  return [
    h("p", null, `Applied: ${names.join(" and ")}.`),
    tableFacts(queue.effective_policy_definition),
  ];
}
