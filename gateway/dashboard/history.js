// The gateway as a whole over time: charts with one range for all of a page, and the same numbers to take away.

import { get, latest } from "/dashboard/api.js";
import { chart, extremes } from "/dashboard/chart.js";
import { h, mark } from "/dashboard/dom.js";
import { bits, packets, unixS } from "/dashboard/format.js";
import { listen } from "/dashboard/live.js";

const MINUTE = 60;
const DAY = 86_400;
/** Points of the shortest range: seconds. */
const SECONDS = 600;
/** Seconds without a point that are a gap: points come a little more than a second apart. */
const SILENT = 5;
/** Time between two looks at a longer range, in milliseconds. */
const AGAIN = 20_000;

/** `step` in seconds; the day is in steps that two days have, for the line of the day before. */
const RANGES = {
  "10 minutes": { span: SECONDS, step: 1, asked: "1m" },
  "1 hour": { span: 60 * MINUTE, step: MINUTE, asked: "1m" },
  "24 hours": { span: DAY, step: 10 * MINUTE, asked: "10m", before: true },
  "7 days": { span: 7 * DAY, step: 10 * MINUTE, asked: "10m" },
  "30 days": { span: 30 * DAY, step: 60 * MINUTE, asked: "1h" },
};
/** What was chosen stays while the page is open. */
let chosen = "10 minutes";

/** Of a step that `count` rose in, its rate. */
export const rate = (count) => (point) => (point.observed_s > 0 ? count(point) / point.observed_s : null);
export const dropped = (point) => point.dropped_kernel + point.dropped_interface + point.dropped_queue;

/** What reaches the gateway. */
export const TRAFFIC = [
  { title: "Packets per second", unit: packets, series: [
    { label: "seen", colour: "--accent", of: rate((point) => point.packets), live: (second) => second.packets_per_s },
    { label: "dropped", colour: "--bad", of: rate(dropped), live: (second) => second.dropped_per_s },
  ] },
  { title: "Bits per second on the wire", unit: bits, series: [
    { label: "bits", colour: "--second", of: rate((point) => point.wire_bytes * 8), live: (second) => second.bits_per_s },
  ] },
];

/**
 * Charts of /v1/totals. Each of `wanted` is { title, unit, series }, a series { label, colour, of, live }: `of(point)` is its value in a step,
 * `live(second)` in a second of /v1/traffic, without which the shortest range has steps of a minute. The first one has its day before.
 */
export function history(wanted, failed) {
  const charts = wanted.map(({ title, unit, series }) => {
    const before = { ...series[0], label: `${series[0].label}, 24 hours before`, colour: "--quiet", bare: true, gaps: true };
    const shown = chart(title, [...series, before], unit);
    return { unit, series, ...shown };
  });
  const links = ["csv", "json"].map((format) => ({ format, link: h("a", { download: `spand-totals.${format}` }, format.toUpperCase()) }));
  const choices = Object.keys(RANGES).map((name) => h("label", {}, h("input", {
    type: "radio", name: "range", checked: name === chosen, change() {
      chosen = name;
      asking.run();
    },
  }), ` ${name}`));
  const element = h("div", {},
    h("fieldset", { class: "tools" }, h("legend", {}, "Range"), choices,
      h("span", { class: "found" }, "Export ", links.flatMap(({ link }, place) => (place > 0 ? [" ", link] : [link])))),
    h("div", { class: "pair" }, charts.map((one) => one.element)));
  let seconds = [];
  let points = [];
  let now = Date.now() / 1000;

  const asking = latest(async (signal) => {
    const { span, asked, before } = RANGES[chosen];
    now = Date.now() / 1000;
    const from = (length) => new URLSearchParams({ from: new Date((now - length) * 1000).toISOString(), step: asked });
    for (const { format, link } of links) mark(link, "href", `/v1/totals?${from(span)}&format=${format}`);
    const traffic = chosen === "10 minutes" ? get("/v1/traffic", signal) : null;
    const totals = await get(`/v1/totals?${from(before ? 2 * span : span)}`, signal);
    now = unixS(totals.at);
    points = totals.points;
    if (traffic !== null) seconds = (await traffic).points;
    if (!signal.aborted) draw();
  }, failed);

  /** Values on a grid of steps, so that a step without a point is a gap. */
  function grid(known, step, span, of) {
    const values = new Map(known.map((point) => [Math.floor(unixS(point.at) / step), of(point)]));
    const last = Math.floor(now / step);
    const steps = Array.from({ length: Math.ceil(span / step) + 1 }, (_, place) => last - Math.ceil(span / step) + place);
    return { at: steps.map((one) => one * step), values: (back) => steps.map((one) => values.get(one - back) ?? null) };
  }

  /** Seconds as they came, with a gap where none did. */
  function live(of) {
    const shown = seconds.flatMap((one, place) => {
      const before = place > 0 ? unixS(seconds[place - 1].at) : null;
      return before !== null && unixS(one.at) - before > SILENT ? [{ at: before + 1, value: null }, { at: unixS(one.at), value: of(one) }] : [{ at: unixS(one.at), value: of(one) }];
    });
    return { at: shown.map(({ at }) => at), values: () => shown.map(({ value }) => value) };
  }

  function draw() {
    const { span, step, before } = RANGES[chosen];
    for (const { unit, series, show } of charts) {
      const isLive = step === 1 && series.every((one) => one.live !== undefined);
      const width = Math.max(step, MINUTE);
      const lines = series.map((one) => (isLive ? live(one.live) : grid(points, width, span, one.of)));
      const values = lines.map((line) => line.values(0));
      const back = before ? lines[0].values(DAY / width) : lines[0].at.map(() => null);
      const sentences = series.map((one, place) => {
        const own = extremes(values[place]);
        return own === null ? `${one.label}: no data` : `${one.label}: last ${unit(own.last)}, between ${unit(own.least)} and ${unit(own.most)}`;
      });
      show([lines[0].at, ...values, back], `In the last ${chosen}, ${sentences.join("; ")}.`);
    }
  }

  asking.run();
  let renewed = Date.now();
  const stop = listen(({ traffic, resync }) => {
    if (resync || Date.now() - renewed > AGAIN) {
      renewed = Date.now();
      asking.run();
      return;
    }
    if (chosen !== "10 minutes" || traffic.last === null || traffic.last.at <= (seconds.at(-1)?.at ?? "")) return;
    seconds = [...seconds, traffic.last].slice(-SECONDS);
    now = unixS(traffic.last.at);
    draw();
  });
  return {
    element,
    end() {
      stop();
      asking.stop();
      for (const one of charts) one.end();
    },
  };
}
