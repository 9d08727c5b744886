/**
 * The payload of a message: shown, copied and downloaded.
 *
 * Lists hold only the beginning of long payloads. The whole payload is requested when the user asks
 * for it, so that no button ever gives a part of it. A payload that is not UTF-8 is shown and copied
 * as base64, and downloaded as it is.
 */

import { getBytes } from "../api.js";
import { fill, h } from "../dom.js";
import { bytes, count, payload } from "../format.js";
import { button } from "../parts/elements.js";
import { attempt, notice } from "../parts/notice.js";

const SHOWN_BYTES_MAX = 4 * 1024 * 1024; // browsers become slow with longer texts

/**
 * @param {any} message with its payload, or the beginning of it
 * @param {string} path of the whole body
 */
export function payloadSection(message, path) {
  const pre = h("pre", { class: "payload", tabindex: "0" });
  const about = h("p", { class: "soft small-text" });
  const isWhole = heldBytes(message) === message.payload_bytes;

  async function whole() {
    if (isWhole) return message;
    return decode(await getBytes(path));
  }
  function show(shown) {
    fill(pre, payload(shown) || "(empty)");
    const size = `${count(message.payload_bytes)} bytes (${bytes(message.payload_bytes)})`;
    const isPart = shown === message && !isWhole;
    const held = isPart ? `The first ${count(heldBytes(message))} of ${size}` : size;
    const form = shown.payload_encoding === "base64" ? ", shown as base64" : "";
    const mayShow = isPart && message.payload_bytes <= SHOWN_BYTES_MAX;
    fill(about, `${held}${form}. `, mayShow && button("Show all", showAll, "small"));
  }
  const showAll = () => attempt(async () => show(await whole()));
  const copyAll = () =>
    attempt(async () => {
      const found = await whole();
      await copy(found.payload, pre);
      const form = found.payload_encoding === "base64" ? " as base64" : "";
      notice(`Copied ${count(message.payload_bytes)} bytes${form}.`);
    });
  const save = () => attempt(async () => download(isWhole ? octets(message) : await getBytes(path), message));
  show(message);
  return {
    el: h("section", { class: "stack" }, h("h3", null, "Payload"), pre, about),
    buttons: [button("Copy payload", copyAll), button("Download", save)],
  };
}

/** Return how many bytes of the payload a message of a list holds. */
function heldBytes(message) {
  return octets(message).length;
}

function octets({ payload: text, payload_encoding: encoding }) {
  if (encoding !== "base64") return new TextEncoder().encode(text);
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** Return bytes in the form of a message: as text, or as base64 if they are not UTF-8. */
function decode(found) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(found);
    return { payload: text, payload_encoding: "string" };
  } catch {
    let letters = "";
    for (const octet of found) letters += String.fromCharCode(octet);
    return { payload: btoa(letters), payload_encoding: "base64" };
  }
}

/** Copy a text. Browsers offer the clipboard only over HTTPS and on localhost. */
async function copy(text, near) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = h("textarea", { class: "hidden", "aria-hidden": "true", value: text });
  near.after(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  if (!isCopied) throw new Error("The browser refused to copy. Use “Download”.");
}

function download(found, message) {
  const url = URL.createObjectURL(new Blob([found], { type: "application/octet-stream" }));
  const id = String(message.properties?.message_id ?? message.id ?? message.offset);
  const type = message.properties?.content_type ?? "";
  const ending = /json/.test(type) ? "json" : /^text\//.test(type) ? "txt" : "bin";
  h("a", { href: url, download: `message-${id.replace(/[^\w.-]+/g, "_").slice(0, 80)}.${ending}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
