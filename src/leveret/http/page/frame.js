/**
 * The frame around every view: the top bar (vhost, refresh, theme, user) and the navigation.
 * It polls the overview for the totals beside the links, and the health for alarms.
 */

import { get, unlessRefused } from "./api.js";
import { fill, h } from "./dom.js";
import { short } from "./format.js";
import { showShortcuts } from "./shortcuts.js";
import { live } from "./polling.js";
import { countStats, rateHistory } from "./rate_history.js";
import { ABOUT, SECTIONS } from "./sections.js";
import { chooseVhost, may, session, signOut, vhost } from "./session.js";

/** Counters of `message_stats` that the charts show. */
export const RATES = [
  "publish",
  "deliver_get",
  "ack",
  "redeliver",
  "confirm",
  "return_unroutable",
  "drop_unroutable",
  "get",
];

export class Frame {
  constructor() {
    this.section = "overview";
    this.totals = {};
    this.overview = null;
    this.alarms = h("div", { role: "status" });
    this.main = h("main", { id: "main", tabindex: "-1" });
    this.nav = h("nav", { class: "nav", id: "nav", "aria-label": "Views" });
    this.vhosts = h("select", {
      "aria-label": "Virtual host",
      onchange: (event) => chooseVhost(event.target.value),
    });
    this.pauseButton = h("button", {
      type: "button",
      id: "pause",
      onclick: () => live.pause(!live.isPaused),
    });
    this.menu = h(
      "button",
      {
        type: "button",
        class: "menu-button",
        "aria-expanded": "false",
        "aria-controls": "nav",
        onclick: () => this.toggleMenu(),
      },
      "Menu",
    );
    this.el = h(
      "div",
      { class: "frame" },
      this.bar(),
      this.nav,
      h("div", null, this.alarms, this.main),
    );
    this.drawPause();
    this.drawNav();
    this.onLive = () => this.drawPause();
    live.addEventListener("change", this.onLive);
  }

  leave() {
    live.removeEventListener("change", this.onLive);
  }

  bar() {
    return h(
      "header",
      { class: "bar" },
      this.menu,
      h(
        "a",
        { class: "brand", href: "#/", "aria-label": "Leveret, overview" },
        h("img", { src: "page/icon.svg", alt: "" }),
        h("span", null, "Leveret"),
      ),
      h("label", { class: "push" }, h("span", { class: "wide" }, "Vhost"), this.vhosts),
      this.pauseButton,
      h(
        "button",
        {
          type: "button",
          class: "quiet",
          id: "theme",
          "aria-label": "Switch between dark and light",
          title: "Dark or light",
          onclick: toggleTheme,
        },
        "◐",
      ),
      h(
        "button",
        {
          type: "button",
          class: "quiet wide",
          "aria-label": "Keyboard shortcuts",
          title: "Keyboard shortcuts",
          onclick: showShortcuts,
        },
        "?",
      ),
      h("span", { class: "who" }, session.user?.name ?? ""),
      h(
        "button",
        { type: "button", class: "quiet wide", id: "signout", onclick: () => signOut() },
        "Sign out",
      ),
    );
  }

  /** Load the data of the frame. If a call fails, the frame stays as it is. */
  async refresh(signal) {
    const [overview, vhosts] = await Promise.all([
      get("/overview", { signal }),
      unlessRefused(get("/vhosts?columns=name&disable_stats=true", { signal })),
    ]);
    this.overview = overview;
    this.totals = overview.object_totals ?? {};
    await countOverview(overview, signal);
    session.vhosts = (vhosts ?? []).map((v) => v.name);
    this.drawVhosts();
    this.drawNav();
    const health = await loadHealth(signal);
    fill(
      this.alarms,
      health.reason && h("p", { class: "note bad" }, h("strong", null, "Alarm: "), health.reason),
      health.disk &&
        h("p", { class: "note warn" }, h("strong", null, `Disk of node ${health.node}: `), health.disk),
    );
  }

  drawVhosts() {
    const known = session.vhosts.length > 0 ? session.vhosts : ["/"];
    const names = vhost() && !known.includes(vhost()) ? [...known, vhost()] : known;
    fill(
      this.vhosts,
      h("option", { value: "" }, "All vhosts"),
      names.map((name) => h("option", { value: name }, name)),
    );
    if (this.vhosts.value !== vhost()) this.vhosts.value = vhost();
  }

  drawNav() {
    const leave = h(
      "button",
      { type: "button", class: "narrow", onclick: () => signOut() },
      "Sign out",
    );
    fill(
      this.nav,
      SECTIONS.map(([title, entries]) => {
        const open = entries.filter(([, , , , tag]) => !tag || may(tag));
        return (
          open.length > 0 &&
          h(
            "div",
            null,
            title && h("h2", null, title),
            open.map((entry) => this.entry(entry)),
          )
        );
      }),
      this.help(),
      leave,
    );
  }

  help() {
    const about = ABOUT[this.section];
    return h(
      "div",
      null,
      h("h2", null, "Help"),
      about && this.entry(["", "About this view", `#/manual/docs/${about}`]),
      this.entry(["manual", "Documents", "#/manual/docs/index.md"]),
    );
  }

  entry([section, label, href, total]) {
    const number = total && this.totals[total];
    return h(
      "a",
      {
        href,
        "aria-current": section === this.section ? "page" : null,
        onclick: () => this.closeMenu(),
      },
      label,
      number !== undefined &&
        total &&
        h("span", { class: "count", "aria-hidden": "true" }, short(number)),
    );
  }

  drawPause() {
    fill(
      this.pauseButton,
      h("span", { class: `live-dot ${live.isPaused ? "still" : ""}`, "aria-hidden": "true" }),
      live.isPaused ? "Paused" : "Live",
    );
    this.pauseButton.setAttribute("aria-pressed", String(live.isPaused));
    this.pauseButton.setAttribute(
      "aria-label",
      live.isPaused ? "Paused. Resume refreshing" : "Live. Pause refreshing",
    );
  }

  toggleMenu() {
    const isOpen = this.nav.classList.toggle("open");
    this.menu.setAttribute("aria-expanded", String(isOpen));
  }

  closeMenu() {
    this.nav.classList.remove("open");
    this.menu.setAttribute("aria-expanded", "false");
  }
}

/** Add an answer of `/overview` to its history, which begins with the samples of the broker. */
export async function countOverview(overview, signal) {
  const history = rateHistory("overview");
  if (may("monitoring")) await history.begin(() => get("/history", { signal }));
  countStats(history, overview.message_stats, RATES, {
    ready: overview.queue_totals?.messages_ready,
    unacked: overview.queue_totals?.messages_unacknowledged,
  });
  return history;
}

/** Read the health. While there are alarms, it answers 503 with the reason. */
async function loadHealth(signal) {
  const response = await fetch("api/health", { credentials: "omit", cache: "no-store", signal });
  return response.json();
}

function toggleTheme() {
  const root = document.documentElement;
  const isDark =
    (root.dataset.theme ??
      (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("leveret.theme", root.dataset.theme);
}
