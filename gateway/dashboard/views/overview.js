// Is the gateway healthy, does it help, and whom: the answer first.

import { get, latest, prefixPath } from "/dashboard/api.js";
import { arrange, card, h, section, table } from "/dashboard/dom.js";
import { age, atLeast, bits, count, moment, ms, packets, part, saved } from "/dashboard/format.js";
import { TRAFFIC, dropped, history, rate } from "/dashboard/history.js";
import { listen, silence } from "/dashboard/live.js";
import { NOT_MIRRORED, ONE_SIDED } from "/dashboard/views/traffic.js";
import { forest, sizesOf } from "/dashboard/views/benefit.js";

/** Agents and events asked for at a time: all that one answer has. */
const ASKED = 1_000;
/** Time between two looks at what is not in the live stream, in milliseconds. */
const AGAIN = 10_000;
const DAY_MS = 86_400_000;
/** Networks and agents of the most traffic and transfers that are listed. */
const TOP = 5;
/** Names in one line. */
const NAMED = 5;

const list = (names) => names.slice(0, NAMED).join(", ") + (names.length > NAMED ? ` and ${count(names.length - NAMED)} more` : "");

/**
 * Seconds that advice saved: of each class, control less advised completion time as the benefit compares it, for each advised transfer. The
 * half widths of the classes' intervals add as those of independent sums. Null where no class is compared.
 */
export function secondsSaved(classes) {
  const compared = classes.filter(({ difference }) => difference.completion_ms !== null);
  if (compared.length === 0) return null;
  const sum = (of) => compared.reduce((all, { advised, difference }) => all + of(difference.completion_ms, advised.transfers), 0);
  const mean = sum(({ mean }, transfers) => (-mean * transfers) / 1000);
  const half = Math.sqrt(sum(({ low, high }, transfers) => (((high - low) / 2) * transfers / 1000) ** 2));
  return { mean, low: mean - half, high: mean + half };
}

/** Hosts that left within a day and are not subscribed, with the time; the newest first. */
export function missing(events, agents) {
  const here = new Set(agents.map((agent) => agent.host_name));
  const left = new Map();
  for (const { kind, what, subject, at } of events.filter(({ kind }) => kind === "agent")) {
    // Who came back may be beyond those agents that one answer has.
    if (what === "subscribed") left.delete(subject);
    if (what === "left" && Date.now() - Date.parse(at) < DAY_MS) left.set(subject, at);
  }
  return [...left].filter(([host]) => !here.has(host)).reverse();
}

