/** Export and import definitions: everything except messages, as one file. */

import { apiPath, get, post } from "../api.js";
import { fill, h } from "../dom.js";
import { pluralize } from "../format.js";
import { confirm } from "../parts/dialog.js";
import { Form } from "../parts/form.js";
import { head, sheet } from "../parts/elements.js";
import { attempt } from "../parts/notice.js";
import { vhostOptions } from "./queues.js";

const PARTS = [
  ["users", "user"],
  ["vhosts", "virtual host"],
  ["permissions", "permission"],
  ["policies", "policy", "policies"],
  ["queues", "queue"],
  ["exchanges", "exchange"],
  ["bindings", "binding"],
  ["parameters", "parameter"],
];

export function view() {
  const options = [
    ["", "all vhosts"],
    ...vhostOptions().map((name) => [name, `vhost ${name}`]),
  ];
  const out = new Form([{ name: "vhost", label: "Export from", type: "select", options }]);
  const into = new Form([
    { name: "file", label: "File", type: "file" },
    { name: "vhost", label: "Import into", type: "select", options },
  ]);
  const outForm = h(
    "form",
    { class: "stack", novalidate: true },
    out.el,
    h("div", { class: "row" }, h("button", { class: "main", type: "submit" }, "Export")),
  );
  outForm.onsubmit = (event) => {
    event.preventDefault();
    attempt(() => download(out.values().vhost));
  };
  const fault = h("div", { role: "alert" });
  const inForm = h(
    "form",
    { class: "stack", novalidate: true },
    into.el,
    fault,
    h("div", { class: "row" }, h("button", { class: "main", type: "submit" }, "Import")),
  );
  inForm.onsubmit = async (event) => {
    event.preventDefault();
    fill(fault);
    try {
      await upload(into.values());
    } catch (found) {
      fill(fault, h("p", { class: "note bad" }, found.message));
    }
  };
  const el = h(
    "div",
    { class: "view" },
    head({
      title: "Definitions",
      sub: "Users, permissions, queues, exchanges, bindings and policies, but no messages",
    }),
    h(
      "div",
      { class: "columns" },
      sheet(
        "Export",
        h("p", { class: "soft" }, "A JSON file that RabbitMQ can import too."),
        outForm,
      ),
      sheet(
        "Import",
        h(
          "p",
          { class: "soft" },
          "Adds missing objects and updates existing ones. Deletes nothing. Also imports files from RabbitMQ.",
        ),
        inForm,
      ),
    ),
  );
  return { title: "Definitions", el };
}

async function download(vhost) {
  const found = await get(vhost ? apiPath`/definitions/${vhost}` : "/definitions");
  const url = URL.createObjectURL(
    new Blob([JSON.stringify(found, null, 2)], { type: "application/json" }),
  );
  const name = vhost ? `leveret-${vhost.replace(/[^\w.-]+/g, "_")}.json` : "leveret.json";
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

async function upload({ file, vhost }) {
  if (!file) throw new Error("Choose a file first.");
  let found;
  try {
    found = JSON.parse(await file.text());
  } catch {
    throw new Error("The file is not valid JSON.");
  }
  const what = PARTS.filter(([key]) => found[key]?.length > 0).map(([key, noun, plural]) =>
    pluralize(found[key].length, noun, plural),
  );
  if (what.length === 0) throw new Error("The file contains no definitions.");
  const isSure = await confirm({
    title: "Import these definitions?",
    text: `The file contains ${what.join(", ")}.`,
    verb: "Import",
    danger: false,
  });
  if (isSure)
    await attempt(
      () => post(vhost ? apiPath`/definitions/${vhost}` : "/definitions", found),
      "The definitions are imported.",
    );
}
