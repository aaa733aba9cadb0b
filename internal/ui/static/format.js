import { h } from "./dom.js";

// The zone in which times are shown, and the instant that counts as now, which is the server's.
export const shown = { zone: undefined, now: 0 };

export const local = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

const formats = new Map(); // by zone: to make one takes long

function parts(date, zone) {
  const out = {};
  if (!formats.has(zone)) {
    formats.set(zone, new Intl.DateTimeFormat("en-GB", {
      timeZone: zone, weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
    }));
  }
  for (const p of formats.get(zone).formatToParts(date)) out[p.type] = p.value;
  return out;
}

export const zone = () => shown.zone ?? local;

// at writes an instant: Sat 3 Oct, 22:00. Of another year it names the year.
export function at(iso, { seconds = false } = {}) {
  const p = parts(new Date(iso), zone());
  const year = p.year === parts(new Date(shown.now), zone()).year ? "" : ` ${p.year}`;
  return `${p.weekday} ${p.day} ${p.month}${year}, ${p.hour}:${p.minute}${seconds ? ":" + p.second : ""}`;
}

export function day(iso) {
  const p = parts(new Date(iso), zone());
  return { weekday: p.weekday, text: `${p.weekday} ${p.day} ${p.month}`, hour: Number(p.hour), minute: Number(p.minute) };
}

// length writes how long something is: 45 s, 12 min, 8 h, 3 d.
export function length(milliseconds) {
  const s = Math.round(Math.abs(milliseconds) / 1000);
  if (s < 90) return `${s} s`;
  if (s < 90 * 60) return `${Math.round(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.round(s / 360) / 10} h`;
  return `${Math.round(s / 8640) / 10} d`;
}

// when writes an instant, and how far it is away.
export function when(iso, nothing = "–") {
  if (!iso) return nothing;
  const away = new Date(iso).getTime() - shown.now;
  const text = Math.abs(away) < 1000 ? "now" : away > 0 ? `in ${length(away)}` : `${length(away)} ago`;
  return h("time", { datetime: iso }, at(iso), " ", h("span", { class: "faint" }, `(${text})`));
}

// earliest writes when something may start. What lies behind us may start now.
export function earliest(iso) {
  if (!iso) return "–";
  return new Date(iso).getTime() <= shown.now ? "now" : when(iso);
}

const marks = {
  Failed: "!", Waiting: "W", Draining: "D", Applying: "A", Verifying: "V", Staging: "S", Pending: "P", Due: "○", MayWait: "~", Succeeded: "✓", None: "·",
};
const words = { Succeeded: "Up to date", None: "Nothing asked for", Due: "Change waits", MayWait: "May wait" };

export const mark = (state) => marks[state] ?? "?";
export const word = (state) => words[state] ?? state;

// badge shows a state by a mark, a colour and a word.
export function badge(state) {
  return h("span", { class: "badge" }, h("span", { class: `mark s-${state}`, "aria-hidden": "true" }, mark(state)), " ", word(state));
}

export const many = (n, one, more) => `${n.toLocaleString("en-GB")} ${n === 1 ? one : more}`;
