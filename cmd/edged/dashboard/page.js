"use strict";

const limit = 100;
let offset = 0;
let wanted = 0; // number of the newest question about tags; older answers are dropped
const $ = (id) => document.getElementById(id);

const seconds = (s) => {
  if (s < 0) return "never";
  if (s < 100) return s.toFixed(1) + " s";
  if (s < 6000) return Math.round(s / 60) + " min";
  return Math.round(s / 3600) + " h";
};

// cell makes one table cell. Text is only ever set as text: names and values come from the plant.
function cell(text, kind) {
  const td = document.createElement("td");
  td.textContent = text;
  td.title = text;
  if (kind) td.className = kind;
  return td;
}

function fill(body, rows) {
  const fresh = rows.map((cells) => {
    const tr = document.createElement("tr");
    tr.append(...cells);
    return tr;
  });
  body.replaceChildren(...fresh);
}

function showState(s) {
  const g = s.gateway;
  for (const key of ["name", "endpoint", "sessions", "subscriptions", "monitoredItems", "tags", "version", "state"]) {
    $(key).textContent = g[key];
  }
  $("uptime").textContent = seconds(g.uptime);
  $("problem").textContent = g.problem || "";
  $("problem").hidden = !g.problem;
  fill($("devices"), s.devices.map((d) => {
    const state = cell("", "");
    const badge = document.createElement("span");
    badge.className = "badge " + d.state;
    badge.textContent = d.state;
    state.append(badge);
    return [cell(d.name), state, cell(d.bus), cell(seconds(d.lastGood), "n"), cell(d.latency.toFixed(1) + " ms", "n"),
      cell(d.requests, "n"), cell(d.errors, "n"), cell(d.lastError)];
  }));
  $("more").hidden = s.more === 0;
  $("more").textContent = "and " + s.more + " more devices";
}

function showTags(t) {
  fill($("rows"), t.tags.map((v) => [cell(v.name), cell(v.value, "n"), cell(v.unit), cell(v.status, v.quality),
    cell(seconds(v.age), "n"), cell(v.access)]));
  const last = offset + t.tags.length;
  $("range").textContent = t.found === 0 ? "none" : (offset + 1) + " to " + last + " of " + t.found;
  $("back").disabled = offset === 0;
  $("next").disabled = last >= t.found;
}

async function get(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(5000) });
  if (!answer.ok) throw new Error(answer.status);
  return answer.json();
}

async function refreshTags() {
  const mine = ++wanted;
  const query = new URLSearchParams({ filter: $("filter").value, offset, limit });
  const t = await get("api/tags?" + query);
  if (mine !== wanted) return;
  if (t.tags.length === 0 && offset > 0) {
    offset = 0;
    return refreshTags();
  }
  showTags(t);
}

async function refresh() {
  if (document.hidden) return;
  try {
    const [s] = await Promise.all([get("api/state"), refreshTags()]);
    showState(s);
    $("link").hidden = true;
  } catch {
    $("link").hidden = false;
  }
}

async function loop() {
  await refresh();
  setTimeout(loop, 1000);
}

function turn(by) {
  offset = Math.max(0, offset + by);
  refreshTags().catch(() => {});
}

$("filter").addEventListener("input", () => turn(-offset));
$("back").addEventListener("click", () => turn(-limit));
$("next").addEventListener("click", () => turn(limit));
document.addEventListener("visibilitychange", refresh);
loop();
