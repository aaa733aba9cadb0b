import { h } from "./dom.js";
import { go } from "./app.js";

// search is the field that filters by a part of a name.
export function search(query, what) {
  let later;
  const input = h("input", {
    type: "search", name: "q", value: query.get("q") ?? "", placeholder: what, "aria-label": `Filter by ${what}`, autocomplete: "off", spellcheck: "false",
    oninput: () => { clearTimeout(later); later = setTimeout(apply, 250); },
  });
  const apply = () => {
    const next = new URLSearchParams(location.hash.split("?")[1] ?? "");
    if (input.value.trim()) next.set("q", input.value.trim());
    else next.delete("q");
    next.delete("page");
    go(next, false);
  };
  const form = h("form", { role: "search", class: "filter", onsubmit: (e) => { e.preventDefault(); clearTimeout(later); apply(); } }, input);
  return { form, adopt: (q) => { if (document.activeElement !== input) input.value = q.get("q") ?? ""; } };
}

// toggled returns a query with a value of a filter that it had not, or without one that it had.
export function toggled(query, name, value) {
  const next = new URLSearchParams(query);
  const all = next.getAll(name);
  next.delete(name);
  next.delete("page");
  for (const one of all) if (one !== value) next.append(name, one);
  if (!all.includes(value)) next.append(name, value);
  return next;
}

export function onPage(query, page) {
  const next = new URLSearchParams(query);
  next.set("page", page);
  return next;
}

// link leads to a view with a query.
export function link(view, query, ...children) {
  const text = new URLSearchParams(query).toString();
  return h("a", { href: `#/${view}${text ? "?" + text : ""}`, "data-key": `${view}?${text}` }, ...children);
}

export const machineLink = (namespace, name, ...children) =>
  h("a", { href: `#/update/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`, "data-key": `m/${namespace}/${name}` }, ...(children.length ? children : [name]));
