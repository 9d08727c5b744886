/** What can be done with a whole queue. */

import { at, del, post, put, query } from "../api.js";
import { confirm, formDialog } from "../parts/dialog.js";
import { button } from "../parts/list.js";
import { attempt, notice } from "../parts/notice.js";
import { many } from "../format.js";
import { go } from "../router.js";
import { publishFields, publishTo } from "./publish.js";

/** Buttons for a queue. */
export function queueActions(queue, again) {
  const { vhost, name } = queue;
  const isStream = queue.type === "stream";
  return [
    button("Publish", () => publish(queue, again)),
    !isStream && button(queue.paused ? "Resume" : "Pause", () => setPaused(queue, again)),
    !isStream && button("Purge", () => purge(queue, again), "danger"),
    button("Delete", () => remove(vhost, name, queue.messages), "danger"),
  ];
}

async function publish(queue, again) {
  await formDialog({
    title: `Publish to “${queue.name}”`,
    verb: "Publish",
    wide: true,
    fields: publishFields(null),
    submit: async (values) =>
      notice(await publishTo(queue.vhost, "", { ...values, routingKey: queue.name })),
  });
  again();
}

async function setPaused(queue, again) {
  const path = at`/queues/${queue.vhost}/${queue.name}/pause`;
  await attempt(
    () => (queue.paused ? del(path) : put(path)),
    queue.paused ? "It delivers again." : "Paused: it takes messages, and delivers none.",
  );
  again();
}

async function purge(queue, again) {
  const isSure = await confirm({
    title: `Purge “${queue.name}”?`,
    text: `${many(queue.messages_ready ?? 0, "ready message")} will be gone for good. Those in flight stay with their consumers.`,
    verb: "Purge",
  });
  if (isSure)
    await attempt(
      () => del(at`/queues/${queue.vhost}/${queue.name}/contents`),
      "The queue is purged.",
    );
  again();
}

async function remove(vhost, name, messages) {
  let isDone = false;
  await formDialog({
    title: `Delete “${name}”?`,
    about: `It has ${many(messages ?? 0, "message")}; they go with it.`,
    verb: "Delete the queue",
    danger: true,
    fields: [
      { name: "unused", label: "Only if it has no consumer", type: "check" },
      { name: "isEmpty", label: "Only if it is empty", type: "check" },
    ],
    submit: async ({ unused, isEmpty }) => {
      await del(
        at`/queues/${vhost}/${name}` +
          query({ "if-unused": unused || null, "if-empty": isEmpty || null }),
      );
      isDone = true;
    },
  });
  if (isDone) {
    notice(`The queue “${name}” is deleted.`);
    go("#/queues");
  }
}

/** Binds an exchange to a queue or another exchange. */
export function bind({ vhost, source, destination, kind }, again) {
  const isFrom = source !== undefined;
  return formDialog({
    title: isFrom ? `Bind from “${source || "(default exchange)"}”` : `Bind to “${destination}”`,
    verb: "Bind",
    fields: [
      isFrom
        ? { name: "other", label: "To", required: true }
        : { name: "other", label: "From exchange", required: true },
      ...(isFrom
        ? [
            {
              name: "kind",
              label: "Which is a",
              type: "select",
              options: [
                ["q", "queue"],
                ["e", "exchange"],
              ],
            },
          ]
        : []),
      { name: "key", label: "Routing key" },
      {
        name: "arguments",
        label: "Arguments",
        type: "lines",
        names: ["x-match"],
        hint: "For headers exchanges: name: value.",
      },
    ],
    submit: async (values) => {
      const to = isFrom
        ? { letter: values.kind, name: values.other }
        : { letter: kind, name: destination };
      const from = isFrom ? source : values.other;
      await post(at`/bindings/${vhost}/e/${from}/${to.letter}/${to.name}`, {
        routing_key: values.key,
        arguments: values.arguments,
      });
      notice("Bound.");
      again();
    },
  });
}
