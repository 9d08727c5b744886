/** Payloads of jobs, which the jobs API carries as base64. */

/** Return a text as base64. */
export function base64(text) {
  let octets = "";
  for (const octet of new TextEncoder().encode(text)) octets += String.fromCharCode(octet);
  return btoa(octets);
}

/** Return a payload as text; binary data stays base64. */
export function payloadText(payload) {
  const octets = Uint8Array.from(atob(payload ?? ""), (c) => c.charCodeAt(0));
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(octets);
  } catch {
    return payload;
  }
}
