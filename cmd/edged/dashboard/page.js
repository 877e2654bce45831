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

// fill shows rows of [text, class] cells. What has not changed is left alone, so that a selection of text survives. Text is
// only ever set as text: names and values come from the plant.
function fill(body, rows) {
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, i) => {
    const tr = body.rows[i] || body.insertRow();
    cells.forEach(([text, kind], j) => {
      const td = tr.cells[j] || tr.insertCell();
      text = String(text);
      if (td.textContent !== text) td.textContent = td.title = text;
      if (td.className !== (kind || "")) td.className = kind || "";
    });
  });
}

function showState(s) {
  const g = s.gateway;
  for (const key of ["name", "endpoint", "sessions", "subscriptions", "monitoredItems", "tags", "sent", "lost", "unaccounted", "version", "state"]) {
    $(key).textContent = g[key];
  }
  $("uptime").textContent = seconds(g.uptime);
  $("problem").textContent = g.problem || "";
  $("problem").hidden = !g.problem;
  const losses = g.losses || [];
  $("losing").hidden = losses.length === 0;
  $("losses").replaceChildren(...losses.map((text) => {
    const li = document.createElement("li");
    li.textContent = text;
    return li;
  }));
  fill($("devices"), s.devices.map((d) => {
    const line = d.bus !== ""; // a device without a line answers nobody
    return [[d.name], [d.state, "state " + d.state], [d.bus], [line ? seconds(d.lastGood) : "", "n"],
      [line ? d.latency.toFixed(2) + " ms" : "", "n"], [d.requests, "n"], [d.errors, "n"], [d.lastError]];
  }));
  $("more").hidden = s.more === 0;
  $("more").textContent = "and " + s.more + " more devices";
}

function showTags(t) {
  fill($("rows"), t.tags.map((v) => [[v.name], [v.value, "n"], [v.unit], [v.status, v.quality], [seconds(v.age), "n"], [v.access]]));
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
