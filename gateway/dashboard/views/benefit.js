// What advice does to transfers: those advised beside those held out at random, by size.

import { get, latest } from "/dashboard/api.js";
import { h, section, svg, table } from "/dashboard/dom.js";
import { bytes, change, count, moment, ms, part } from "/dashboard/format.js";
import { listen } from "/dashboard/live.js";

/** Shortest time between two looks, in milliseconds. */
const AGAIN = 5_000;
/** With a sign that reads as one. */
const signed = (text, value) => (value > 0 ? `+${text}` : text.replace("-", "−"));
/** The next round number, so that the axis has round halves. */
const round = (value) => [10, 20, 40, 60, 80, 100, 200, 400].find((step) => step >= value) ?? value;
/** Height of a line of the drawing. */
const LINE = 34;

/** The classes' sizes in words. */
export const sizesOf = (classes) => classes.map(({ up_to_bytes: most }, place) => {
  const before = place === 0 ? null : classes[place - 1].up_to_bytes;
  return most === null ? `more than ${bytes(before)}` : `up to ${bytes(most)}`;
});

/** Draws the difference of each class with its interval. */
export function forest(drawing, classes) {
  const sizes = sizesOf(classes);
  const shown = classes.map((one, place) => ({ size: sizes[place], percent: one.difference.completion_ms?.percent ?? null })).filter(({ percent }) => percent !== null);
  if (shown.length === 0) {
    drawing.replaceChildren(h("p", { class: "none" }, "No size class has five comparable transfers in both arms yet."));
    return;
  }
  const most = round(Math.max(...shown.flatMap(({ percent }) => percent.map(Math.abs))));
  const x = (value) => 150 + 225 * (1 + Math.max(-1, Math.min(1, value / (most * 1.05))));
  const height = shown.length * LINE + 26;
  const words = shown.map(({ size, percent }) => `${size}: ${change(percent[0])}, between ${change(percent[1])} and ${change(percent[2])}`).join("; ");
  const ticks = [-most, -most / 2, 0, most / 2, most].map((value) => [
    svg("line", { x1: x(value), x2: x(value), y1: 4, y2: height - 22, class: value === 0 ? "zero" : "grid" }),
    svg("text", { x: x(value), y: height - 6, "text-anchor": "middle" }, change(Math.round(value))),
  ]);
  const lines = shown.map(({ size, percent: [mean, low, high] }, place) => {
    const y = place * LINE + 20;
    const sure = high < 0 ? "faster" : low > 0 ? "slower" : "open";
    return svg("g", { class: sure },
      svg("text", { x: 140, y: y + 4, "text-anchor": "end" }, size),
      svg("line", { x1: x(low), x2: x(high), y1: y, y2: y, class: "span" }),
      svg("circle", { cx: x(mean), cy: y, r: 5 }));
  });
  drawing.replaceChildren(svg("svg", { viewBox: `0 0 620 ${height}`, role: "img", "aria-label": words }, ticks.flat(), lines));
}

export function benefit(failed) {
  const summary = h("p", {}, "");
  const drawing = h("div", { class: "forest" });
  const list = table("Completion times by size of the transfer", [
    "transfers of", ["difference, stratified by size", "n"], ["95 % interval", "n"], ["advised", "n mid"], ["control", "n mid"], ["median, advised", "n wide"], ["median, control", "n wide"], ["retransmitted segments", "n wide"], ["largest host", "wide"],
  ]);
  const element = h("div", { class: "view" }, summary,
    section("Completion time, advised against control (negative = faster)", drawing), section("By size", list.element),
    h("p", { class: "hint" }, "The interval assumes independent transfers; those of one host, or at one time, are not. If it includes zero, there is not enough data yet. A median with an uncertainty above 20 % is not shown."));

  const asking = latest(async (signal) => {
    const { since, classes, hosts, unmeasured, transfers_paused: paused } = await get("/v1/benefit", signal);
    const sizes = sizesOf(classes);
    const all = classes.reduce((sum, one) => sum + one.advised.transfers + one.control.transfers, 0);
    const leftOut = classes.reduce((sum, one) => sum + one.not_compared, 0);
    summary.textContent = all === 0 ? "No host has reported a transfer yet." :
      `${count(all)} transfers of ${count(hosts)} ${hosts === 1 ? "host" : "hosts"} since ${moment(since)}${leftOut > 0 ? `; ${count(leftOut)} in strata with fewer than five in an arm are not compared` : ""}${unmeasured > 0 ? `; ${count(unmeasured)} could not be measured` : ""}${paused > 0 ? `; ${count(paused)} excluded because advice was paused` : ""}.`;
    list.show(classes.map(({ advised, control, difference }, place) => {
      const time = difference.completion_ms;
      const resent = difference.retransmitted_segments;
      const host = Math.max(advised.largest_host_part ?? 0, control.largest_host_part ?? 0);
      return [
        sizes[place], time === null ? "–" : `${change(time.percent?.[0])} (${signed(ms(time.mean), time.mean)})`,
        time === null ? "too few" : `${change(time.percent?.[1])} to ${change(time.percent?.[2])}`,
        count(advised.transfers), count(control.transfers), ms(advised.completion_median_ms), ms(control.completion_median_ms),
        resent === null ? "–" : signed(resent.mean.toFixed(2), resent.mean), host > 0 ? part(host) : "–",
      ];
    }));
    forest(drawing, classes);
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
