// What this gateway shares with others: the link, who they are, and what is wrong between them.

import { get, latest } from "/dashboard/api.js";
import { arrange, card, h, say, section, table } from "/dashboard/dom.js";
import { age, count, moment, offset, part, short, words } from "/dashboard/format.js";
import { listen } from "/dashboard/live.js";

/** Shortest time between two looks, in milliseconds: a gateway sends who it is every five seconds. */
const AGAIN = 3_000;
/** A clock that is off by more than this is worth a warning, as in the gateway's log. */
const CLOCK_MS = 2_000;

/** Why cells of a gateway do not count, and the way out: the sentences of `spand-gateway doctor`. */
const REFUSED = {
  same_number: ["it has this gateway's number", "give each gateway of the cluster its own share.gateway"],
  bucket_length: ["its buckets have another length", "set estimate.bucket_s alike on all gateways"],
  prefix_list: ["its list of prefixes makes other networks", "give all gateways the same traffic.prefix_list"],
  format: ["it writes a format that this gateway does not read", "upgrade the older gateway"],
  clock: ["its clock is off by more than a bucket", "synchronise the clocks of both gateways"],
};
const refused = (reason) => REFUSED[reason] ?? [words(reason), "see the log of this gateway"];

/** States of the link in which messages get through. */
const CARRIES = ["up", "degraded"];
const LINK_TO_DO = "See that a server of share.servers runs, is reached from here and takes share.user or share.credentials; meanwhile this gateway goes on with what it knows.";
const CLOCK_TO_DO = "synchronise the clocks of both gateways; beyond a bucket (estimate.bucket_s) cells are refused";
const DUPLICATE_TO_DO = "give gateways that see the same packets one share.mirror_group";

const named = ({ gateway, name }) => `gateway ${gateway} (${name})`;
const sum = (counts) => Object.values(counts).reduce((all, one) => all + one, 0);
const fault = (text) => h("span", { class: "fault" }, text);
const doubt = (text) => h("span", { class: "doubt" }, text);

/** Whether its cells count, and else why and what to do. */
function standing({ incompatible, clock_offset_ms: ahead }) {
  if (incompatible !== null) {
    const [why, wayOut] = refused(incompatible);
    return fault(`refused: ${why}; ${wayOut}`);
  }
  return Math.abs(ahead) > CLOCK_MS ? doubt(`count; its clock is off: ${CLOCK_TO_DO}`) : "count";
}

/** What was found in the connections that both saw. */
function finding(member, group) {
  if (member.duplicate) {
    return doubt(`Undeclared duplicate: round trips and losses of connections that ${named(member)} sees too count twice; ${DUPLICATE_TO_DO}.`);
  }
  return member.mirror_group !== null && member.mirror_group === group ? "same packets, as one mirror group" : "no packets doubled";
}

const withPart = (some, all) => (all > 0 ? `${count(some)} (${part(some / all)})` : "–");

