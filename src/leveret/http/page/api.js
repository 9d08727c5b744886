/**
 * Calls to the HTTP API, and their errors as sentences for the user.
 *
 * `connection` tells whether the broker answers at all; while it does not, the page shows a banner.
 * The login is sent as a header, without browser credentials, so that no browser asks for a login.
 */

import { plainReason } from "./reasons.js";
import { authorization, signOut } from "./session.js";

const ANSWER_MS_MAX = 60000;

/** A call that the broker refused or did not answer. */
export class ApiError extends Error {
  /** @param {string} sentence @param {number} status 0 if there was no answer */
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }
}

/** Dispatches "lost" and "found". */
export const connection = Object.assign(new EventTarget(), { isLost: false });

/**
 * Return a path with its parts encoded: apiPath`/queues/${vhost}/${name}`.
 * @param {TemplateStringsArray} texts
 * @param {...any} parts
 */
export function apiPath(texts, ...parts) {
  return texts.reduce((path, text, i) => path + encodeURIComponent(parts[i - 1]) + text);
}

/** Return a query string without the values that are null or empty. */
export function queryString(values) {
  const given = Object.entries(values).filter(([, v]) => v !== null && v !== undefined && v !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

/**
 * @param {string} method
 * @param {string} path below /api, or below `base`
 * @param {{body?: any, signal?: AbortSignal, headers?: Object<string, string>, login?: string,
 *   base?: string, decode?: (text: string) => any, isBytes?: boolean}} [options]
 * @returns {Promise<any>} the decoded answer; null if it has no body
 */
export async function call(method, path, options = {}) {
  const headers = { ...options.headers };
  const login = options.login ?? authorization();
  if (login) headers.Authorization = login;
  const deadline = AbortSignal.timeout(ANSWER_MS_MAX);
  const signal = options.signal ? AbortSignal.any([options.signal, deadline]) : deadline;
  const init = { method, headers, credentials: "omit", cache: "no-store", signal };
  if (options.body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = typeof options.body === "string" ? options.body : JSON.stringify(options.body);
  }
  let response;
  let text = "";
  let octets = null;
  try {
    response = await fetch(`${options.base ?? "api"}${path}`, init);
    if (options.isBytes && response.ok) octets = new Uint8Array(await response.arrayBuffer());
    else text = await response.text();
  } catch (fault) {
    if (options.signal?.aborted) throw fault;
    setLost(true);
    throw new ApiError("The broker does not answer.", 0);
  }
  setLost(false);
  if (!response.ok) throw makeError(response.status, text, options.login !== undefined);
  if (octets) return octets;
  return text ? (options.decode ?? decode)(text) : null;
}

export const get = (path, options) => call("GET", path, options);
/** Return the answer as bytes. */
export const getBytes = (path) => call("GET", path, { isBytes: true });
export const put = (path, body, options) => call("PUT", path, { ...options, body });
export const post = (path, body, options) => call("POST", path, { ...options, body });
export const del = (path, options) => call("DELETE", path, options);

/** Return the result of a call, or null if the user may not see it or it does not exist. */
export async function unlessRefused(promise) {
  try {
    return await promise;
  } catch (fault) {
    if ([401, 403, 404].includes(fault.status)) return null;
    throw fault;
  }
}

function decode(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function setLost(isLost) {
  if (connection.isLost === isLost) return;
  connection.isLost = isLost;
  connection.dispatchEvent(new Event(isLost ? "lost" : "found"));
}

function makeError(status, text, isLogin) {
  const body = decode(text);
  const said = body?.reason ?? body?.detail; // of the management API; of a problem document
  const reason = plainReason(typeof said === "string" ? said : String(text).slice(0, 300));
  if (status === 401 && /login failed/i.test(reason)) {
    if (!isLogin) signOut("Your login is no longer valid.");
    return new ApiError("Wrong name or password.", 401);
  }
  return new ApiError(describeError(status, reason), status);
}

function describeError(status, reason) {
  const said = reason && reason !== "Not Found" ? ` (${reason.replace(/\.$/, "")})` : "";
  if (status === 401 || status === 403) return `You do not have permission${said}.`;
  if (status === 404) return `Not found${said}.`;
  if (status === 405 || status === 501) return `This broker does not support that${said}.`;
  if (status === 429) return `Too many requests. Try again later${said}.`;
  if (status >= 500) return `The broker failed${said}.`;
  return `The broker refused the request${said || ` with status ${status}`}.`;
}