export function overview(failed) {
  const cards = {
    ready: card("Gateway"), newest: card("Newest packet"), dropped: card("Dropped, last hour"), saved: card("Time saved in transfers"),
    coverage: card("Coverage"), agents: card("Agents subscribed"),
  };
  const networks = table("Networks with the most traffic", ["network", ["out", "n"], ["in", "n mid"], ["share", "n"], ["RTT", "n wide"]]);
  const agents = table("Agents with the most transfers", ["host", ["applied", "n"], ["control", "n"], ["last report", "n mid"]], [], "No agent has reported a transfer.");
  const tasks = h("ul", { class: "tasks" });
  const drawing = h("div", { class: "forest" });
  const charts = history([
    ...TRAFFIC,
    { title: "Networks", unit: count, series: [
      { label: "with an estimate", colour: "--accent", of: (point) => point.estimates },
      { label: "all", colour: "--second", of: (point) => point.networks },
    ] },
    { title: "Reported transfers per second", unit: packets, series: [
      { label: "advised", colour: "--good", of: rate((point) => point.transfers_advised) },
      { label: "control", colour: "--second", of: rate((point) => point.transfers_control) },
    ] },
  ], failed);
  const element = h("div", { class: "view" },
    h("dl", { class: "cards" }, Object.values(cards).map(({ element }) => element)),
    h("div", { class: "pair" },
      section("What needs attention", tasks),
      section("Completion time, advised against control (negative = faster)", drawing, h("p", { class: "words" }, h("a", { href: "#/benefit" }, "Benefit by size")))),
    h("div", { class: "pair" },
      section("Networks with the most traffic", networks.element), section("Agents with the most transfers", agents.element)),
    section("Over time", charts.element));
  let now = null;
  let hosts = [];
  let gone = [];
  let classes = [];
  let lost = 0;
  let retreats = [];
  const made = new Map();

  /** Lines of what a person should look at: [level, text, view that explains it]. */
  function findings() {
    const found = now.not_ready.map(({ part, why }) => ["bad", `Not ready: ${part}, ${why}.`, part === "store" ? "events" : "traffic"]);
    const { text, level } = silence(now);
    if (text !== null && level !== null) found.push([level, `${text}: ${NOT_MIRRORED}.`, "traffic"]);
    if ((now.last?.dropped_per_s ?? 0) > 0) found.push(["bad", "Packets are being dropped before the engine.", "traffic"]);
    else if (lost > 0) found.push(["warn", `${count(lost)} packets were dropped before the engine in the last hour.`, "traffic"]);
    if (now.connections_one_sided > ONE_SIDED * now.connections_ended) {
      found.push(["warn", `${part(now.connections_one_sided / now.connections_ended)} of the connections that ended in the last minute were seen in one direction only.`, "traffic"]);
    }
    const blind = hosts.filter((agent) => agent.reported?.starts_unseen).map((agent) => agent.host_name ?? "unnamed");
    if (blind.length > 0) found.push(["bad", `Agents whose programs see almost none of the announced connections: ${list(blind)}.`, "agents"]);
    const paused = hosts.filter((agent) => agent.paused).map((agent) => agent.host_name ?? "unnamed");
    if (paused.length > 0) found.push(["warn", `Advice is paused on ${list(paused)}.`, "agents"]);
    if (gone.length > 0) found.push(["warn", `Left within 24 hours and not subscribed: ${list(gone.map(([host, at]) => `${host} (${moment(at)})`))}.`, "events"]);
    if (now.retreats > 0) {
      const [newest] = retreats;
      found.push(["warn", `Advice is held back for ${count(now.retreats)} ${now.retreats === 1 ? "network" : "networks"}${newest ? `, the newest ${newest}` : ""}.`,
        now.retreats === 1 && newest ? prefixPath("networks/", newest) : "events"]);
    }
    const slower = sizesOf(classes).filter((_, place) => (classes[place].difference.completion_ms?.low ?? 0) > 0);
    if (slower.length > 0) found.push(["bad", `Advised transfers are slower than the control group: ${list(slower)}.`, "benefit"]);
    return found;
  }

  function showTasks() {
    const found = findings();
    const wanted = found.map(([level, text, view]) => {
      const key = `${level} ${text} ${view}`;
      if (!made.has(key)) made.set(key, h("li", { "data-level": level }, `${text} `, h("a", { href: `#/${view}`, "aria-label": `Details: ${text}` }, "Details")));
      return made.get(key);
    });
    for (const [key, line] of [...made]) if (!wanted.includes(line)) made.delete(key);
    if (wanted.length === 0) wanted.push(nothing);
    arrange(tasks, wanted);
  }
  const nothing = h("li", { "data-level": "good" }, "Nothing needs attention.");

  function present(message) {
    now = message;
    const silent = now.newest_packet_age_s;
    cards.ready.show(now.ready ? "Ready" : "Not ready", `spand-gateway ${now.version}`, now.ready ? "good" : "bad");
    cards.newest.show(silent === null ? "none yet" : `${age(silent)} ago`, "", silence(now).level);
    const dropping = (now.last?.dropped_per_s ?? 0) > 0;
    cards.dropped.show(count(lost), dropping ? `${packets(now.last.dropped_per_s)} now` : "none now", dropping ? "bad" : lost > 0 ? "warn" : "good");
    const { coverage } = now;
    cards.coverage.show(part(coverage === undefined ? (now.networks > 0 ? now.estimates / now.networks : null) : coverage.out_part),
      coverage === undefined ? `${count(now.estimates)} of ${count(now.networks)} networks have an estimate` :
        `of the bytes out go to networks with an estimate; ${part(coverage.advised_part)} of the connections can be advised`);
    cards.agents.show(count(now.agents), gone.length > 0 ? `${count(gone.length)} missing` : "none missing", gone.length > 0 ? "warn" : null);
    showTasks();
  }

  function showBenefit() {
    const total = secondsSaved(classes);
    cards.saved.show(total === null ? "not known yet" : saved(total.mean), total === null ? "too few transfers in both arms" : `between ${saved(total.low)} and ${saved(total.high)} (95 %)`,
      total === null ? null : total.low > 0 ? "good" : total.high < 0 ? "bad" : null);
    forest(drawing, classes);
  }

  function showMost(busiest) {
    networks.show(busiest.map((one) => [
      h("a", { href: prefixPath("#/networks/", one.prefix), title: one.name }, one.prefix), bits(one.traffic.out.bits_per_s), bits(one.traffic.in.bits_per_s),
      one.wc_segments === null ? "–" : atLeast(one), ms(one.rtt_mean_ms),
    ]));
    const transfers = ({ reported }) => reported.applied + reported.transfers_control;
    const reporting = hosts.filter((agent) => agent.reported !== null && transfers(agent) > 0).sort((a, b) => transfers(b) - transfers(a));
    agents.show(reporting.slice(0, TOP).map(({ host_name: name, reported }) => [
      name ?? "unnamed", count(reported.applied), count(reported.transfers_control), `${age(reported.last_report_age_s)} ago`,
    ]));
  }

  const asking = latest(async (signal) => {
    const hour = new Date(Date.now() - 3_600_000).toISOString();
    const [benefit, subscribed, log, totals, most] = await Promise.all([
      get("/v1/benefit", signal), get(`/v1/agents?limit=${ASKED}`, signal), get(`/v1/events?limit=${ASKED}`, signal), get(`/v1/totals?from=${hour}&step=1m`, signal),
      get(`/v1/networks?sort=traffic&order=desc&limit=${TOP}`, signal),
    ]);
    ({ classes } = benefit);
    hosts = subscribed.agents;
    showMost(most.networks);
    gone = missing(log.events, hosts);
    retreats = log.events.filter(({ kind, what }) => kind === "retreat" && what !== "over").map(({ subject }) => subject).reverse();
    lost = totals.points.reduce((sum, point) => sum + dropped(point), 0);
    showBenefit();
    if (now !== null) present(now);
  }, failed);
  asking.run();
  let renewed = Date.now();
  const stop = listen(({ traffic, resync }) => {
    present(traffic);
    if (!resync && Date.now() - renewed < AGAIN) return;
    renewed = Date.now();
    asking.run();
  });
  return {
    element,
    end() {
      stop();
      asking.stop();
      charts.end();
    },
  };
}
