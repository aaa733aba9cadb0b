// Elements are made of names, attributes and texts. Texts are never markup.

export function h(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((c) => c !== undefined && c !== null && c !== false && c !== ""));
  return element;
}

// show replaces what is in an element, and leaves the focus on what has the same data-key.
export function show(element, ...children) {
  const active = document.activeElement;
  const key = element.contains(active) ? active.closest("[data-key]")?.dataset.key : undefined;
  element.replaceChildren(...children.flat(Infinity).filter(Boolean));
  if (key !== undefined) {
    for (const one of element.querySelectorAll("[data-key]")) {
      if (one.dataset.key === key) {
        one.focus({ preventScroll: true });
        break;
      }
    }
  }
}

// table makes a real table. A column is {title, class, of}, and of makes what is in the cell of a row. The first column heads its row. Roles are said,
// since narrow screens show rows as blocks.
export function table(caption, columns, rows, attributes = {}) {
  return h("table", { role: "table", ...attributes },
    h("caption", {}, caption),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map((c) => h("th", { scope: "col", role: "columnheader", class: c.class }, c.title)))),
    h("tbody", { role: "rowgroup" }, rows.map((row) => h("tr", { role: "row" }, columns.map((c, i) => i === 0
      ? h("th", { scope: "row", role: "rowheader", class: c.class }, c.of(row))
      : h("td", { role: "cell", class: c.class, "data-title": c.title }, c.of(row)))))));
}

// pages leads to the other parts of a list.
export function pages(paged, one, more, go) {
  const what = `${paged.total.toLocaleString("en-GB")} ${paged.total === 1 ? one : more}`;
  if (paged.pages <= 1) return h("p", { class: "pages" }, what);
  const to = (page, text) => h("button", { type: "button", disabled: page < 1 || page > paged.pages, "data-key": "page-" + text, onclick: () => go(page) }, text);
  return h("nav", { class: "pages", "aria-label": "Pages" },
    to(paged.page - 1, "Previous"), h("span", {}, `page ${paged.page} of ${paged.pages}, ${what}`), to(paged.page + 1, "Next"));
}
