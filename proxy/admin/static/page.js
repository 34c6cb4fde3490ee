// Keeps a page up to date, and applies the filter while the user types. The page works without this script.
//
// Every few seconds the script requests the page again, at the address in the address bar. It parses the reply as a
// separate document, in which no script runs, and changes only what differs in the page that is shown. So only the
// server formats and escapes text. An element with a `data-key` stays in place, and keeps its focus and its selection.

"use strict";

const main = document.querySelector("main");
const button = document.getElementById("live");
const liveStatus = document.getElementById("live-status");
const filter = document.getElementById("filter");
const reducedMotion = window.matchMedia("(prefers-reduced-motion: reduce)");
const period = Number(main.dataset.live) * 1000;
const REPLY_TIMEOUT = 10_000; // Milliseconds until a request without a reply is aborted.
const TYPING_PAUSE = 250; // Milliseconds without a key press after which the filter is applied.
// The pause before the next request is at least this many times as long as the last request took. A page of many groups
// takes the sidecar long, and the sidecar has other work.
const PAUSE_FACTOR = 20;

let live = true;
let timer = 0;
let currentRequest = null;
let reachedAt = new Date();
let requestMilliseconds = 0;

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
    if ("flash" in old.dataset && !reducedMotion.matches) {
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
  let position = old.firstChild;
  const removeAtPosition = () => {
    const next = position.nextSibling;
    position.remove();
    position = next;
  };
  for (const node of [...fresh.childNodes]) {
    const key = keyOf(node);
    const found = key !== undefined ? keyed.get(key) : position && keyOf(position) === undefined ? position : undefined;
    if (found === undefined) {
      old.insertBefore(node, position);
      continue;
    }
    // Remove blanks between rows. A row that is already in its position must not be moved, or it loses its selection.
    while (key !== undefined && position && keyOf(position) === undefined) removeAtPosition();
    if (found === position) position = position.nextSibling;
    else old.insertBefore(found, position);
    patch(found, node);
  }
  while (position) removeAtPosition();
}

function show(html) {
  const fresh = new DOMParser().parseFromString(html, "text/html");
  const focused = document.activeElement;
  document.title = fresh.title;
  patch(main, fresh.querySelector("main"));
  if (document.activeElement !== focused && focused.isConnected) focused.focus({ preventScroll: true });
}

function showStatus(text, lost) {
  liveStatus.classList.toggle("lost", lost);
  if (liveStatus.textContent !== text) liveStatus.textContent = text;
}

function formatTime(at) {
  return at.toISOString().slice(11, 19);
}

async function refresh() {
  clearTimeout(timer);
  if (currentRequest) currentRequest.abort();
  const request = (currentRequest = new AbortController());
  const timeout = setTimeout(() => request.abort(), REPLY_TIMEOUT);
  const sentAt = performance.now();
  let problem = "Not reached";
  try {
    const reply = await fetch(location.href, { cache: "no-store", signal: request.signal });
    problem = `Answered with status ${reply.status}`;
    if (![200, 404].includes(reply.status)) throw new Error(problem);
    const html = await reply.text();
    if (request !== currentRequest) return;
    requestMilliseconds = performance.now() - sentAt;
    show(html);
    reachedAt = new Date();
    showStatus("", false);
  } catch (error) {
    if (request !== currentRequest) return;
    showStatus(`${problem} since ${formatTime(reachedAt)}; trying again`, true);
  } finally {
    clearTimeout(timeout);
  }
  schedule();
}

function schedule() {
  clearTimeout(timer);
  if (live && !document.hidden) timer = setTimeout(refresh, Math.max(period, PAUSE_FACTOR * requestMilliseconds));
}

function setLive(on) {
  live = on;
  button.setAttribute("aria-pressed", String(on));
  if (on) {
    refresh();
  } else {
    clearTimeout(timer);
    showStatus(`Stopped at ${formatTime(reachedAt)}`, false);
  }
}

function applyFilter() {
  const parameters = new URLSearchParams();
  for (const [name, value] of new FormData(filter)) {
    if (value) parameters.set(name, value);
  }
  const query = parameters.toString();
  history.replaceState(null, "", query ? `?${query}` : "./");
  refresh();
}

function setUpFilter() {
  const search = document.getElementById("search");
  let typing = 0;
  filter.addEventListener("input", (event) => {
    clearTimeout(typing);
    typing = setTimeout(applyFilter, event.target.type === "search" ? TYPING_PAUSE : 0);
  });
  filter.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(typing);
    applyFilter();
  });
  document.addEventListener("keydown", (event) => {
    const hasModifier = event.ctrlKey || event.metaKey || event.altKey;
    if (event.key === "/" && !hasModifier && !event.target.closest("input, select, textarea")) {
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
