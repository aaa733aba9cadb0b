// The fleet: a row for each cluster, and a cell for each of its machines.
import { h, pages, show, table } from "./dom.js";
import { ask, go } from "./app.js";
import { badge, earliest, many, mark, when, word } from "./format.js";
import { link, machineLink, onPage, search, toggled } from "./filters.js";

export function fleet(_, query) {
  const results = h("div", {});
  const filter = search(query, "cluster, machine or node");
  return {
    title: "Fleet",
    elements: [h("h1", {}, "Fleet"), filter.form, results],
    adopt: filter.adopt,
    refresh: async (q, current) => {
      const { about, data } = await ask("fleet", q);
      if (!current()) return undefined;
      draw(results, about, data, q);
      return about;
    },
  };
}

function draw(results, about, data, query) {
  const bare = [...query.keys()].length === 0;
  if (!data.machines && !about.loading.length && bare) {
    show(results, h("p", {}, "There are no Machines here that you may see. refit ui shows those of all namespaces, or of one with --namespace."));
    return;
  }
  show(results,
    h("p", { class: "lead" }, `${many(data.machines, "machine", "machines")} in ${many(data.total, "cluster", "clusters")}`),
    bar(data.counts, data.machines, "all"),
    legend(data.counts, query),
    why(data.reasons),
    data.clusters.length ? table("Clusters, those that need somebody first", columns(about.states), data.clusters, { class: "grid" }) : h("p", {}, "Nothing matches."),
    pages(data, "cluster", "clusters", (page) => go(onPage(query, page))));
}

// bar shows how many machines are in which state, as parts of a whole.
export function bar(counts, total, size) {
  const text = counts.map((c) => `${c.machines} ${word(c.state)}`).join(", ") || "no machines";
  return h("div", { class: `bar ${size}`, role: "img", "aria-label": text, title: text }, counts.map((c) => {
    const part = h("span", { class: `s-${c.state}`, "aria-hidden": "true" }, h("span", {}, `${mark(c.state)} ${c.machines.toLocaleString("en-GB")}`));
    part.style.flexGrow = c.machines;
    return part;
  }));
}

function legend(counts, query) {
  const chosen = query.getAll("state");
  const known = new Map(counts.map((c) => [c.state, c.machines]));
  for (const s of chosen) if (!known.has(s)) known.set(s, 0);
  return h("div", { class: "legend", role: "group", "aria-label": "Filter by state" }, [...known].map(([state, n]) => h("button", {
    type: "button", "aria-pressed": String(chosen.includes(state)), "data-key": `state-${state}`, onclick: () => go(toggled(query, "state", state)),
  }, badge(state), " ", h("b", {}, n.toLocaleString("en-GB")))));
}

function why(reasons) {
  if (!reasons.length) return undefined;
  return h("section", { class: "why", "aria-labelledby": "why" }, h("h2", { id: "why" }, "What keeps machines"), h("ul", { class: "chips" },
    reasons.map((r) => h("li", {}, link("machines", { state: r.state, reason: r.reason }, h("b", {}, r.machines.toLocaleString("en-GB")), ` ${r.text}`)))));
}

const columns = (states) => [
  { title: "Cluster", class: "name", of: (c) => link("machines", { namespace: c.namespace, cluster: c.name }, h("span", { class: "faint" }, `${c.namespace}/`), c.name || "(none)") },
  {
    title: "Machines", class: "cells", of: (c) => [
      h("span", { class: "number" }, many(c.machines, "machine", "machines"), c.drifted ? ` (${c.drifted} drifted)` : ""),
      c.cells ? cells(c, states) : c.machines ? bar(c.counts, c.machines, "one") : undefined,
    ],
  },
  { title: "Why", class: "text", of: (c) => c.why ?? "" },
  { title: "May start", class: "time", of: (c) => earliest(c.earliest) },
  { title: "Last done (estimate)", class: "time", of: (c) => when(c.lastDone) },
];

// cells are links, of which one is reached by Tab and the others by arrows.
function cells(cluster, states) {
  return h("ul", { class: "machines", "aria-label": `Machines of ${cluster.name}`, onkeydown: arrows }, cluster.cells.map(([name, place], i) => {
    const state = states[place];
    const a = machineLink(cluster.namespace, name, h("span", { "aria-hidden": "true" }, mark(state)), h("span", { class: "hidden" }, `${name}: ${word(state)}`));
    a.className = `cell s-${state}`;
    a.title = `${name}: ${word(state)}`;
    a.tabIndex = i === 0 ? 0 : -1;
    return h("li", {}, a);
  }));
}

function arrows(e) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
  if (!step) return;
  const all = [...e.currentTarget.querySelectorAll("a")];
  const next = all[all.indexOf(document.activeElement) + step];
  if (!next) return;
  e.preventDefault();
  for (const a of all) a.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}
