// Which networks there are, what share each gets and how far away it is.

import { get, prefixPath } from "/dashboard/api.js";
import { h, mark, say, svg } from "/dashboard/dom.js";
import { age, atLeast, bits, bytes, called, count, marked, ms, part, short, unixS, words } from "/dashboard/format.js";
import { listen } from "/dashboard/live.js";
import { rows } from "/dashboard/rows.js";

/** Shortest time between two looks at the same rows, in milliseconds. */
const AGAIN = 2_000;
/** Pause after a key before it is searched for. */
const PAUSE = 150;

const COLUMNS = [
  { sort: "prefix", name: "Network" },
  { name: "Name", kind: "called" },
  { sort: "wc", name: "Share", kind: "n" },
  { name: "spread, seg", kind: "n wide far" },
  { name: "5 min", kind: "trend wide" },
  { sort: "rtt", name: "RTT", kind: "n" },
  { name: "spread, ms", kind: "n wide far" },
  { name: "5 min", kind: "trend wide" },
  { name: "Out", kind: "n mid rate" },
  { name: "In", kind: "n mid rate" },
  { sort: "saving", name: "Saves", kind: "n mid save" },
  { sort: "loss", name: "Out loss", kind: "n mid rate" },
  { sort: "samples", name: "Samples", kind: "n mid rare" },
  { sort: "confidence", name: "Confidence", kind: "n mid rare" },
  { sort: "age", name: "Age", kind: "n" },
];

/** What the list can be sorted by, on every screen: those without a column of their own, too. */
const SORTS = [
  ["wc", "share"], ["traffic", "traffic, out and in"], ["saving", "time that advice can save"], ["rtt", "RTT"], ["loss", "loss"], ["losses", "losses"],
  ["samples", "samples"], ["confidence", "confidence"], ["age", "age"], ["prefix", "network"],
];

/** What was chosen stays while the page is open. */
const chosen = { sort: "wc", order: "desc", search: "", estimate: "" };

export function networks(failed) {
  const search = h("input", { type: "search", id: "search", placeholder: "address, prefix, name or a part", autocomplete: "off", spellcheck: "false", maxlength: "64" });
  search.value = chosen.search;
  const which = h("select", { id: "which" },
    [["", "all"], ["yes", "with an estimate"], ["no", "without"]].map(([value, name]) => h("option", { value, selected: value === chosen.estimate }, name)));
  const by = h("select", { id: "by", change: () => sortBy(by.value) }, SORTS.map(([value, name]) => h("option", { value }, name)));
  const found = h("p", { class: "found", role: "status" }, "");
  const head = h("tr", {}, COLUMNS.map(header));
  const list = rows({
    caption: "Networks", head, failed, key: (row) => row.prefix, make: line, renew: fill,
    async load(offset, limit, signal) {
      const asked = new URLSearchParams({ offset, limit, sort: chosen.sort, order: chosen.order, trend: "yes" });
      if (chosen.search) asked.set("search", chosen.search);
      if (chosen.estimate) asked.set("estimate", chosen.estimate);
      const page = await get(`/v1/networks?${asked}`, signal);
      // Once shown the column stays, so that none jumps while somebody scrolls.
      if (page.networks.some((one) => named(one) !== null)) list.element.classList.add("named");
      return { rows: page.networks, total: page.total };
    },
    loaded: (total) => say(found, `${count(total)} ${total === 1 ? "network" : "networks"}`),
  });
  const element = h("div", { class: "view tall" },
    h("form", { class: "tools", role: "search", submit: (event) => event.preventDefault() },
      h("label", { for: "search" }, "Search"), search, h("label", {}, "Show ", which), h("label", {}, "Sort by ", by), found),
    list.element);

  function header({ sort, name, kind }) {
    const button = sort === undefined ? name : h("button", {
      type: "button",
      click: () => sortBy(sort),
    }, name);
    return h("th", { scope: "col", class: kind, "data-sort": sort }, button);
  }
  /** A second time turns the order. */
  function sortBy(sort) {
    const turned = chosen.order === "desc" ? "asc" : "desc";
    Object.assign(chosen, { sort, order: chosen.sort === sort ? turned : sort === "prefix" || sort === "age" ? "asc" : "desc" });
    order();
    list.restart();
  }
  function order() {
    by.value = chosen.sort;
    for (const cell of head.children) {
      const own = cell.dataset.sort === chosen.sort;
      mark(cell, "aria-sort", own ? (chosen.order === "asc" ? "ascending" : "descending") : null);
    }
  }

  let pause = null;
  search.addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(() => {
      chosen.search = search.value.trim();
      list.restart();
    }, PAUSE);
  });
  which.addEventListener("change", () => {
    chosen.estimate = which.value;
    list.restart();
  });

  order();
  let revision = null;
  let renewed = 0;
  const stop = listen(({ traffic: now, resync }) => {
    const due = Date.now() - renewed >= AGAIN;
    if (!resync && (now.networks_revision === revision || !due)) return;
    revision = now.networks_revision;
    renewed = Date.now();
    list.renew();
  });
  // Asked for once it is in the page and has a height.
  queueMicrotask(() => list.renew());
  return {
    element,
    end() {
      clearTimeout(pause);
      stop();
      list.end();
    },
  };
}

