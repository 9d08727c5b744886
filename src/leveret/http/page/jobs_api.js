/**
 * Calls to the jobs service. It knows tokens, not logins: the page asks for one in the name of
 * whoever is signed in, keeps it in memory, and asks again when it is no longer valid.
 *
 * Ids exceed what a Number can hold. They are read as text, and written back as they were read.
 */

import { call } from "./api.js";
import { session } from "./session.js";

/** @type {Promise<{token: string}>|null} */
let asked = null;
session.addEventListener("signedout", () => {
  asked = null;
});

/**
 * @param {string} method
 * @param {string} path such as /stats
 * @param {{body?: any, signal?: AbortSignal}} [options]
 * @returns {Promise<any>}
 */
export async function jobsCall(method, path, options = {}) {
  const mayBeOld = asked !== null;
  try {
    return await send(method, path, options);
  } catch (fault) {
    if (fault.status !== 401 || !mayBeOld) throw fault;
    asked = null;
    return send(method, path, options);
  }
}

async function send(method, path, options) {
  asked ??= call("POST", "/jobs/token").catch((fault) => {
    asked = null;
    throw fault;
  });
  const { token } = await asked;
  return call(method, path.slice(1), { ...options, base: "", login: `Bearer ${token}`, decode });
}

/** JSON whose long numbers are texts. */
export function decode(text) {
  return JSON.parse(text.replace(/"(?:[^"\\]|\\.)*"|-?\d{16,}/g, quoteNumber));
}

function quoteNumber(found) {
  return found.startsWith('"') ? found : `"${found}"`;
}
