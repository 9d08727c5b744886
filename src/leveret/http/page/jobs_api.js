/**
 * Calls to the jobs service. The service needs a token instead of a login. The page requests a token
 * for the signed-in user, keeps it in memory, and requests a new one when it has expired.
 *
 * Job ids are larger than a Number can hold. They are kept as text.
 */

import { call } from "./api.js";
import { session } from "./session.js";

/** @type {Promise<{token: string}>|null} */
let requested = null;
session.addEventListener("signedout", () => {
  requested = null;
});

/**
 * @param {string} method
 * @param {string} path such as /stats
 * @param {{body?: any, signal?: AbortSignal}} [options]
 * @returns {Promise<any>}
 */
export async function jobsCall(method, path, options = {}) {
  const mayHaveExpired = requested !== null;
  try {
    return await send(method, path, options);
  } catch (fault) {
    if (fault.status !== 401 || !mayHaveExpired) throw fault;
    requested = null;
    return send(method, path, options);
  }
}

async function send(method, path, options) {
  requested ??= call("POST", "/jobs/token").catch((fault) => {
    requested = null;
    throw fault;
  });
  const { token } = await requested;
  return call(method, path.slice(1), { ...options, base: "", login: `Bearer ${token}`, decode });
}

/** Decode JSON, with long numbers as text. */
export function decode(text) {
  return JSON.parse(text.replace(/"(?:[^"\\]|\\.)*"|-?\d{16,}/g, quoteNumber));
}

function quoteNumber(found) {
  return found.startsWith('"') ? found : `"${found}"`;
}
