/** Actions for a whole queue: publish, pause, purge, delete, bind. */

import { apiPath, del, post, put, queryString } from "../api.js";
import { confirm, formDialog } from "../parts/dialog.js";
import { button } from "../parts/elements.js";
import { attempt, notice } from "../parts/notice.js";
import { pluralize } from "../format.js";
import { goTo } from "../router.js";
import { publishFields, publishTo } from "./publish_form.js";

/** Make the buttons of a queue. */
export function queueActions(queue, reload) {
  const { vhost, name } = queue;
  const isStream = queue.type === "stream";
  return [
    button("Publish", () => publish(queue, reload)),
    !isStream && button(queue.paused ? "Resume" : "Pause", () => setPaused(queue, reload)),
    !isStream && button("Purge", () => purge(queue, reload), "danger"),
    button("Delete", () => remove(vhost, name, queue.messages), "danger"),
  ];
}

async function publish(queue, reload) {
  await formDialog({
    title: `Publish to “${queue.name}”`,
    verb: "Publish",
    wide: true,
    fields: publishFields(null),
    submit: async (values) =>
      notice(await publishTo(queue.vhost, "", { ...values, routingKey: queue.name })),
  });
  reload();
}

async function setPaused(queue, reload) {
  const path = apiPath`/queues/${queue.vhost}/${queue.name}/pause`;
  await attempt(
    () => (queue.paused ? del(path) : put(path)),
    queue.paused ? "The queue is resumed." : "The queue is paused. It accepts messages but delivers none.",
  );
  reload();
}

async function purge(queue, reload) {
  const isSure = await confirm({
    title: `Purge “${queue.name}”?`,
    text: `${pluralize(queue.messages_ready, "ready message")} will be deleted. Messages in flight are not affected. This cannot be undone.`,
    verb: "Purge",
  });
  if (isSure)
    await attempt(
      () => del(apiPath`/queues/${queue.vhost}/${queue.name}/contents`),
      "The queue is purged.",
    );
  reload();
}

async function remove(vhost, name, messages) {
  let isDone = false;
  await formDialog({
    title: `Delete “${name}”?`,
    about: `Its ${pluralize(messages, "message")} will be deleted too.`,
    verb: "Delete the queue",
    danger: true,
    fields: [
      { name: "unused", label: "Only if it has no consumers", type: "check" },
      { name: "isEmpty", label: "Only if it is empty", type: "check" },
    ],
    submit: async ({ unused, isEmpty }) => {
      await del(
        apiPath`/queues/${vhost}/${name}` +
          queryString({ "if-unused": unused || null, "if-empty": isEmpty || null }),
      );
      isDone = true;
    },
  });
  if (isDone) {
    notice(`The queue “${name}” is deleted.`);
    goTo("#/queues");
  }
}

/** Show a form to bind a queue or an exchange to an exchange. */
export function bind({ vhost, source, destination, kind }, reload) {
  const isFrom = source !== undefined;
  return formDialog({
    title: isFrom ? `Bind from “${source || "(default exchange)"}”` : `Bind to “${destination}”`,
    verb: "Bind",
    fields: [
      isFrom
        ? { name: "other", label: "Destination", required: true }
        : { name: "other", label: "Source exchange", required: true },
      ...(isFrom
        ? [
            {
              name: "kind",
              label: "Destination type",
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
        hint: "For headers exchanges. One name: value per line.",
      },
    ],
    submit: async (values) => {
      const to = isFrom
        ? { letter: values.kind, name: values.other }
        : { letter: kind, name: destination };
      const from = isFrom ? source : values.other;
      await post(apiPath`/bindings/${vhost}/e/${from}/${to.letter}/${to.name}`, {
        routing_key: values.key,
        arguments: values.arguments,
      });
      notice("The binding is added.");
      reload();
    },
  });
}
