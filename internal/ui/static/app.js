// The page: which view is shown, what it asks, and when it asks again.
import { h, show } from "./dom.js";
import { at, local, shown } from "./format.js";
import { fleet } from "./fleet.js";
import { machines } from "./machines.js";
import { timeline } from "./timeline.js";
import { policies } from "./policies.js";
import { update } from "./update.js";

const views = { "": fleet, machines, timeline, policies, update };
const byId = (id) => document.getElementById(id);

let view; // what is shown: {path, query, refresh}
let asking = 0;

// address reads what is behind the # of the URL: /view/more?query.
function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").map(decodeURIComponent), query: new URLSearchParams(query) };
}

// go changes the query of the view. Without push, what was before can't be gone back to.
export function go(query, push = true) {
  const { path } = address();
  const text = query.toString();
  const to = `#/${path.map(encodeURIComponent).join("/")}${text ? "?" + text : ""}`;
  if (to === location.hash) return;
  history[push ? "pushState" : "replaceState"](null, "", to);
  if (view) view.query = query;
  refresh();
}

export async function ask(what, query) {
  const text = query?.toString();
  const response = await fetch(`api/${what}${text ? "?" + text : ""}`, { cache: "no-store", credentials: "same-origin" });
  if (response.status === 401 && response.headers.get("WWW-Authenticate")) location.assign("login"); // of a server that many share
  const body = await response.json().catch(() => ({ error: `The server says ${response.status}: you may not see this, or it can't be asked.` }));
  if (!response.ok) throw new Error(body.error ?? response.statusText);
  shown.now = new Date(body.about.now).getTime();
  return body;
}

async function refresh() {
  const mine = ++asking;
  const now = view;
  try {
    const about = await now.refresh(now.query, () => mine === asking);
    if (!about || mine !== asking) return;
    tell(about);
    byId("live").classList.remove("lost");
  } catch (e) {
    if (mine !== asking) return;
    show(byId("problems"), h("p", {}, `${e.message} What is shown may be old.`));
    byId("main").setAttribute("aria-busy", "false");
  }
}

// tell says of when the answer is, and what it lacks.
function tell(about) {
  const problems = about.problems.map((p) => h("p", {}, p));
  const box = byId("problems");
  if (box.textContent !== about.problems.join("")) show(box, problems);
  const loading = about.loading.length ? `Still reading: ${about.loading.join(", ")}. What is shown is not all.` : "";
  if (byId("loading").textContent !== loading) byId("loading").textContent = loading;
  byId("asof").textContent = `As of ${at(about.now, { seconds: true })}, ${about.namespace ? "namespace " + about.namespace : "all namespaces"}. This page only reads.`;
  byId("main").setAttribute("aria-busy", about.loading.length ? "true" : "false");
}

function route() {
  const { path, query } = address();
  const make = views[path[0]] ?? fleet;
  const same = view && view.path === path.join("/");
  if (same) {
    view.query = query;
    view.adopt?.(query);
  } else {
    const main = byId("main");
    const made = make(path.slice(1), query);
    view = { path: path.join("/"), query, refresh: made.refresh, adopt: made.adopt };
    show(main, made.elements);
    document.title = `${made.title} – refit`;
    if (document.body.dataset.ready) main.focus({ preventScroll: true });
    document.body.dataset.ready = "true";
    scrollTo(0, 0);
  }
  for (const a of document.querySelectorAll("nav[aria-label=Views] a")) {
    const here = a.getAttribute("href").replace(/^#\/?/, "") === path[0];
    if (here) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  refresh();
}

// News: the server says when something has changed. Where it does not, the page asks every half minute. Nothing is asked while nobody looks.
let news;
let poll;
function listen() {
  stop();
  if (document.hidden) return;
  news = new EventSource("api/events");
  const live = byId("live");
  let lost;
  news.onopen = () => { clearTimeout(lost); live.textContent = "live"; live.className = "live"; };
  news.onmessage = () => refresh();
  news.onerror = () => { // it may come again by itself, as one does that ends each minute
    clearTimeout(lost);
    lost = setTimeout(() => {
      live.textContent = "not live: asks every 30 s";
      live.className = "live lost";
    }, news?.readyState === EventSource.CLOSED ? 0 : 5000);
    if (news?.readyState === EventSource.CLOSED) { news = undefined; }
  };
  poll = setInterval(() => {
    if (!news) listen();
    refresh();
  }, 30000);
}
function stop() {
  news?.close();
  news = undefined;
  clearInterval(poll);
}

function zones() {
  const select = byId("zone");
  const all = local === "UTC" ? ["UTC"] : [local, "UTC"];
  select.append(...all.map((z) => h("option", { value: z }, z)));
  let kept;
  try { kept = localStorage.getItem("zone"); } catch { /* nothing is kept */ }
  if (all.includes(kept)) select.value = kept;
  shown.zone = select.value;
  select.addEventListener("change", () => {
    shown.zone = select.value;
    try { localStorage.setItem("zone", select.value); } catch { /* nothing is kept */ }
    refresh();
  });
}

zones();
addEventListener("hashchange", (e) => {
  if (location.hash === "#main") { history.replaceState(null, "", e.oldURL); byId("main").focus(); return; } // the skip link
  route();
});
document.addEventListener("visibilitychange", () => { if (document.hidden) stop(); else { listen(); refresh(); } });
route();
listen();
