// Charts over time by uPlot, each with a sentence that says the same.

import { h, say } from "/dashboard/dom.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/**
 * A figure with a chart. `series` are { label, colour, points, width }: `colour` the name of a variable of the style, `points` true for
 * points alone, `bare` without a filling and across what is missing but with `gaps`. `unit(value)` writes a value. The first of `data` is time in seconds.
 */
export function chart(title, series, unit, { height = 180 } = {}) {
  const frame = h("div", { class: "plot", role: "img", "aria-label": title });
  const words = h("p", { class: "words" }, "");
  const element = h("figure", {}, h("figcaption", {}, title), frame, words);
  let plot = null;
  let data = [[], ...series.map(() => [])];

  const make = () => {
    plot?.destroy();
    const line = { stroke: colour("--faint"), width: 1 };
    const axis = { stroke: colour("--quiet"), grid: line, ticks: line, font: "12px system-ui, sans-serif" };
    plot = new uPlot({
      width: Math.max(frame.clientWidth, 100),
      height,
      cursor: { y: false, drag: { x: false, y: false } },
      legend: { show: series.length > 1, live: false },
      scales: { y: { range: (_, least, most) => [Math.min(0, least ?? 0), (most ?? 0) > 0 ? most * 1.1 : 1] } },
      axes: [
        { ...axis, space: 70, values: [[86_400, "{D} {MMM}", null, null, null, null, null, null, 1], [60, "{HH}:{mm}", null, null, "\n{D} {MMM}", null, null, null, 1], [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]] },
        { ...axis, size: 78, space: 34, values: (_, values) => values.map(unit) },
      ],
      series: [
        {},
        ...series.map((one) => ({
          label: one.label,
          stroke: colour(one.colour),
          fill: one.points || one.bare ? undefined : `${colour(one.colour)}22`,
          width: one.points ? 0 : 2,
          paths: one.points ? () => null : undefined,
          points: { show: one.points === true || one.dots === true, size: one.points ? 7 : 5, fill: colour(one.colour) },
          spanGaps: one.bare === true && !one.gaps,
          dash: one.gaps ? [4, 4] : undefined,
        })),
      ],
    }, data, frame);
    hideEmpty();
  };
  /** A line without values is not in the legend; one alone is no choice. */
  function hideEmpty() {
    if (series.length < 2) return;
    const known = data.slice(1).map((values) => values.some((value) => value !== null));
    for (const [place, has] of known.entries()) if (plot !== null && plot.series[place + 1].show !== has) plot.setSeries(place + 1, { show: has });
  }
  const resize = new ResizeObserver(() => {
    if (plot === null) make();
    else if (frame.clientWidth > 0) plot.setSize({ width: frame.clientWidth, height });
  });
  resize.observe(frame);
  dark.addEventListener("change", make);

  return {
    element,
    /** Shows data, and the sentence that says it. */
    show(next, sentence) {
      data = next;
      plot?.setData(data);
      hideEmpty();
      say(words, sentence);
      frame.setAttribute("aria-label", `${title}. ${sentence}`);
    },
    end() {
      resize.disconnect();
      dark.removeEventListener("change", make);
      plot?.destroy();
    },
  };
}

/** The least, most and last of values that are there. */
export function extremes(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (known.length === 0) return null;
  return { least: Math.min(...known), most: Math.max(...known), last: known.at(-1) };
}
