// Run inside the page: every element whose text is cut off at its edge without a sign. Text that ends
// in an ellipsis has a title; areas that scroll are meant to; tabs must all be visible.
() => {
  const isVisible = (element) =>
    element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) &&
    element.getClientRects().length > 0;
  const name = (element) =>
    `${element.tagName.toLowerCase()}.${element.getAttribute("class") ?? ""} “${element.textContent.trim().slice(0, 40)}”`;
  const top = document.querySelector("dialog[open]") ?? document.body;
  const faults = [];
  for (const element of top.querySelectorAll("*")) {
    if (!(element instanceof HTMLElement) || !isVisible(element) || element.closest(".hidden, .skip, thead, option, select"))
      continue;
    const style = getComputedStyle(element);
    const isCut = style.overflowX === "hidden" || style.overflowX === "clip";
    const over = element.scrollWidth - element.clientWidth;
    if (isCut && over > 1 && style.textOverflow !== "ellipsis")
      faults.push(`cut off by ${over} px: ${name(element)}`);
    if (element.matches(".tabs, .choices, .bar") && over > 1)
      faults.push(`scrolls by ${over} px: ${name(element)}`);
  }
  for (const element of top.querySelectorAll("button, a, select, input, h1, .badge")) {
    if (!isVisible(element) || element.closest(".rows, .list, .graph, .payload, .skip, #skip")) continue;
    const box = element.getBoundingClientRect();
    if (box.width > 0 && (box.left < -1 || box.right > innerWidth + 1))
      faults.push(`outside of the window: ${name(element)}`);
  }
  return faults;
}
