// One machine's update: how it stands, its steps, and what the node said.
import { h, show, table } from "./dom.js";
import { ask } from "./app.js";
import { at, badge, earliest, when } from "./format.js";
import { link } from "./filters.js";

export function update([namespace = "", name = ""]) {
  const results = h("div", {});
  const query = new URLSearchParams({ namespace, name });
  return {
    title: name,
    elements: [h("h1", {}, h("span", { class: "faint" }, `${namespace}/`), name), results],
    refresh: async (_, current) => {
      const { about, data } = await ask("update", query);
      if (!current()) return undefined;
      draw(results, data);
      return about;
    },
  };
}

function draw(results, d) {
  const m = d.machine;
  const facts = [
    ["Cluster", link("machines", { namespace: m.namespace, cluster: m.cluster }, m.cluster || "(none)")],
    ["Role", m.role === "ControlPlane" ? "control plane" : "worker"],
    ["Node", [m.node || "–", d.address ? h("span", { class: "faint" }, ` ${d.address}`) : ""]],
    ["Kubernetes", m.version || "–"],
    m.earliest && ["May start", earliest(m.earliest)],
    m.deadline && ["Deadline", when(m.deadline)],
    d.policies.length > 0 && ["Let start by", d.policies.join(", ")],
    d.attempts > 0 && ["Attempts", [String(d.attempts), d.instance ? h("span", { class: "faint" }, ` last by ${d.instance}`) : ""]],
    d.digest && ["Digest", h("code", {}, d.digest)],
  ].filter(Boolean);
  show(results,
    h("p", { class: "lead" }, badge(m.state), m.reason ? ` (${m.reason})` : "", m.drifted ? h("span", { class: "tag" }, "drifted") : "", m.since ? [" since ", when(m.since)] : ""),
    m.total > 0 && m.state !== "Succeeded" ? h("p", {}, h("progress", { max: m.total, value: m.done, "aria-label": "Steps on the node" }), ` ${m.done} of ${m.total} steps`, m.step ? `: ${m.step}` : "") : undefined,
    m.message ? h("p", { class: "message" }, m.message) : undefined,
    h("dl", { class: "facts" }, facts.map(([k, v]) => h("div", {}, h("dt", {}, k), h("dd", {}, v)))),
    d.found ? undefined : h("p", { class: "note" }, "refit was not asked to update this machine."),
    lines("What keeps pods", d.blocked),
    section("Steps", d.steps.length ? table("What has happened, in order", steps, d.steps) : h("p", {}, "Nothing has happened yet.")),
    d.steps.some((s) => s.seen) ? h("p", { class: "faint" }, "◦ was seen by this page's server while it ran. refit keeps how things are, and not all that was.") : undefined,
    lines("What it will take, by the node's plan", ["Succeeded", "Due", "MayWait"].includes(m.state) ? [] : d.planned),
    d.changes.length ? section("What the node changed", table("Changes on the node", changes, d.changes)) : undefined,
    lines("What was done so that it takes effect", d.actions),
    lines("What the node said besides", d.notes),
    section("Events", d.eventsProblem ? h("p", { class: "bad" }, d.eventsProblem) : d.events.length ? table("Events, the latest first", events, d.events) : h("p", {}, "There are none. The API server keeps them for an hour.")),
    d.conditions.length ? section("Conditions", table("Conditions", conditions, d.conditions)) : undefined);
}

const section = (title, ...children) => h("section", {}, h("h2", {}, title), ...children);

const lines = (title, all) => (all?.length ? section(title, h("ul", {}, all.map((text) => h("li", { class: "message" }, text)))) : undefined);

const instant = (iso) => h("time", { datetime: iso }, at(iso, { seconds: true }));

const steps = [
  { title: "When", class: "time", of: (s) => instant(s.at) },
  { title: "What", of: (s) => `${s.seen ? "◦ " : ""}${s.what}` },
  { title: "More", class: "text", of: (s) => s.text ?? "" },
];
const changes = [
  { title: "What", class: "name", of: (c) => `${c.kind} ${c.name ?? ""}` },
  { title: "Operation", of: (c) => c.operation },
  { title: "Remark", class: "text", of: (c) => (c.conflict ? "somebody had changed it on the node, too; their copy is kept there" : "") },
];
const events = [
  { title: "When", class: "time", of: (e) => instant(e.at) },
  { title: "Reason", of: (e) => `${e.warning ? "⚠ " : ""}${e.reason}${e.times > 1 ? ` ×${e.times}` : ""}` },
  { title: "Note", class: "text", of: (e) => e.note },
];
const conditions = [
  { title: "Type", class: "name", of: (c) => c.type },
  { title: "Status", of: (c) => c.status },
  { title: "Reason", of: (c) => c.reason },
  { title: "Message", class: "text", of: (c) => c.message ?? "" },
  { title: "Since", class: "time", of: (c) => instant(c.at) },
];
