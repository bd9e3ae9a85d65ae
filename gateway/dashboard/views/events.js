// What happened: withdrawals, retreats, limits that were reached, parts and agents that came and went.

import { get, latest, prefixPath } from "/dashboard/api.js";
import { h, say } from "/dashboard/dom.js";
import { count, moment, sentence } from "/dashboard/format.js";
import { listen } from "/dashboard/live.js";

/** Entries shown. */
const SHOWN = 500;

const KINDS = [
  ["withdrawal", "withdrawals"], ["retreat", "retreats"], ["limit", "limits reached"], ["part", "parts"], ["agent", "agents"],
];
/** What was chosen stays while the page is open. */
const hidden = new Set();

/** Entries in a row that differ in time alone as one, with their count, and since when. */
function folded(entries) {
  const lines = [];
  for (const entry of entries) {
    const last = lines.at(-1);
    const same = last !== undefined && ["kind", "what", "subject"].every((name) => last.entry[name] === entry[name]);
    if (same) lines.pop();
    const since = same ? last.since : entry.at;
    const times = entry.count + (same ? last.entry.count : 0);
    lines.push({ key: `${moment(since)} ${since} ${entry.sequence}`, since, entry: { ...entry, count: times } });
  }
  return lines;
}

export function events(failed) {
  const body = h("tbody", { role: "log", "aria-label": "Events, newest first" });
  const number = h("p", { class: "found", role: "status" }, "");
  const table = h("table", {}, h("caption", { class: "unseen" }, "Events, newest first"),
    h("thead", {}, h("tr", {}, ["time", "what", "about"].map((name) => h("th", { scope: "col" }, name)))), body);
  const choices = KINDS.map(([kind, name]) => {
    const box = h("input", { type: "checkbox", checked: !hidden.has(kind), change() {
      if (box.checked) hidden.delete(kind);
      else hidden.add(kind);
      show();
    } });
    return h("label", {}, box, ` ${name}`);
  });
  const element = h("div", { class: "view" },
    h("fieldset", { class: "tools" }, h("legend", {}, "Show"), choices, number),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Events" }, table));
  let entries = [];
  /** Changes from the stream since the last request: the answer may be older. */
  let heard = [];
  const made = new Map();

  function line(entry, since) {
    const time = (at) => h("time", { datetime: at }, moment(at));
    const subject = ["withdrawal", "retreat"].includes(entry.kind)
      ? h("a", { href: prefixPath("#/networks/", entry.subject) }, entry.subject) : entry.subject || "–";
    return h("tr", { class: entry.kind }, h("td", {}, since === entry.at ? time(since) : [time(since), " – ", time(entry.at)]), h("td", {}, sentence(entry)), h("td", {}, subject));
  }

  function show() {
    const wanted = folded(entries.filter(({ kind }) => !hidden.has(kind))).reverse();
    const keys = new Set(wanted.map(({ key }) => key));
    for (const known of [...made.keys()]) if (!keys.has(known)) made.delete(known);
    for (const { key, entry, since } of wanted) if (!made.has(key)) made.set(key, line(entry, since));
    body.replaceChildren(...wanted.map(({ key }) => made.get(key)));
    if (wanted.length === 0) body.append(h("tr", {}, h("td", { colspan: 3, class: "none" }, "No events yet.")));
    say(number, `${count(wanted.length)} shown`);
  }

  const asking = latest(async (signal) => {
    heard = [];
    ({ events: entries } = await get(`/v1/events?limit=${SHOWN}`, signal));
    if (!add(heard)) show();
  }, failed);

  /** Shows entries that are newer than the last one; whether there were any. */
  function add(more) {
    const last = entries.at(-1)?.sequence ?? 0;
    const fresh = more.filter(({ sequence }) => sequence > last);
    if (fresh.length === 0) return false;
    entries = [...entries, ...fresh].slice(-SHOWN);
    show();
    return true;
  }

  asking.run();
  const stop = listen(({ events: more, missing, resync }) => {
    if (resync || missing > 0) asking.run();
    heard = [...heard, ...more].slice(-SHOWN);
    add(more);
  });
  return {
    element,
    end() {
      stop();
      asking.stop();
    },
  };
}
