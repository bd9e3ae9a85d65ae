// A long list of which only the rows in sight are there: pages come from the gateway as they are scrolled to, so that a million networks
// cost what fifty cost.

import { arrange, h, mark } from "/dashboard/dom.js";
import { latest } from "/dashboard/api.js";

/** Rows asked for above and below those in sight. */
const AROUND = 10;
/** Browsers lay out no more than about 33 million pixels; what lies beyond is reached by searching. */
const MOST_PIXELS = 30_000_000;

/**
 * `load(offset, limit, signal)` gives { rows, total }; `key(row)` its identity; `make()` an element and `renew(element, row)` its content.
 * The table's head is `head`, a row of cells.
 */
export function rows({ caption, head, load, key, make, renew, failed, loaded }) {
  // One cell each: more would make columns of those that a narrow screen leaves out.
  const above = h("tr", { class: "gap", "aria-hidden": "true" }, h("td"));
  const below = h("tr", { class: "gap", "aria-hidden": "true" }, h("td"));
  const body = h("tbody", {}, above, below);
  const table = h("table", { class: "list" }, h("caption", { class: "unseen" }, caption), h("thead", {}, head), body);
  const element = h("div", { class: "list-frame", tabindex: "0", role: "region", "aria-label": caption }, table);
  const made = new Map();
  let height = 36;
  let total = 0;
  let from = 0;
  let asked = null;
  let first = true;

  const range = () => {
    const first = Math.max(0, Math.floor(element.scrollTop / height) - AROUND);
    return [first, Math.ceil(element.clientHeight / height) + 2 * AROUND];
  };
  const asking = latest(async (signal) => {
    const [offset, limit] = range();
    asked = offset;
    const page = await load(offset, limit, signal);
    if (signal.aborted) return;
    total = Math.min(page.total, Math.floor(MOST_PIXELS / height));
    from = offset;
    show(page.rows);
    if (first) performance.mark("shown");
    first = false;
    loaded?.(page.total);
  }, failed);

  function show(found) {
    const wanted = found.map((row, place) => {
      const name = key(row);
      const element = made.get(name) ?? make();
      made.set(name, element);
      renew(element, row);
      mark(element, "aria-rowindex", from + place + 2);
      return element;
    });
    const names = new Set(found.map(key));
    for (const name of [...made.keys()]) if (!names.has(name)) made.delete(name);
    mark(table, "aria-rowcount", total + 1);
    above.firstChild.style.height = `${from * height}px`;
    below.firstChild.style.height = `${Math.max(0, total - from - found.length) * height}px`;
    arrange(body, [above, ...wanted, below]);
    const own = wanted[0]?.offsetHeight;
    if (own > 0 && Math.abs(own - height) > 0.5) {
      height = own;
      queueMicrotask(() => asking.run());
    }
  }

  element.addEventListener("scroll", () => {
    const [first, limit] = range();
    if (asked === null || Math.abs(first - asked) >= AROUND / 2 || limit > made.size + AROUND) asking.run();
  }, { passive: true });
  element.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = event.target.closest("tbody tr");
    if (step === undefined || row === null) return;
    const next = step > 0 ? row.nextElementSibling : row.previousElementSibling;
    const link = next?.querySelector("a");
    if (!link) return;
    event.preventDefault();
    link.focus({ preventScroll: true });
    link.scrollIntoView({ block: "nearest" });
  });

  return {
    element,
    /** Requests the visible rows again. */
    renew: () => asking.run(),
    /** The same from the beginning, in another order or for another search. */
    restart() {
      element.scrollTop = 0;
      return asking.run();
    },
    end: () => asking.stop(),
  };
}
