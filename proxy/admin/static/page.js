// Keeps a page live, and the filter quick. The page works without it.
//
// A page is asked for anew every few seconds, as it stands in the address bar, and what differs is put in place of what
// was there. So there is one voice only that words and escapes, the server's; what it sends is parsed as a document of
// its own, in which nothing runs, and a row keeps its focus as long as its key is there.

"use strict";

const main = document.querySelector("main");
const button = document.getElementById("live");
const told = document.getElementById("live-status");
const filter = document.getElementById("filter");
const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
const period = Number(main.dataset.live) * 1000;
const PATIENCE = 10_000; // Milliseconds until an answer is not waited for any longer.
const TYPING = 250; // Milliseconds of quiet after which a filter is applied.
const SHARE = 20; // What an answer took, so many times is waited before the next question: the sidecar has other work.

let live = true;
let timer = 0;
let asking = null;
let reachedAt = new Date();
let took = 0;

function keyOf(node) {
  return node.dataset ? node.dataset.key : undefined;
}

function patch(old, fresh) {
  if (old.isEqualNode(fresh) || (old.dataset && "still" in old.dataset)) return;
  if (old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
  } else if (old.nodeType !== Node.ELEMENT_NODE) {
    old.data = fresh.data;
  } else {
    if ("flash" in old.dataset && !calm.matches) {
      old.animate([{ backgroundColor: "var(--flash)" }, {}], 1500);
    }
    patchAttributes(old, fresh);
    patchChildren(old, fresh);
  }
}

function patchAttributes(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

function patchChildren(old, fresh) {
  const keyed = new Map();
  const wanted = new Set([...fresh.children].map(keyOf));
  for (const child of [...old.children]) {
    if (!wanted.has(keyOf(child))) child.remove();
    else if (keyOf(child) !== undefined) keyed.set(keyOf(child), child);
  }
  let place = old.firstChild;
  const drop = () => {
    const next = place.nextSibling;
    place.remove();
    place = next;
  };
  for (const node of [...fresh.childNodes]) {
    const key = keyOf(node);
    const found = key !== undefined ? keyed.get(key) : place && keyOf(place) === undefined ? place : undefined;
    if (found === undefined) {
      old.insertBefore(node, place);
      continue;
    }
    // Blanks that stood between rows: a row that has its place already must not be moved, or its selection is lost.
    while (key !== undefined && place && keyOf(place) === undefined) drop();
    if (found === place) place = place.nextSibling;
    else old.insertBefore(found, place);
    patch(found, node);
  }
  while (place) drop();
}

function show(html) {
  const fresh = new DOMParser().parseFromString(html, "text/html");
  const focused = document.activeElement;
  document.title = fresh.title;
  patch(main, fresh.querySelector("main"));
  if (document.activeElement !== focused && focused.isConnected) focused.focus({ preventScroll: true });
}

function tell(text, lost) {
  told.classList.toggle("lost", lost);
  if (told.textContent !== text) told.textContent = text;
}

function clock(at) {
  return at.toISOString().slice(11, 19);
}

async function refresh() {
  clearTimeout(timer);
  if (asking) asking.abort();
  const mine = (asking = new AbortController());
  const patience = setTimeout(() => mine.abort(), PATIENCE);
  const began = performance.now();
  let trouble = "Not reached";
  try {
    const answer = await fetch(location.href, { cache: "no-store", signal: mine.signal });
    trouble = `Answered with status ${answer.status}`;
    if (![200, 404].includes(answer.status)) throw new Error(trouble);
    const html = await answer.text();
    if (mine !== asking) return;
    took = performance.now() - began;
    show(html);
    reachedAt = new Date();
    tell("", false);
  } catch (error) {
    if (mine !== asking) return;
    tell(`${trouble} since ${clock(reachedAt)}; trying again`, true);
  } finally {
    clearTimeout(patience);
  }
  schedule();
}

function schedule() {
  clearTimeout(timer);
  if (live && !document.hidden) timer = setTimeout(refresh, Math.max(period, SHARE * took));
}

function setLive(on) {
  live = on;
  button.setAttribute("aria-pressed", String(on));
  if (on) {
    refresh();
  } else {
    clearTimeout(timer);
    tell(`Stopped at ${clock(reachedAt)}`, false);
  }
}

function applyFilter() {
  const asked = new URLSearchParams();
  for (const [name, value] of new FormData(filter)) {
    if (value) asked.set(name, value);
  }
  const query = asked.toString();
  history.replaceState(null, "", query ? `?${query}` : "./");
  refresh();
}

function setUpFilter() {
  const search = document.getElementById("search");
  let typing = 0;
  filter.addEventListener("input", (event) => {
    clearTimeout(typing);
    typing = setTimeout(applyFilter, event.target.type === "search" ? TYPING : 0);
  });
  filter.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(typing);
    applyFilter();
  });
  document.addEventListener("keydown", (event) => {
    const elsewhere = event.ctrlKey || event.metaKey || event.altKey;
    if (event.key === "/" && !elsewhere && !event.target.closest("input, select, textarea")) {
      event.preventDefault();
      search.focus();
      search.select();
    }
  });
}

if (filter) setUpFilter();
button.hidden = false;
button.addEventListener("click", () => setLive(!live));
document.addEventListener("visibilitychange", () => (document.hidden || !live ? clearTimeout(timer) : refresh()));
schedule();
