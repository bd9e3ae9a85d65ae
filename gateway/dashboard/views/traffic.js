// Is the gateway seeing traffic, and what becomes of it?

import { card, h, section, table } from "/dashboard/dom.js";
import { IGNORED, age, bits, count, packets, part, short, words } from "/dashboard/format.js";
import { TRAFFIC, history } from "/dashboard/history.js";
import { listen, silence } from "/dashboard/live.js";

/** What to do about a silent mirror port; the doctor and the alert have the same. */
export const NOT_MIRRORED = "check that the switch still mirrors to it, and capture.filter";
/** A part of one-sided connections above which the mirror port deserves a look. */
export const ONE_SIDED = 0.1;

export function traffic(failed) {
  const cards = {
    packets: card("Packets"), bits: card("On the wire"), newest: card("Newest packet"), dropped: card("Dropped"),
    sided: card("One-sided connections"), networks: card("Networks with an estimate"),
  };
  const charts = history(TRAFFIC, failed);
  const interfaces = table("Interfaces", ["interface", ["packets", "n"], ["dropped: kernel ring", "n"], ["NIC", "n"], ["capture queue", "n"], ["softnet backlog", "n"], ["ring full", "n"], ["interface down", "n"]], [],
    "No interfaces.");
  const ignored = table("Ignored, by reason", ["reason", ["last minute", "n"], ["since startup", "n"], "description"], [], "Nothing was ignored.");
  const element = h("div", { class: "view" },
    h("dl", { class: "cards" }, Object.values(cards).map(({ element }) => element)),
    charts.element,
    section("Interfaces", interfaces.element),
    section("Ignored, by reason", ignored.element));

  function present(now) {
    const { last } = now;
    cards.packets.show(packets(last?.packets_per_s), `${short(now.packets)} since startup`);
    cards.bits.show(bits(last?.bits_per_s), `${short(now.tcp_segments)} TCP segments since startup`);
    const silent = now.newest_packet_age_s;
    const { text, level } = silence(now);
    cards.newest.show(silent === null ? "none yet" : `${age(silent)} ago`, text === null ? "" : level === null ? text : `${text}: ${NOT_MIRRORED}`, level);
    const lost = now.interfaces.reduce((sum, one) => sum + one.dropped_kernel + one.dropped_interface + one.dropped_queue, 0);
    const dropping = (last?.dropped_per_s ?? 0) > 0;
    cards.dropped.show(packets(last?.dropped_per_s ?? 0), `${count(lost)} since startup`, dropping ? "bad" : lost > 0 ? "warn" : "good");
    const ended = now.connections_ended;
    const sided = ended > 0 ? now.connections_one_sided / ended : null;
    cards.sided.show(part(sided), `${count(now.connections_one_sided)} of ${count(ended)} that ended in ${age(now.span_s)}`,
      sided === null ? null : sided > ONE_SIDED ? "warn" : "good");
    cards.networks.show(count(now.estimates), `of ${count(now.networks)}; ${count(now.retreats)} in retreat, ${count(now.connections)} connections`);
    interfaces.show(now.interfaces.map((one) => [one.interface, ...[one.packets, one.dropped_kernel, one.dropped_interface, one.dropped_queue, one.dropped_backlog, one.ring_freezes, one.losses].map(count)]));
    const most = [...now.ignored].sort((a, b) => b.lately - a.lately || b.all - a.all);
    ignored.show(most.map((one) => [words(one.reason), count(one.lately), count(one.all), IGNORED[one.reason] ?? ""]));
  }

  const stop = listen(({ traffic: now }) => present(now));
  return {
    element,
    end() {
      stop();
      charts.end();
    },
  };
}
