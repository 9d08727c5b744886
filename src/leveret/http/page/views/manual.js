/**
 * The documents of Leveret, as the broker has them. They need no login.
 *
 * The address is the path of a document in the repository: `#/manual/docs/jobs.md?part=retries`.
 * `part` is the id of a heading. Links between documents are relative, as in the repository.
 */

import { ApiError, call } from "../api.js";
import { fill, h } from "../dom.js";
import { markdown } from "../parts/markdown.js";
import { currentQuery, link } from "../router.js";

const INDEX = "docs/index.md";
const ORIGIN = "http://manual.invalid/"; // relative links are resolved against it

/** Return the address of a document in the page. */
export function manualLink(path, part = "") {
  return link("manual", ...path.split("/")) + (part ? `?${new URLSearchParams({ part })}` : "");
}

export function view({ params }) {
  const path = [params.first, params.second, params.third].filter(Boolean).join("/");
  const text = h("article", { class: "prose" });
  const crumb = path !== INDEX && h("a", { href: manualLink(INDEX) }, "All documents");
  const el = h("div", { class: "view" }, h("div", { class: "crumb" }, crumb), text);
  let isShown = false;

  async function refresh(signal) {
    if (isShown) return;
    const names = await load("", signal);
    // An address may hold any text, also one that leads to other paths of the broker.
    if (!names.includes(path)) throw new ApiError("There is no such document.", 404);
    const content = await load(`/${path}`, signal);
    fill(text, markdown(content, (href) => addressOf(href, path, names)));
    isShown = true;
    const part = currentQuery().get("part");
    if (part) setTimeout(() => document.getElementById(part)?.scrollIntoView());
  }
  return { title: "Documents", el, refresh };
}

/** Load a part of the manual. Its answer is JSON for the list, and text for a document. */
function load(path, signal) {
  const decode = path ? (text) => text : undefined;
  return call("GET", path, { base: "manual", decode, signal });
}

/** Return the address of a link in a document, or null if the broker does not have its target. */
function addressOf(href, path, names) {
  if (/^https?:/.test(href)) return href;
  const target = new URL(href, ORIGIN + path);
  const name = decodeURIComponent(target.pathname.slice(1));
  return names.includes(name) ? manualLink(name, decodeURIComponent(target.hash.slice(1))) : null;
}
