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

  function line(entry) {
    const subject = ["withdrawal", "retreat"].includes(entry.kind)
      ? h("a", { href: prefixPath("#/networks/", entry.subject) }, entry.subject) : entry.subject || "–";
    return h("tr", { class: entry.kind }, h("td", {}, h("time", { datetime: entry.at }, moment(entry.at))), h("td", {}, sentence(entry)), h("td", {}, subject));
  }

  function show() {
    const wanted = entries.filter(({ kind }) => !hidden.has(kind)).reverse();
    for (const entry of wanted) if (!made.has(entry.sequence)) made.set(entry.sequence, line(entry));
    for (const known of [...made.keys()]) if (entries.length > 0 && known < entries[0].sequence) made.delete(known);
    body.replaceChildren(...wanted.map(({ sequence }) => made.get(sequence)));
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
