/** Policies and operator policies. */

import { apiPath, del, get, put } from "../api.js";
import { fill, h } from "../dom.js";
import { plain } from "../format.js";
import { confirm, formDialog } from "../parts/dialog.js";
import { button, head, list, sheet } from "../parts/elements.js";
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

export function view({ reload }) {
  const own = h("div");
  const operator = h("div");
  const add = (kind) => may("policymaker") && button("Add", () => edit(kind, null, reload));
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
      h("p", { class: "soft" }, "They limit what policies and arguments can set."),
      operator,
    ),
  );

  async function refresh(signal) {
    const load = (kind) => get(vhost() ? `/${kind}${apiPath`/${vhost()}`}` : `/${kind}`, { signal });
    const [policies, operators] = await Promise.all([load("policies"), load("operator-policies")]);
    fill(own, draw("policies", policies, reload));
    fill(operator, draw("operator-policies", operators, reload));
  }
  return { title: "Policies", el, refresh };
}

function draw(kind, policies, reload) {
  const remove = async (p) => {
    const isSure = await confirm({
      title: `Delete the policy “${p.name}”?`,
      text: "Queues and exchanges that it applies to use other policies or their own arguments at once.",
      verb: "Delete",
    });
    if (isSure)
      await attempt(() => del(`/${kind}${apiPath`/${p.vhost}/${p.name}`}`), "The policy is deleted.");
    reload();
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
            button("Change", () => edit(kind, p, reload), "small"),
            button("Delete", () => remove(p), "small danger"),
          ),
      },
    ],
    policies,
    kind === "operator-policies" ? "No operator policies." : "No policies.",
  );
}

function edit(kind, policy, reload) {
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
        label: "Name pattern",
        required: true,
        value: policy?.pattern ?? "",
        hint: "A regular expression, such as ^orders\\.",
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
        hint: "One name: value per line.",
      },
    ],
    submit: async (values) => {
      const target = policy ?? values;
      const body = {
        pattern: values.pattern,
        "apply-to": values.applyTo,
        priority: values.priority ?? 0,
        definition: values.definition,
      };
      await put(`/${kind}${apiPath`/${target.vhost}/${target.name}`}`, body);
      notice(`The policy “${target.name}” is ${policy ? "changed" : "added"}.`);
      reload();
    },
  });
}
