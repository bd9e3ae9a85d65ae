// One network: history of its share, its advice, and the distribution to agents.

import { get, latest, prefixPath } from "/dashboard/api.js";
import { chart, extremes } from "/dashboard/chart.js";
import { card, h, say, section, table } from "/dashboard/dom.js";
import { age, atLeast, bits, bytes, called, count, marked, moment, ms, part, segments, unixS, words } from "/dashboard/format.js";
import { listen } from "/dashboard/live.js";

/** Sizes for which advice is shown, in bytes; the last is not known. */
const SIZES = [10_000, 30_000, 100_000, 300_000, 1_000_000, 10_000_000, null];
/** Shortest time between two looks, in milliseconds. */
const AGAIN = 2_000;

export function network(failed, prefix) {
  const cards = {
    share: card("Share"), rtt: card("Round-trip time"), confidence: card("Confidence"), samples: card("Samples in the window"),
    losses: card("Loss events in the window"), age: card("Newest sample"),
    buffer: card("Bottleneck buffer"), out: card("Towards it, 5 min"), back: card("From it, 5 min"),
  };
  const windows = chart("Window samples and 10 s mean", [
    { label: "packet loss or ECN mark", colour: "--bad", points: true }, { label: "end of transfer", colour: "--accent", points: true },
    { label: "lower bound", colour: "--quiet", points: true }, { label: "10 s mean", colour: "--second", bare: true, dots: true },
  ], segments, { height: 220 });
  const trips = chart("Round-trip time, 10 s mean", [{ label: "RTT", colour: "--second", bare: true, dots: true }], ms, { height: 220 });
  const advice = table("Advice by size of the transfer", ["transfer", ["window", "n"], ["ssthresh", "n"], "pacing", "limited by"]);
  const samples = table("Last samples", ["time", ["window", "n"], "reason", "to", ["RTT", "n wide"], "on advice"], [], "No samples kept.");
  const leases = table("Leases", ["host", "addresses", ["lease above its default window", "n"]], [], "No host has a lease.");
  const starts = table("Announced starts", ["time", "host", "towards", "trigger", ["agents", "n"]], [], "No announced starts.");
  const openings = table("Slow-start thresholds by rule", ["rule", ["threshold", "n"], ["share", "n"], ["last loss", "n"], "use"]);
  const opening = section("Openings by the senders under way", openings.element);
  opening.hidden = true;
  const distribution = h("p", {}, "");
  const title = h("strong", {}, "");
  const element = h("div", { class: "view" },
    h("p", {}, h("a", { href: "#/networks" }, "← all networks"), " ", title),
    h("dl", { class: "cards" }, Object.values(cards).map(({ element }) => element)),
    h("div", { class: "pair" }, windows.element, trips.element),
    section("Advice for a connection that starts now", advice.element),
    opening,
    section("Distribution", distribution, h("div", { class: "pair" }, leases.element, starts.element)),
    section("Last samples", samples.element));

  /** What lengths of windows are divided by, where they have no segment size of their own. */
  let mss = 1448;
  const sized = (value, size = mss) => (value === null || value === undefined ? "–" : h("span", { title: bytes(value) }, segments(value / size)));

  function present(one) {
    const why = one.no_estimate_message;
    mss = one.mss_bytes ?? mss;
    cards.share.show(one.wc_segments === null ? "no estimate" : atLeast(one),
      one.wc_segments === null ? why : `${bytes(one.wc_bytes)}, rule ${one.rule}${marked(one)}`, one.wc_segments === null ? "warn" : null);
    cards.rtt.show(ms(one.rtt_mean_ms), `smallest ${ms(one.rtt_min_ms)}`);
    cards.confidence.show(part(one.confidence), `${count(one.connections)} connections`);
    cards.samples.show(count(one.samples), `and ${count(one.lower_bounds)} lower bounds`);
    cards.losses.show(count(one.losses), one.loss_connections === null ? "" : `${count(one.loss_connections)} connections lost packets`);
    cards.buffer.show(one.buffer_bytes === null ? "unknown" : segments(one.buffer_bytes / mss),
      one.buffer_bytes === null ? "no three connections agree" : `${bytes(one.buffer_bytes)}, by round trips at losses`);
    for (const [shown, flow] of [[cards.out, one.traffic.out], [cards.back, one.traffic.in]]) {
      shown.show(bits(flow.bits_per_s), flow.loss === null ? "no payload" : `${part(flow.loss)} of ${bytes(flow.payload_bytes)} retransmitted`);
    }
    cards.age.show(one.age_s === null ? "–" : `${age(one.age_s)} ago`, `round trips: ${count(one.limited_by.window)} window-limited, ${count(one.limited_by.receiver)} receiver-limited, ${count(one.limited_by.application)} application-limited`);
  }

  /** Rules with an opening: the one in force, then those that are compared with it. None, no section. */
  function thresholds(one) {
    const row = (rule, share, found, note) => [rule, sized(found?.ssthresh_bytes), sized(share),
      found?.loss_age_s == null ? "–" : `${age(found.loss_age_s)} ago`, note];
    const inForce = one.opening === null ? [] : [row(one.opening.rule, one.wc_bytes, one.opening, "in force")];
    const rows = [...inForce, ...one.compared.map((other) => row(other.rule, other.wc_bytes, other.opening, "compared, not sent to hosts"))];
    opening.hidden = rows.length === 0;
    openings.show(rows);
  }

  function history(past) {
    const points = past.trend?.points ?? [];
    const step = (past.trend?.step_s ?? 0) / 2;
    // All on one axis of time: a column for each moment, in order.
    const columns = [
      ...past.samples.map((one) => ({ at: unixS(one.at), [one.lower_bound ? 2 : one.reason === "end" ? 1 : 0]: one.window_bytes / one.mss_bytes })),
      ...points.map((one) => ({ at: unixS(one.at) + step, 3: one.wc_bytes === null ? null : one.wc_bytes / mss })),
    ].sort((a, b) => a.at - b.at);
    const series = [0, 1, 2, 3].map((place) => columns.map((column) => column[place] ?? null));
    const range = extremes(series.slice(0, 3).flat());
    const quartiles = past.trend?.wc_quartiles_bytes;
    windows.show([columns.map(({ at }) => at), ...series], range === null ? "No samples kept." :
      `${count(past.samples.length)} samples between ${segments(range.least)} and ${segments(range.most)}` +
      (quartiles ? `; half of those in the window lie between ${segments(quartiles[0] / mss)} and ${segments(quartiles[1] / mss)}.` : "."));
    const trip = points.map((one) => one.rtt_mean_ms);
    const least = extremes(trip);
    trips.show([points.map((one) => unixS(one.at) + step), trip],
      least === null ? "No RTT in the window." : `Between ${ms(least.least)} and ${ms(least.most)}, last ${ms(least.last)}.`);
    samples.show([...past.samples].reverse().map((one) => [
      moment(one.at), sized(one.window_bytes, one.mss_bytes),
      (one.lower_bound ? "at least: " : "") + words(one.reason), one.remote, ms(one.rtt_min_ms), one.on_advice ? "yes" : "no",
    ]));
    const { agents } = past.distribution;
    distribution.textContent = agents === 0 ? "The estimate is advertised to no agent." :
      `The estimate is advertised to ${count(agents)} subscribed ${agents === 1 ? "agent" : "agents"}.`;
    leases.show(past.distribution.leases.map((one) => [one.host_name, one.addresses.join(", "), segments(one.lease_segments)]));
    starts.show([...past.distribution.starts].reverse().map((one) => [moment(one.at), one.host, one.remote, words(one.trigger), count(one.agents)]));
  }

  const row = (size, { start, refusal }) => {
    const name = size === null ? "unknown size" : bytes(size);
    if (start === null) return [name, "default", "–", "–", refusal.message];
    const { pacing } = start;
    const spread = pacing === null ? "none" : `after ${segments(pacing.after_segments)} at ${bytes(pacing.rate_bytes_per_s)}/s`;
    const threshold = start.ssthresh_segments >= 2 ** 31 - 1 ? "none" : segments(start.ssthresh_segments);
    return [name, segments(start.cwnd_segments), threshold, spread, start.clipped_by === null ? "nothing" : words(start.clipped_by)];
  };

  const asking = latest(async (signal) => {
    const one = await get(prefixPath("/v1/networks/", prefix), signal);
    const address = one.prefix.split("/")[0];
    const ask = (size) => get(`/v1/advice?${new URLSearchParams(size === null ? { destination: address } : { destination: address, bytes: size })}`, signal);
    const [past, ...answers] = await Promise.all([get(prefixPath("/v1/history/", one.prefix), signal), ...SIZES.map(ask)]);
    if (signal.aborted) return;
    present(one);
    say(title, [one.name, called(one)].filter(Boolean).join(", "));
    thresholds(one);
    history(past);
    advice.show(SIZES.map((size, place) => row(size, answers[place])));
  }, failed);
  asking.run();
  let revision = null;
  let renewed = Date.now();
  const stop = listen(({ traffic: now, resync }) => {
    revision ??= now.networks_revision;
    if (!resync && (now.networks_revision === revision || Date.now() - renewed < AGAIN)) return;
    revision = now.networks_revision;
    renewed = Date.now();
    asking.run();
  });
  return {
    element,
    end() {
      stop();
      asking.stop();
      windows.end();
      trips.end();
    },
  };
}
