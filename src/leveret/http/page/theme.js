// Sets the chosen theme before anything is drawn; no choice follows the system.
// A classic script, because modules run after the first paint.
(() => {
  try {
    const chosen = localStorage.getItem("leveret.theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage may be forbidden; the system's theme is good then.
  }
})();
