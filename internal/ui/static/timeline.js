// The next four weeks: when changes may start, what is frozen, and when what waits is expected.
import { h, pages, show, table } from "./dom.js";
import { ask, go } from "./app.js";
import { at, day, length, many, when, zone } from "./format.js";
import { link, onPage, search } from "./filters.js";

const hour = 3600000;

export function timeline(_, query) {
  const results = h("div", {});
  const filter = search(query, "policy, cluster or owner");
  return {
    title: "Timeline",
    elements: [h("h1", {}, "The next four weeks"), filter.form, results],
    adopt: filter.adopt,
    refresh: async (q, current) => {
      const { about, data } = await ask("timeline", q);
      if (!current()) return undefined;
      draw(results, data, q);
      return about;
    },
  };
}

function draw(results, data, query) {
  const span = { from: new Date(data.from).getTime(), until: new Date(data.until).getTime() };
  span.days = daysOf(span);
  const open = [...results.querySelectorAll("details[open]")].map((d) => d.dataset.of);
  const detail = (of, ...children) => h("details", { "data-of": of, open: open.includes(of) }, ...children);
  show(results,
    h("ul", { class: "keys" }, ["Open: changes may start", "Excluded: a freeze", "Expected: from the earliest start to the last done"].map((text) => {
      const [name] = text.split(":");
      return h("li", {}, h("span", { class: `key k-${name}` }), text);
    })),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Timeline. What it shows is listed below, too." },
      h("table", { class: "lanes", role: "table" },
        h("caption", { class: "hidden" }, "Windows, freezes and expected updates"),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, zone()), h("td", {}, days(span)))),
        group("Policies that select machines together", data.together.map((l) => lane(l, span))),
        group("Policies", data.policies.map((l) => lane(l, span))),
        group("Expected updates (estimates)", data.expected.map((e) => expected(e, span))))),
    more(data.moreTogether, "sets of policies"), more(data.moreExpected, "changes"),
    pages(data, "policy", "policies", (page) => go(onPage(query, page))),
    detail("windows", h("summary", {}, "Windows and freezes as a list"), list([...data.together, ...data.policies])),
    detail("expected", h("summary", {}, "Expected updates as a list"), data.expected.length ? table("Expected updates", columns, data.expected) : h("p", {}, "Nothing waits.")));
}

const more = (n, what) => (n ? h("p", {}, `${n} more ${what} are not shown: filter by a name.`) : undefined);

const group = (title, rows) => (rows.length ? h("tbody", {}, h("tr", { class: "group" }, h("th", { colspan: "2", scope: "rowgroup" }, title)), rows) : undefined);

// place puts an element where a time is in the whole.
function place(element, from, until, span) {
  const part = (t) => (100 * (Math.min(Math.max(t, span.from), span.until) - span.from)) / (span.until - span.from);
  element.style.left = `${part(from)}%`;
  element.style.width = `${Math.max(part(until) - part(from), 0.15)}%`;
  return element;
}

// daysOf are when the days begin in the zone that is shown, and what they are. A day may have 23 or 25 hours.
function daysOf(span) {
  const out = [];
  for (let t = span.from, text; t < span.until; t = (Math.floor(t / (hour / 4)) + 1) * (hour / 4)) {
    const d = day(new Date(t));
    if (d.text !== text) out.push({ ...d, at: t });
    text = d.text;
  }
  return out.map((d, i) => ({ ...d, until: out[i + 1]?.at ?? span.until }));
}

function days(span) {
  return h("div", { class: "track days" }, span.days.map((d, i) => {
    const weekly = i > 0 && d.weekday === "Mon";
    return place(h("span", { class: `day ${weekly ? "weekly" : ""}` }, weekly ? h("b", {}, d.text) : ""), d.at, d.until, span);
  }));
}

const weekend = (d) => d.weekday === "Sat" || d.weekday === "Sun";

function track(span, ...children) {
  return h("div", { class: "track", "aria-hidden": "true" },
    span.days.map((d) => place(h("span", { class: `day ${weekend(d) ? "weekend" : ""}` }), d.at, d.until, span)), ...children);
}

function lane(l, span) {
  const opens = l.spans.filter((s) => s.kind === "Open");
  return h("tr", {},
    h("th", { scope: "row" }, l.title, " ", h("span", { class: "faint count" }, many(l.machines, "machine", "machines")), l.problem ? h("span", { class: "bad" }, " can't be read") : ""),
    h("td", {},
      h("span", { class: "hidden" }, l.problem ? `closed: ${l.problem}` : opens.length ? `${opens.length} windows, the first ${between(opens[0])}` : l.more ? "windows are among those that are not shown, if there are any" : "no window"),
      track(span, l.spans.map((s) => place(h("span", { class: `span k-${s.kind}`, title: `${s.kind === "Open" ? "Open" : "Excluded"}: ${between(s)}\n${s.text ?? ""}` }),
        new Date(s.start).getTime(), new Date(s.end).getTime(), span)), l.problem ? h("span", { class: "note bad", title: l.problem }, `closed: ${l.problem}`) : ""), l.more ? h("span", { class: "faint" }, `and ${l.more} more`) : ""));
}

function between(s) {
  return `${s.begun ? "since before " : ""}${at(s.start)} to ${at(s.end)}${s.goes ? " and on" : ""}`;
}

function expected(e, span) {
  const from = e.start && Math.max(new Date(e.start).getTime(), span.from);
  const until = e.end ? new Date(e.end).getTime() : from;
  const title = `${e.start ? "from " + at(e.start) : ""}${e.end ? " to " + at(e.end) : ", nobody knows until when"}`;
  return h("tr", {},
    h("th", { scope: "row" }, link("machines", { namespace: e.namespace, cluster: e.cluster }, h("span", { class: "faint" }, `${e.namespace}/`), e.owner),
      " ", h("span", { class: "faint" }, h("span", { class: "count" }, many(e.machines, "machine", "machines")), `, ${e.causes.join(", ")}`)),
    h("td", {}, h("span", { class: "hidden" }, from ? title : "nobody knows when"),
      track(span, from && from < span.until ? place(h("span", { class: `span k-Expected ${e.end ? "" : "unbounded"}`, title }), from, until, span)
        : h("span", { class: "note" }, from ? `starts ${at(e.start)}` : e.why || "nobody knows when"))));
}

function list(lanes) {
  const rows = lanes.flatMap((l) => l.spans.map((s) => ({ ...s, title: l.title })));
  if (!rows.length) return h("p", {}, "There are none.");
  return table("Windows and freezes", [
    { title: "Policy", class: "name", of: (r) => r.title },
    { title: "What", of: (r) => (r.kind === "Open" ? "open" : "excluded") },
    { title: "From", class: "time", of: (r) => `${r.begun ? "before " : ""}${at(r.start)}` },
    { title: "Until", class: "time", of: (r) => `${r.goes ? "after " : ""}${at(r.end)}` },
    { title: "Length", of: (r) => (r.begun || r.goes ? "" : length(new Date(r.end) - new Date(r.start))) },
    { title: "By", class: "text", of: (r) => r.text ?? "" },
  ], rows);
}

const columns = [
  { title: "Owner", class: "name", of: (e) => [h("span", { class: "faint" }, `${e.namespace}/${e.cluster} `), `${e.kind}/${e.owner}`] },
  { title: "Machines", of: (e) => String(e.machines) },
  { title: "What becomes of them", of: (e) => e.causes.join(", ") },
  { title: "May start", class: "time", of: (e) => when(e.start) },
  { title: "Last done", class: "time", of: (e) => when(e.end) },
  { title: "Why", class: "text", of: (e) => e.why ?? "" },
];
