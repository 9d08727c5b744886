/** The sections of the navigation, and the documents about them. */

/** Groups with their entries: section, label, address, its count in `object_totals`, needed tag. */
export const SECTIONS = [
  [
    "",
    [
      ["overview", "Overview", "#/"],
      ["node", "Node", "#/node", null, "monitoring"],
    ],
  ],
  [
    "Messages",
    [
      ["queues", "Queues", "#/queues", "queues"],
      ["streams", "Streams", "#/streams"],
      ["jobs", "Jobs", "#/jobs"],
      ["exchanges", "Exchanges", "#/exchanges", "exchanges"],
      ["trace", "Trace a message", "#/trace"],
      ["tasks", "Tasks and shovels", "#/tasks"],
    ],
  ],
  [
    "Clients",
    [
      ["connections", "Connections", "#/connections", "connections"],
      ["channels", "Channels", "#/channels", "channels"],
    ],
  ],
  [
    "Administration",
    [
      ["cluster", "Cluster", "#/cluster", null, "monitoring"],
      ["users", "Users", "#/users", null, "administrator"],
      ["vhosts", "Virtual hosts", "#/vhosts", null, "administrator"],
      ["policies", "Policies", "#/policies"],
      ["limits", "Limits", "#/limits", null, "administrator"],
      ["definitions", "Definitions", "#/definitions", null, "administrator"],
      ["audit", "Audit log", "#/audit", null, "administrator"],
    ],
  ],
];

/** Documents about the sections of the navigation. */
export const ABOUT = {
  overview: "page.md",
  node: "operating.md",
  queues: "insight.md",
  streams: "streams.md",
  jobs: "jobs.md",
  exchanges: "page.md",
  trace: "insight.md",
  tasks: "insight.md",
  connections: "page.md",
  channels: "page.md",
  cluster: "cluster.md",
  users: "security.md",
  vhosts: "security.md",
  policies: "policies.md",
  limits: "policies.md",
  definitions: "policies.md",
  audit: "security.md",
};
