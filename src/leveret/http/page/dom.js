/**
 * Build and update elements.
 *
 * `h` makes an element. Strings become text, never HTML, so that a message or a name cannot inject
 * markup. `fill` replaces the children of an element but keeps old nodes that match (by position, or
 * by `data-key`), so that focus, selection and scroll positions survive a refresh.
 */

const SVG_NAMES = "http://www.w3.org/2000/svg";
/** @type {WeakMap<Element, Object<string, Function>>} */
const handlers = new WeakMap();

/**
 * Make an HTML element. Properties such as `onclick` are functions, `style` is an object, and all
 * others are attributes. An attribute that is null or false is left out.
 * @param {string} tag
 * @param {Object<string, any>|null} [props]
 * @param {...any} children
 * @returns {HTMLElement}
 */
export function h(tag, props, ...children) {
  return /** @type {HTMLElement} */ (build(document.createElement(tag), props, children));
}

/**
 * Make an SVG element.
 * @returns {SVGElement}
 */
export function svg(tag, props, ...children) {
  return /** @type {SVGElement} */ (
    build(document.createElementNS(SVG_NAMES, tag), props, children)
  );
}

function build(element, props, children) {
  const { value, ...rest } = props ?? {};
  for (const [name, given] of Object.entries(rest)) assign(element, name, given);
  element.append(...flat(children));
  if (value !== undefined && value !== null) {
    if (element.tagName === "PROGRESS" || element.tagName === "OPTION") {
      element.setAttribute("value", value);
    } else element.value = value;
  }
  return element;
}

function assign(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) {
    element[name] = value;
    handlers.set(element, { ...handlers.get(element), [name]: value });
  } else if (name === "style") {
    for (const [key, given] of Object.entries(value)) element.style.setProperty(key, given);
  } else if (name === "checked") element.checked = true;
  else element.setAttribute(name, value === true ? "" : String(value));
}

function flat(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

/**
 * Give an element these children, and reuse the nodes that it has.
 * @param {Element} element
 * @param {...any} children
 */
export function fill(element, ...children) {
  patchChildren(element, flat(children));
}

function patchChildren(live, wanted) {
  const keyed = new Map();
  const staying = new Set(wanted.map((fresh) => fresh.dataset?.key));
  for (const child of [...live.children]) {
    const key = child.dataset?.key;
    if (key === undefined) continue;
    // Remove others first: a node that is moved past them loses the focus, and a click that has begun.
    if (staying.has(key)) keyed.set(key, child);
    else child.remove();
  }
  let next = live.firstChild;
  for (const fresh of wanted) {
    const key = fresh.dataset?.key;
    const old = key === undefined ? next : (keyed.get(key) ?? next);
    if (old && old !== next) live.insertBefore(old, next);
    if (old && isAlike(old, fresh)) {
      next = old.nextSibling;
      patch(old, fresh);
    } else {
      live.insertBefore(fresh, next);
    }
  }
  while (next) {
    const gone = next;
    next = next.nextSibling;
    gone.remove();
  }
}

function isAlike(old, fresh) {
  return old.nodeName === fresh.nodeName && old.dataset?.key === fresh.dataset?.key;
}

function patch(live, fresh) {
  if (live === fresh) return;
  if (!(live instanceof Element)) {
    if (live.data !== fresh.data) live.data = fresh.data;
    return;
  }
  for (const { name } of [...live.attributes]) {
    if (name !== "style" && !fresh.hasAttribute(name)) live.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name !== "style" && live.getAttribute(name) !== value) live.setAttribute(name, value);
  }
  if (live.style.cssText !== fresh.style.cssText) live.style.cssText = fresh.style.cssText;
  if (live.type === "checkbox") live.checked = fresh.checked;
  for (const name of Object.keys(handlers.get(live) ?? {})) live[name] = null;
  handlers.set(live, handlers.get(fresh) ?? {});
  Object.assign(live, handlers.get(fresh) ?? {});
  patchChildren(live, [...fresh.childNodes]);
}
