// Run inside the page: every text whose contrast with its background is below WCAG AA, and every
// field whose border is below 3:1. Colours are computed ones, put on top of each other on a canvas.
() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const pen = canvas.getContext("2d", { willReadFrequently: true });

  const painted = (layers) => {
    pen.globalCompositeOperation = "source-over";
    pen.clearRect(0, 0, 1, 1);
    for (const layer of layers) {
      pen.fillStyle = layer;
      pen.fillRect(0, 0, 1, 1);
    }
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const backgrounds = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const box = at.closest?.(".box");
      if (box && at instanceof SVGElement) layers.unshift(getComputedStyle(box.querySelector("rect")).fill);
      layers.unshift(getComputedStyle(at).backgroundColor);
      if (at.tagName === "DIALOG") break; // it stands on its own, above everything
    }
    return layers;
  };
  const luminance = ([r, g, b]) => {
    const part = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ratio = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const isVisible = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && element.getClientRects().length > 0;
  const name = (element) => `${element.tagName.toLowerCase()}.${element.getAttribute("class") ?? ""} “${element.textContent.trim().slice(0, 40)}”`;

  const faults = [];
  const check = (element, colour, needed, what) => {
    const layers = backgrounds(element);
    const found = ratio(painted([...layers, colour]), painted(layers));
    if (found < needed) faults.push(`${what} ${name(element)}: ${found.toFixed(2)} of ${needed}`);
  };
  const top = document.querySelector("dialog[open]") ?? document.body;
  for (const walker = document.createTreeWalker(top, NodeFilter.SHOW_TEXT); walker.nextNode(); ) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !isVisible(element) || element.closest(":disabled, noscript, .hidden, option, title, .skip")) continue;
    const style = getComputedStyle(element);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    check(element, element instanceof SVGElement ? style.fill : style.color, isLarge ? 3 : 4.5, "text");
  }
  for (const field of top.querySelectorAll("input:not([type=checkbox]):not([type=radio]), select, textarea")) {
    if (!isVisible(field)) continue;
    check(field.parentElement, getComputedStyle(field).borderTopColor, 3, "border in");
    if (field.placeholder) check(field, getComputedStyle(field, "::placeholder").color, 4.5, "placeholder");
  }
  return faults;
}
