// Set the chosen theme before anything is drawn. Without a choice, the system's theme applies.
// This is a classic script, because modules run after the first paint.
(() => {
  try {
    const chosen = localStorage.getItem("leveret.theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage may be forbidden. Use the system's theme then.
  }
})();
