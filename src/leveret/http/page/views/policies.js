/** Policies and operator policies. */

import { at, del, get, put } from "../api.js";
import { fill, h } from "../dom.js";
import { plain } from "../format.js";
import { confirm, formDialog } from "../parts/dialog.js";
import { button, head, list, sheet } from "../parts/list.js";
import { attempt, notice } from "../parts/notice.js";
import { may, vhost, vhostForNew } from "../session.js";
import { vhostOptions } from "./queues.js";

const KEYS = [
  "message-ttl",
  "expires",
  "max-length",
  "max-length-bytes",
  "overflow",
  "dead-letter-exchange",
  "dead-letter-routing-key",
  "delivery-limit",
  "max-age",
  "alternate-exchange",
  "remember",
  "deduplication",
];
const APPLY = ["all", "queues", "classic_queues", "quorum_queues", "streams", "exchanges"];

export function view({ again }) {
  const own = h("div");
  const operator = h("div");
  const add = (kind) => may("policymaker") && button("Add", () => edit(kind, null, again));
  const el = h(
    "div",
    { class: "view" },
    head({ title: "Policies", sub: "Settings for all queues and exchanges whose names match" }),
    sheet(null, h("div", { class: "title" }, h("h2", null, "Policies"), add("policies")), own),
    sheet(
      null,
      h(
        "div",
        { class: "title" },
        h("h2", null, "Operator policies"),
        may("administrator") && add("operator-policies"),
      ),
      h("p", { class: "soft" }, "They bound what policies and arguments may ask for."),
      operator,
    ),
  );

  async function refresh(signal) {
    const load = (kind) => get(vhost() ? `/${kind}${at`/${vhost()}`}` : `/${kind}`, { signal });
    const [policies, operators] = await Promise.all([load("policies"), load("operator-policies")]);
    fill(own, draw("policies", policies, again));
    fill(operator, draw("operator-policies", operators, again));
  }
  return { title: "Policies", el, refresh };
}

function draw(kind, policies, again) {
  const remove = async (p) => {
    const isSure = await confirm({
      title: `Delete the policy “${p.name}”?`,
      text: "What it governs goes back to other policies or its own arguments at once.",
      verb: "Delete",
    });
    if (isSure)
      await attempt(() => del(`/${kind}${at`/${p.vhost}/${p.name}`}`), "The policy is deleted.");
    again();
  };
  return list(
    [
      { label: "Name", cell: (p) => h("strong", null, p.name) },
      { label: "Vhost", cell: (p) => p.vhost },
      { label: "Pattern", cell: (p) => h("span", { class: "mono" }, p.pattern) },
      { label: "Applies to", cell: (p) => p["apply-to"] },
      { label: "Priority", number: true, cell: (p) => p.priority },
      {
        label: "Definition",
        cell: (p) =>
          Object.entries(p.definition).map(([k, v]) =>
            h("div", { class: "mono" }, `${k}: ${plain(v)}`),
          ),
      },
      {
        label: "",
        cell: (p) =>
          may("policymaker") &&
          h(
            "div",
            { class: "row end" },
            button("Change", () => edit(kind, p, again), "small"),
            button("Delete", () => remove(p), "small danger"),
          ),
      },
    ],
    policies,
    "There are none.",
  );
}

function edit(kind, policy, again) {
  const isOperator = kind === "operator-policies";
  return formDialog({
    title: policy
      ? `Change “${policy.name}”`
      : isOperator
        ? "Add an operator policy"
        : "Add a policy",
    verb: policy ? "Change" : "Add",
    fields: [
      ...(policy
        ? []
        : [
            { name: "name", label: "Name", required: true },
            {
              name: "vhost",
              label: "Virtual host",
              type: "select",
              options: vhostOptions(),
              value: vhostForNew(),
            },
          ]),
      {
        name: "pattern",
        label: "Pattern of names",
        required: true,
        value: policy?.pattern ?? "",
        hint: "A regular expression: ^orders\\.",
      },
      {
        name: "applyTo",
        label: "Applies to",
        type: "select",
        options: isOperator ? APPLY.filter((a) => a !== "exchanges" && a !== "all") : APPLY,
        value: policy?.["apply-to"] ?? "queues",
      },
      { name: "priority", label: "Priority", type: "number", value: policy?.priority ?? 0 },
      {
        name: "definition",
        label: "Definition",
        type: "lines",
        required: true,
        names: KEYS,
        value: policy?.definition,
        hint: "One on each line: name: value.",
      },
    ],
    submit: async (values) => {
      const place = policy ?? values;
      const body = {
        pattern: values.pattern,
        "apply-to": values.applyTo,
        priority: values.priority ?? 0,
        definition: values.definition,
      };
      await put(`/${kind}${at`/${place.vhost}/${place.name}`}`, body);
      notice(`The policy “${place.name}” is ${policy ? "changed" : "added"}.`);
      again();
    },
  });
}
