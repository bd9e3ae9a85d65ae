// Making and renewing elements. Text is always set as text: nothing that was measured or reported by a host becomes markup.

/** An element with attributes (functions are listeners of that event) and children. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same in SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets the text of an element where it differs. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Sets or removes an attribute where it differs. */
export function mark(element, name, value) {
  if (value === null || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** Makes the children of an element these, in this order; those that stay are not touched, so that focus stays. */
export function arrange(parent, wanted) {
  const keep = new Set(wanted);
  for (const child of [...parent.children]) if (!keep.has(child)) child.remove();
  let place = parent.firstElementChild;
  for (const child of wanted) {
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
}

/** A table with a caption for all, and headers; `columns` are names or [name, class]. Cells are texts or elements. */
export function table(caption, columns, rows = [], empty = "Nothing yet.") {
  const head = columns.map((column) => {
    const [name, kind] = Array.isArray(column) ? column : [column, null];
    return h("th", { scope: "col", class: kind }, name);
  });
  const body = h("tbody");
  const element = h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, head)), body);
  const show = (rows) => {
    const made = rows.map((cells) =>
      h("tr", {}, cells.map((cell, place) => {
        const kind = Array.isArray(columns[place]) ? columns[place][1] : null;
        return h(place === 0 ? "th" : "td", { class: kind, scope: place === 0 ? "row" : null }, cell ?? "–");
      })));
    const none = h("tr", {}, h("td", { colspan: columns.length, class: "none" }, empty));
    // The focus stays on a link that is still there.
    const focus = body.contains(document.activeElement) ? document.activeElement.hash : null;
    body.replaceChildren(...(made.length > 0 ? made : [none]));
    if (focus) [...body.querySelectorAll("a")].find((link) => link.hash === focus)?.focus({ preventScroll: true });
  };
  show(rows);
  return { element: h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, element), show };
}

/** A figure with a name: value and a note below. */
export function card(name) {
  const value = h("dd", { class: "value" }, "–");
  const note = h("dd", { class: "note" }, "");
  const element = h("div", { class: "card" }, h("dt", {}, name), value, note);
  return {
    element,
    show(text, about = "", level = null) {
      say(value, text);
      say(note, about);
      mark(element, "data-level", level);
    },
  };
}

/** A section with a heading. */
export function section(title, ...children) {
  return h("section", { "aria-label": title }, h("h2", {}, title), ...children);
}
