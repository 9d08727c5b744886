/**
 * The names that clients have given their connections. The broker calls a connection by its
 * addresses and ports; people know it by the name that its client has set.
 */

import { get, unlessRefused } from "./api.js";

const KEPT_MS = 10000;

/** @type {Map<string, string>} from the broker's name to the client's */
let names = new Map();
let loadedAt = -Infinity;

/** Load the names, unless they were loaded just now. */
export async function loadConnectionNames(signal) {
  if (performance.now() - loadedAt < KEPT_MS) return;
  const columns = "columns=name,user_provided_name";
  const found = (await unlessRefused(get(`/connections?${columns}`, { signal }))) ?? [];
  names = new Map(
    found.filter((c) => c.user_provided_name).map((c) => [c.name, c.user_provided_name]),
  );
  loadedAt = performance.now();
}

/** Return the client's name of a connection, or the broker's if the client has set none. */
export function connectionName(name) {
  return names.get(name) ?? name;
}

/** Return the name of a channel: that of its connection, and its number. */
export function channelName(name) {
  const [, connection, number] = /^(.*) \((\d+)\)$/.exec(name) ?? [];
  return connection === undefined ? name : `${connectionName(connection)} (${number})`;
}
