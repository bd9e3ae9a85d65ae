// The frame: which view is shown, what the header says, and the keys.

import { h, mark, say } from "/dashboard/dom.js";
import { listen, present, silence, start } from "/dashboard/live.js";
import { agents } from "/dashboard/views/agents.js";
import { benefit } from "/dashboard/views/benefit.js";
import { events } from "/dashboard/views/events.js";
import { gateways } from "/dashboard/views/gateways.js";
import { network } from "/dashboard/views/network.js";
import { networks } from "/dashboard/views/networks.js";
import { overview } from "/dashboard/views/overview.js";
import { traffic } from "/dashboard/views/traffic.js";

const VIEWS = { overview, traffic, networks, agents, benefit, events, gateways };
const NAMES = Object.keys(VIEWS);
const main = document.getElementById("main");
const state = document.getElementById("state");
const keys = document.getElementById("keys");
let shown = null;
let first = true;

/** The view that the address names, and its subject. */
function wanted() {
  const [, name, rest] = location.hash.match(/^#\/([a-z]+)(?:\/(.+))?$/) ?? [];
  if (name === "networks" && rest) return { name, make: network, subject: decodeURIComponent(rest) };
  return { name: NAMES.includes(name) ? name : "overview", make: VIEWS[name] ?? overview, subject: null };
}

function show() {
  const { name, make, subject } = wanted();
  shown?.end();
  const title = subject ?? name[0].toUpperCase() + name.slice(1);
  const problem = h("p", { class: "problem", role: "alert" });
  const heading = h("h1", { tabindex: "-1" }, title);
  const failed = (error) => say(problem, error === null ? "" : `${error.message}.`);
  shown = make(failed, subject);
  main.replaceChildren(heading, problem, shown.element);
  document.title = `${title} – spand gateway`;
  for (const link of document.querySelectorAll("#views a")) {
    mark(link, "aria-current", link.hash === `#/${name}` ? (subject ? "true" : "page") : null);
  }
  // Who follows a link goes on reading there; the first page is read from its beginning.
  if (!first) heading.focus({ preventScroll: true });
  if (!first) scrollTo(0, 0);
  first = false;
}

/** The status line of the header: only what matters now, so that a screen reader is not interrupted for every packet. */
function showStatus() {
  const { message, state: stream } = present();
  const [text, level] = (() => {
    if (stream === "connecting") return ["Connecting to the gateway…", "warn"];
    if (stream === "silent") return ["Not connected: what is shown may be old", "bad"];
    const { traffic: now } = message;
    if (!now.ready) return [`Not ready: ${now.not_ready.map(({ part, why }) => `${part}, ${why}`).join("; ")}`, "bad"];
    const { text, level } = silence(now);
    if (text !== null) return [text, level];
    return ["Live: packets are coming in", "good"];
  })();
  say(state, text);
  mark(state, "data-level", level);
}

listen(({ traffic: now }) => {
  say(document.getElementById("version"), `spand-gateway ${now.version}`);
  showStatus();
});
setInterval(showStatus, 1_000);
addEventListener("hashchange", show);

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

keys.checked = localStorage.getItem("keys") !== "off";
keys.addEventListener("change", () => localStorage.setItem("keys", keys.checked ? "on" : "off"));
addEventListener("keydown", (event) => {
  const typing = event.target.matches?.("input:not([type=radio], [type=checkbox]), select, textarea");
  if (event.key === "Escape" && typing) event.target.blur();
  if (!keys.checked || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const view = NAMES[Number(event.key) - 1];
  if (view !== undefined) location.hash = `#/${view}`;
  if (event.key === "/") {
    event.preventDefault();
    const search = () => document.querySelector("input[type=search]")?.focus();
    if (document.querySelector("input[type=search]")) search();
    else {
      location.hash = "#/networks";
      addEventListener("hashchange", () => setTimeout(search), { once: true });
    }
  }
});

start();
show();