function line() {
  const cells = COLUMNS.map(({ kind }, place) => h(place === 0 ? "th" : "td", { class: kind, scope: place === 0 ? "row" : null }));
  cells[0].append(h("a", {}));
  for (const place of [4, 7]) cells[place].append(svg("svg", { viewBox: "0 0 60 18", "aria-hidden": "true" }, svg("polyline", {})));
  return h("tr", {}, cells);
}

/** The operator's name for a network, else that of who announces it. */
function named(one) {
  return one.name ?? called(one);
}

function fill(row, one) {
  const cells = row.children;
  const link = cells[0].firstChild;
  say(link, one.prefix);
  const names = [one.name, called(one)].filter(Boolean).join(", ");
  mark(link, "title", names === "" ? one.prefix : `${one.prefix}, ${names}`);
  mark(link, "href", prefixPath("#/networks/", one.prefix));
  say(cells[1], named(one) ?? "");
  mark(cells[1], "title", names || null);
  const { trend } = one;
  const mss = one.mss_bytes ?? 1448;
  say(cells[2], one.wc_segments === null ? words(one.no_estimate) : atLeast(one));
  mark(cells[2], "class", one.wc_segments === null ? "n none" : "n");
  mark(cells[2], "title", one.wc_bytes === null ? one.no_estimate_message : bytes(one.wc_bytes) + marked(one));
  const quartiles = trend?.wc_quartiles_bytes;
  say(cells[3], quartiles ? `${count(quartiles[0] / mss)}–${count(quartiles[1] / mss)}` : "–");
  draw(cells[4], trend, "wc_bytes");
  say(cells[5], ms(one.rtt_mean_ms));
  const range = trend?.rtt_range_ms;
  say(cells[6], range ? `${short(range[0])}–${short(range[1])}` : "–");
  draw(cells[7], trend, "rtt_mean_ms");
  say(cells[8], bits(one.traffic.out.bits_per_s));
  say(cells[9], bits(one.traffic.in.bits_per_s));
  say(cells[10], age(one.saving_s));
  say(cells[11], part(one.traffic.out.loss));
  say(cells[12], count(one.samples));
  say(cells[13], part(one.confidence));
  say(cells[14], one.age_s !== null && one.age_s < 1 ? "now" : age(one.age_s));
}

/** A line of the window from its first step to its last, scaled from zero. */
function draw(cell, trend, field) {
  const points = trend?.points.filter((point) => point[field] !== null) ?? [];
  const line = cell.firstChild.firstChild;
  if (points.length === 0) {
    mark(line, "points", "");
    return;
  }
  const [first, last] = [unixS(trend.points[0].at), unixS(trend.points.at(-1).at)];
  const most = Math.max(...points.map((point) => point[field])) || 1;
  const x = (point) => (last > first ? 1 + (58 * (unixS(point.at) - first)) / (last - first) : 59);
  const y = (point) => 17 - (16 * point[field]) / most;
  const path = points.map((point) => `${x(point).toFixed(1)},${y(point).toFixed(1)}`);
  mark(line, "points", path.length === 1 ? `${path[0]} 59,${path[0].split(",")[1]}` : path.join(" "));
}
