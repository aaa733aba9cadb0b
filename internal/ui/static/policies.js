// The policies: what each says now, and whom it selects.
import { h, pages, show, table } from "./dom.js";
import { ask, go } from "./app.js";
import { many, when } from "./format.js";
import { link, onPage, search } from "./filters.js";

export function policies(_, query) {
  const results = h("div", {});
  const filter = search(query, "policy");
  return {
    title: "Policies",
    elements: [h("h1", {}, "Policies"), filter.form, results],
    adopt: filter.adopt,
    refresh: async (q, current) => {
      const { about, data } = await ask("policies", q);
      if (!current()) return undefined;
      show(results,
        data.unselected === undefined ? h("p", { class: "note" }, "How many machines are selected by no policy is not known: not all that tells it has been read.") : undefined,
        data.unselected ? h("p", { class: "note" }, `${many(data.unselected, "machine is", "machines are")} selected by no policy: changes of them start at any time.`) : undefined,
        data.policies.length ? table("Policies, those of the platform first", columns, data.policies) : h("p", {}, "There is no policy here."),
        pages(data, "policy", "policies", (page) => go(onPage(q, page))));
      return about;
    },
  };
}

const items = (all) => (all.length ? h("ul", { class: "plain" }, all.map((text) => h("li", {}, text))) : "–");

const columns = [
  { title: "Policy", class: "name whole", of: (p) => [p.platform ? h("span", { class: "tag" }, "platform") : h("span", { class: "faint" }, `${p.namespace}/`), " ", p.name, h("div", { class: "faint" }, `${p.strategy}, ${p.zone}`)] },
  {
    title: "Now", class: "text", of: (p) => [
      h("span", { class: `door ${p.problem ? "bad" : p.open ? "open" : "closed"}` }, p.problem ? "✕ can't be read" : p.open ? "● open" : "○ closed"),
      p.next ? h("div", {}, p.open ? "until " : "opens ", when(p.next)) : "",
      h("div", { class: "faint" }, p.problem || p.now),
      (p.gates ?? []).map((g) => h("div", {}, `gate ${g.name}${g.cluster ? " of " + g.cluster : ""}: ${g.state}${g.message ? ": " + g.message : ""}`)),
    ],
  },
  { title: "Selects", class: "text", of: (p) => items(p.selects) },
  {
    title: "Machines", class: "text", of: (p) => [
      many(p.machines, "machine", "machines"), p.pending ? `, ${p.pending} of them wait` : "",
      h("ul", { class: "chips" }, p.clusters.map((c) => h("li", {}, link("machines", { namespace: c.namespace, cluster: c.name }, `${c.namespace}/${c.name} `, h("b", {}, c.machines.toLocaleString("en-GB"))))),
        p.more ? h("li", {}, `and ${p.more} more`) : ""),
    ],
  },
  { title: "Permits", class: "text", of: (p) => items(p.permits) },
  { title: "Excludes", class: "text", of: (p) => items(p.excludes) },
  { title: "Limits", class: "text", of: (p) => items(p.limits) },
];
