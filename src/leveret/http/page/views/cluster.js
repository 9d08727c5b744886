/**
 * The cluster: who leads, who follows, how far behind, and what to do about each fault.
 *
 * A node that follows knows which nodes it reaches, but only the leader knows how far the others
 * are behind. So the view asks the leader too, and shows the faults that either of them sees.
 */

import { ApiError, get, post } from "../api.js";
import { fill, h } from "../dom.js";
import { bytes, duration, pluralize } from "../format.js";
import { confirm } from "../parts/dialog.js";
import { badge, button, figures, head, list, sheet } from "../parts/elements.js";
import { attempt } from "../parts/notice.js";
import { may } from "../session.js";

const SEVERITIES = ["stopped", "degraded", "note"];

export function view({ reload }) {
  const sub = h("span");
  const body = h("div", { class: "view" });
  const el = h("div", { class: "view" }, head({ title: "Cluster", sub }), body);

  async function refresh(signal) {
    const found = await load(signal);
    fill(sub, found.cluster ? `asked at node ${found.asked}` : "");
    fill(body, draw(found, reload));
  }
  return { title: "Cluster", el, refresh };
}

/** Return the facts to show: those of the leader if it answers, with the faults of both nodes. */
async function load(signal) {
  const asked = await get("/cluster", { signal });
  const leader = asked.raft?.leader;
  const hasOther = leader && leader !== asked.name;
  const seen = (hasOther && (await viewOfLeader(signal))) || asked;
  const faults = new Map();
  for (const fault of [...(seen.faults ?? []), ...(asked.faults ?? [])]) {
    const key = JSON.stringify([fault.node, fault.advice]); // figures in `fault` may differ
    if (!faults.has(key)) faults.set(key, fault);
  }
  const rank = (fault) => SEVERITIES.indexOf(fault.severity);
  const sorted = [...faults.values()].sort((a, b) => rank(a) - rank(b));
  return { ...seen, asked: asked.name, faults: sorted };
}

/** Return the facts that the leader has; null if it does not answer. */
async function viewOfLeader(signal) {
  try {
    return await get("/cluster/leader", { signal });
  } catch (fault) {
    if (fault instanceof ApiError) return null;
    throw fault;
  }
}

function draw(found, reload) {
  if (!found.cluster && !found.waiting_for) {
    return sheet(
      null,
      h("p", null, `Node ${found.name} is alone: it belongs to no cluster.`),
      h(
        "p",
        { class: "soft" },
        "Start it with --cluster-listen, --cluster-peers and a secret to make it a cluster. ",
        "Then other nodes can join.",
      ),
    );
  }
  return [
    drawFaults(found.faults),
    found.raft && sheet(null, drawFigures(found)),
    sheet("Nodes", drawMembers(found, reload)),
  ];
}

function drawFaults(faults) {
  return faults.map(({ severity, fault, advice }) =>
    h(
      "p",
      { class: `note ${severity === "stopped" ? "bad" : severity === "degraded" ? "warn" : ""}` },
      h("strong", null, `${sentence(fault)}.`),
      ` ${sentence(advice)}.`,
    ),
  );
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function drawFigures(found) {
  const spare = found.voters_spare;
  return figures([
    ["Leader", found.raft.leader || "none"],
    [found.raft.leader ? "Leads for" : "Without leader for", duration(found.raft.leader_s * 1000)],
    ["Voters reached", `${found.voters_reached} of ${found.voters}`],
    ["Voters needed", String(found.voters_needed)],
    ["Nodes that may still fail", spare < 0 ? "no majority" : pluralize(spare, "node")],
  ]);
}

function drawMembers(found, reload) {
  const canChange = may("administrator") && Boolean(found.raft?.leader);
  return list(
    [
      { label: "Node", cell: (m) => m.name },
      { label: "Role", cell: (m) => role(m) },
      { label: "Address", cell: (m) => h("span", { class: "mono" }, m.address) },
      { label: "Reached", cell: (m) => reached(m) },
      { label: "Behind", cell: (m) => behind(m) },
      {
        label: "",
        cell: (m) => canChange && h("div", { class: "row end" }, actions(m, reload)),
      },
    ],
    found.members,
    "No members yet.",
  );
}

function role(member) {
  const kind = member.role === "leader" ? "good" : "";
  return [badge(member.role, kind), " ", member.is_drained && badge("drained", "warn")];
}

function reached(member) {
  if (member.unreached_s === null) return badge("yes", "good");
  return [badge("no", "bad"), ` for ${duration(member.unreached_s * 1000)}`];
}

function behind(member) {
  if (member.role === "leader") return "–";
  // Only the leader knows, and a new leader has to hear from the node first.
  if (member.lag_blocks === null || member.match === 0) return h("span", { class: "soft" }, "unknown");
  if (member.progress === "copy") return "copies the directory";
  if (member.lag_blocks === 0) return "nothing";
  const blocks = pluralize(member.lag_blocks, "block");
  return member.lag_bytes === null ? blocks : `${blocks}, ${bytes(member.lag_bytes)}`;
}

function actions(member, reload) {
  const canLead = member.role === "follower" && member.unreached_s === null && !member.is_drained;
  return [
    canLead && button("Let it lead", () => lead(member.name, reload), "small"),
    button("Remove", () => remove(member.name, reload), "small danger"),
  ];
}

async function lead(name, reload) {
  const isSure = await confirm({
    title: `Let node ${name} lead?`,
    text: "Clients of the broker have to reconnect. Nothing confirmed is lost.",
    verb: "Let it lead",
    danger: false,
  });
  if (isSure) await change("/cluster/lead", name, `Node ${name} takes the lead.`, reload);
}

async function remove(name, reload) {
  const isSure = await confirm({
    title: `Remove node ${name}?`,
    text: [
      `The cluster forgets node ${name} and no longer counts on its copy. `,
      "It can join again only with an empty data directory.",
    ],
    verb: "Remove the node",
  });
  if (isSure) await change("/cluster/remove", name, `Node ${name} is removed.`, reload);
}

async function change(path, name, done, reload) {
  await attempt(() => post(path, { node: name }), done);
  reload();
}
