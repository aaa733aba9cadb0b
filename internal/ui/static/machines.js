// Machines, as a list: how each stands, why it waits, and when it may start.
import { h, pages, show, table } from "./dom.js";
import { ask, go } from "./app.js";
import { badge, earliest, when } from "./format.js";
import { link, machineLink, onPage, search } from "./filters.js";

export function machines(_, query) {
  const results = h("div", {});
  const filter = search(query, "cluster, machine or node");
  return {
    title: "Machines",
    elements: [h("h1", {}, "Machines"), filter.form, results],
    adopt: filter.adopt,
    refresh: async (q, current) => {
      const { about, data } = await ask("machines", q);
      if (!current()) return undefined;
      show(results, chosen(q), data.machines.length ? table("Machines, those that need somebody first", columns, data.machines) : h("p", {}, "Nothing matches."),
        pages(data, "machine", "machines", (page) => go(onPage(q, page))));
      return about;
    },
  };
}

// chosen names the filters, each of which can be taken away.
function chosen(query) {
  const parts = [...query].filter(([name]) => ["namespace", "cluster", "reason", "state"].includes(name));
  if (!parts.length) return undefined;
  return h("ul", { class: "chips", "aria-label": "Filters" }, parts.map(([name, value]) => {
    const next = new URLSearchParams([...query].filter(([n, v]) => !(n === name && v === value) && n !== "page"));
    return h("li", {}, h("button", { type: "button", "aria-label": `Without ${name} ${value}`, onclick: () => go(next) }, `${name}: ${value || "(none)"} ✕`));
  }));
}

const columns = [
  { title: "Machine", class: "name", of: (m) => [machineLink(m.namespace, m.name), m.node && m.node !== m.name ? h("span", { class: "faint" }, ` ${m.node}`) : ""] },
  { title: "Cluster", of: (m) => link("machines", { namespace: m.namespace, cluster: m.cluster }, h("span", { class: "faint" }, `${m.namespace}/`), m.cluster || "(none)") },
  { title: "Role", of: (m) => [m.role === "ControlPlane" ? "control plane" : "worker", m.version ? h("span", { class: "faint" }, ` ${m.version}`) : ""] },
  { title: "State", of: (m) => [badge(m.state), m.drifted ? h("span", { class: "tag" }, "drifted") : "", m.total ? h("span", { class: "faint" }, ` ${m.done}/${m.total}`) : ""] },
  { title: "Why", class: "text", of: (m) => [m.reason ? h("b", {}, m.reason) : "", m.reason && (m.message || m.step) ? ": " : "", m.message || m.step || ""] },
  { title: "May start", class: "time", of: (m) => [earliest(m.earliest), m.deadline ? h("div", { class: "faint" }, "deadline ", when(m.deadline)) : ""] },
  { title: "Since", class: "time", of: (m) => when(m.since) },
];