export function gateways(failed) {
  const cards = {
    link: card("Link"), own: card("This gateway"), others: card("Other gateways"), cells: card("Cells that count"),
    closed: card("Lag of closed cells"), open: card("Lag of open cells"),
  };
  const problem = h("p", { class: "problem", role: "alert" });
  const members = table("Other gateways", [
    "number", ["name", "label"], ["version", "mid"], ["mirror group", "n mid"], ["heard", "n"], ["clock offset", "n"], ["cells received", "n mid"], ["addresses of hosts", "n mid"], ["its cells", "roomy"],
  ]);
  const compared = table("Connections compared", [
    ["gateway", "label"], ["connections of it", "n"], ["seen here, too", "n"], ["found", "roomy"],
  ], [], "Nothing is compared yet.");
  const overview = h("dl", { class: "cards" }, Object.values(cards).map(({ element }) => element));
  const nobody = h("p", { class: "none" }, "");
  const tables = [
    section("Other gateways", members.element,
      h("p", { class: "hint" }, "A gateway sends who it is every 5 s, and is gone after 15 s of silence. Its clock is shown as its message arrives: the way of the message makes it look behind. A host with several addresses counts for each.")),
    section("Connections compared", compared.element,
      h("p", { class: "hint" }, "Connections in its closed cells of networks and buckets of which this gateway saw some too, since startup.")),
  ];
  const alone = h("p", { class: "hint" }, "This gateway shares with no others: share.servers names no server. One gateway needs none; docs/operate/share.md describes several.");
  const element = h("div", { class: "view" });

  function present(share) {
    const { link, lag, members: others } = share;
    const since = link.since === null ? "" : ` since ${moment(link.since)}`;
    const why = link.reason ?? (link.state === "connecting" ? "not connected with the servers of share.servers" : null);
    const level = { up: "good", degraded: "warn", connecting: "warn" }[link.state] ?? "bad";
    cards.link.show(link.state, [since.trim(), why].filter(Boolean).join(": "), level);
    cards.own.show(`number ${share.gateway}`, `cluster ${share.cluster}, site ${share.site}, ${share.mirror_group === null ? "a tap of its own" : `mirror group ${share.mirror_group}`}; ${count(share.agents)} ${share.agents === 1 ? "agent" : "agents"}`);
    const sound = others.filter(({ incompatible }) => incompatible === null).length;
    cards.others.show(count(others.length), `cells of ${count(sound)} count; ${count(share.seats_elsewhere)} addresses of hosts there`,
      sound < others.length || (others.length === 0 && CARRIES.includes(link.state)) ? "warn" : null);
    const lost = [
      [sum(share.cells_refused_by_reason), "refused"], [sum(share.messages_refused_by_reason), "messages refused"], [share.cells_dropped, "without room"],
    ].filter(([times]) => times > 0).map(([times, what]) => `${count(times)} ${what}`);
    cards.cells.show(short(share.cells_taken), `since startup; ${lost.length > 0 ? lost.join(", ") : "none refused or dropped"}`, lost.length > 0 ? "warn" : null);
    cards.closed.show(age(lag.closed_s), lag.closed_s === null ? "none came yet" : "after the end of their bucket");
    cards.open.show(age(lag.open_s), lag.open_s === null ? "none came yet" : "after their newest packet");
    say(problem, faults(share, since).join(" "));
    say(nobody, CARRIES.includes(link.state) ? "No other gateway is heard: start another one with the same share.cluster and share.secret, or leave share.servers out." :
      "No other gateway can be heard while nothing gets through.");
    members.show(others.map((one) => {
      const clock = offset(one.clock_offset_ms);
      return [
        String(one.gateway), one.name, one.version, one.mirror_group === null ? "none" : String(one.mirror_group), `${age(one.last_heard_age_s)} ago`,
        Math.abs(one.clock_offset_ms) > CLOCK_MS ? doubt(clock) : clock, count(one.cells_received), count(one.seats), standing(one),
      ];
    }));
    compared.show(others.map((one) => [
      `${one.gateway} (${one.name})`, count(one.connections_compared), withPart(one.seen_by_both, one.connections_compared), finding(one, share.mirror_group),
    ]));
  }

  /** What keeps gateways from sharing, in sentences; of single ones more is in the table. */
  function faults({ link, members: others }, since) {
    const found = [];
    if (link.state === "down") found.push(`Nothing gets through to other gateways${since}: ${link.reason}. ${LINK_TO_DO}`);
    if (link.state === "degraded") found.push(`Nothing is kept for gateways that are away${since}: ${link.reason}. Gateways that are away ask for it when they are back.`);
    const away = others.filter(({ incompatible }) => incompatible !== null);
    if (away.length > 0) found.push(`Cells of ${away.slice(0, 3).map(named).join(", ")}${away.length > 3 ? ` and ${count(away.length - 3)} more` : ""} do not count.`);
    return found;
  }

  const asking = latest(async (signal) => {
    const share = await get("/v1/share", signal);
    if (!share.configured) return arrange(element, [alone]);
    present(share);
    arrange(element, [problem, overview, ...(share.members.length > 0 ? tables : [nobody])]);
  }, failed);
  asking.run();
  let renewed = Date.now();
  const stop = listen(({ resync }) => {
    if (!resync && Date.now() - renewed < AGAIN) return;
    renewed = Date.now();
    asking.run();
  });
  return {
    element,
    end() {
      stop();
      asking.stop();
    },
  };
}
