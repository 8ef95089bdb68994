#include "profile/page_script.h"

namespace tessera {

const char* const kPageBody = R"html(<style>
  :root { color-scheme: light dark; --text: #222; --line: #ccc; --back: #fff }
  @media (prefers-color-scheme: dark) { :root { --text: #ddd; --line: #444; --back: #181818 } }
  body { margin: 1em; font: 13px system-ui, sans-serif; color: var(--text); background: var(--back) }
  h2 { font-size: 15px; margin: 1.2em 0 .4em }
  canvas { width: 100%; display: block; border: 1px solid var(--line); cursor: grab }
  pre, table { font: 12px ui-monospace, monospace }
  pre { overflow-x: auto }
  td { padding: 0 1em 0 0 }
  #tip { position: fixed; display: none; max-width: 40em; padding: .4em .6em; white-space: pre-line;
         color: #eee; background: #222d; border-radius: 4px; pointer-events: none; z-index: 2 }
  #path { min-height: 1.2em }
</style></head><body>
<h2>Timeline</h2>
<div>Wheel: zoom; drag: move; double click: all. Arrows lead from the rank that came last to an exchange to those that
waited.</div>
<canvas id="timeline"></canvas>
<h2>Flame view</h2>
<div>Time of all ranks by phase, scope and op. A click makes a part the whole. Shown: <span id="path"></span></div>
<canvas id="flame"></canvas>
<h2>Memory</h2>
<div>Planned bytes over time: <select id="which"></select> <span id="peak"></span></div>
<canvas id="memory"></canvas>
<table id="live"></table>
<div id="tip"></div>
<h2>Tables</h2>
)html";

const char* const kPageScript = R"js(
const T = data.texts, KINDS = ["step", "data", "op", "begin", "wait", "exchange"];
const ROW = 17, HEAD = 18, LEFT = 90;
const tip = document.getElementById("tip");
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
const text = getComputedStyle(document.documentElement).getPropertyValue("--text");
const time = us => us >= 1e6 ? (us / 1e6).toFixed(3) + " s" : us >= 1e3 ? (us / 1e3).toFixed(3) + " ms" : us.toFixed(1) + " us";
const bytes = n => { let u = 0; while (n >= 1024 && u < 5) { n /= 1024; ++u; } return n.toFixed(u ? 2 : 0) + " " + ["B", "KiB", "MiB", "GiB", "TiB", "PiB"][u]; };
function colour(name) {
  let h = 0;
  for (let i = 0; i < name.length; ++i) h = (h * 31 + name.charCodeAt(i)) >>> 0;
  return `hsl(${h % 360} 55% ${dark ? 35 : 72}%)`;
}
// "layers.3.attn" as "layers.3", "attn".
const parts = scope => scope ? scope.split(/\.(?!\d)/) : [];
function show(event, lines) {
  tip.style.display = lines ? "block" : "none";
  if (!lines) return;
  tip.textContent = lines;
  tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8) + "px";
}
function surface(id, height) {
  const canvas = document.getElementById(id), width = canvas.clientWidth, ratio = devicePixelRatio || 1;
  canvas.style.height = height + "px";
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const g = canvas.getContext("2d");
  g.scale(ratio, ratio);
  g.font = "11px system-ui, sans-serif";
  g.textBaseline = "middle";
  return [g, width];
}

// Rows of slices: of every rank its steps, phases, scopes and ops, and exchanges beside them.
const rows = [], exchangeRow = [];
let first = Infinity, last = 0;
data.ranks.forEach((r, index) => {
  const lanes = { steps: [], phases: [], scopes: [], compute: [] }, exchanges = [];
  const group = (lane, name, b, e, step) => {
    const open = lane[lane.length - 1];
    if (open && open.name === name && open.step === step) open.e = e;
    else lane.push({ b, e, name, step, tip: name });
  };
  for (const [kind, b, d, step, op, phase, scope, program, flops, size, light, group_of] of r.events) {
    const e = b + d, what = KINDS[kind], name = T[op];
    first = Math.min(first, b);
    last = Math.max(last, e);
    const where = `${T[scope]} (${T[phase]}), ${T[program]}, step ${step}`;
    if (what === "step") lanes.steps.push({ b, e, name: "step " + step, tip: "step " + step });
    else if (what === "data") lanes.compute.push({ b, e, name: "data", tip: "waits for data" });
    else if (what === "exchange")
      exchanges.push({ b, e, name, tip: `${name}\n${where}\nsends ${bytes(size)}, ranks ${T[group_of]}` });
    else {
      group(lanes.phases, T[phase], b, e, step);
      group(lanes.scopes, T[scope], b, e, step);
      const title = what === "wait" ? "wait for " + name : what === "begin" ? "begin " + name : name;
      let lines = `${title}\n${where}`;
      if (what === "wait" && T[group_of]) lines += `\nranks ${T[group_of]}`;
      if (flops || size) lines += `\n${(flops / 1e6).toPrecision(4)} MFLOP, ${bytes(size)}`;
      if (light && d) lines += `\n${(100 * light / d).toFixed(1)} % of light`;
      lanes.compute.push({ b, e, name: title, tip: lines, idle: what === "wait" });
    }
  }
  for (const [name, slices] of Object.entries(lanes)) rows.push({ label: `${r.rank} ${name}`, slices, first: name === "steps" });
  exchangeRow[index] = rows.length;
  if (exchanges.length) rows.push({ label: `${r.rank} exchanges`, slices: exchanges });
});
for (const row of rows) row.slices.sort((x, y) => x.b - y.b);

let from = first, to = last;
function drawTimeline() {
  const [g, width] = surface("timeline", HEAD + rows.length * ROW + 4);
  const across = t => LEFT + (t - from) / (to - from) * (width - LEFT);
  g.fillStyle = text;
  const mark = 10 ** Math.floor(Math.log10((to - from) / 4 || 1));
  for (let t = Math.ceil(from / mark) * mark; t < to; t += mark) {
    if (((to - from) / mark > 12) && Math.round(t / mark) % 5) continue;
    g.fillRect(across(t), HEAD - 4, 1, 4);
    g.fillText(time(t), across(t) + 2, HEAD / 2);
  }
  rows.forEach((row, i) => {
    const y = HEAD + i * ROW;
    g.save();
    g.beginPath();
    g.rect(LEFT, y, width - LEFT, ROW);
    g.clip();
    let drawn = -1;
    for (const s of row.slices) {
      if (s.e < from || s.b > to) continue;
      const x = across(s.b), w = Math.max(across(s.e) - x, .5);
      if (x + w <= drawn) continue;  // less than a pixel behind others
      drawn = x + w < drawn + 1 ? drawn + 1 : x + w;
      g.fillStyle = s.idle ? (dark ? "#333" : "#e4e4e4") : colour(s.name);
      g.fillRect(x, y + 1, Math.max(w - .3, .5), ROW - 2);
      if (w < 24) continue;
      g.fillStyle = text;
      const begin = Math.max(x, LEFT);
      g.fillText(s.name.slice(0, Math.floor((x + w - begin) / 6)), begin + 2, y + ROW / 2);
    }
    g.restore();
    g.fillStyle = text;
    if (row.first) g.fillRect(0, y, width, .5);
    g.fillText(row.label, 2, y + ROW / 2);
  });
  const seen = data.arrows.filter(a => a[3] >= from && a[1] <= to);
  if (seen.length > 400) return;
  g.save();
  g.beginPath();
  g.rect(LEFT, HEAD, width - LEFT, rows.length * ROW);
  g.clip();
  g.strokeStyle = g.fillStyle = "#d33";
  for (const [a, begin, b, end] of seen) {
    const x0 = across(begin), y0 = HEAD + (exchangeRow[a] + .5) * ROW;
    const x1 = across(end), y1 = HEAD + (exchangeRow[b] + .5) * ROW;
    g.beginPath();
    g.moveTo(x0, y0);
    g.lineTo(x1, y1);
    g.stroke();
    g.fillRect(x1 - 2, y1 - 2, 4, 4);
  }
  g.restore();
}
{
  const canvas = document.getElementById("timeline");
  const at = x => from + (x - LEFT) / (canvas.clientWidth - LEFT) * (to - from);
  let held = null;
  canvas.onwheel = event => {
    event.preventDefault();
    const t = at(event.offsetX), factor = event.deltaY > 0 ? 1.25 : .8;
    from = Math.max(first, t - (t - from) * factor);
    to = Math.min(last, t + (to - t) * factor);
    if (to - from < .01) to = from + .01;
    drawTimeline();
  };
  canvas.onmousedown = event => { held = event.offsetX; };
  onmouseup = () => { held = null; };
  canvas.onmousemove = event => {
    if (held !== null) {
      const shift = Math.min(Math.max(at(held) - at(event.offsetX), first - from), last - to);
      from += shift;
      to += shift;
      held = event.offsetX;
      return drawTimeline();
    }
    const row = rows[Math.floor((event.offsetY - HEAD) / ROW)], t = at(event.offsetX);
    const near = (to - from) / canvas.clientWidth;
    const s = row && event.offsetX > LEFT && row.slices.find(s => s.b - near <= t && t <= s.e + near);
    show(event, s && `${s.tip}\n${time(s.e - s.b)}, from ${time(s.b)} on`);
  };
  canvas.onmouseleave = event => show(event, null);
  canvas.ondblclick = () => { from = first; to = last; drawTimeline(); };
}

// The flame view: a tree of phases, scopes and ops.
const root = { name: "all", time: 0, children: new Map(), parent: null };
for (const r of data.ranks)
  for (const [kind, , d, step, op, phase, scope] of r.events) {
    const what = KINDS[kind];
    if (step < 0 || what === "step" || what === "exchange") continue;
    const names = what === "data" ? ["data"] : [T[phase], ...parts(T[scope]), (what === "op" ? "" : what + " ") + T[op]];
    let node = root;
    node.time += d;
    for (const name of names) {
      if (!node.children.has(name)) node.children.set(name, { name, time: 0, children: new Map(), parent: node });
      node = node.children.get(name);
      node.time += d;
    }
  }
let whole = root, boxes = [];
function drawFlame() {
  const depth = n => 1 + Math.max(0, ...[...n.children.values()].map(depth));
  const [g, width] = surface("flame", depth(root) * ROW + 4);
  boxes = [];
  const draw = (node, x, y) => {
    const w = node.time / whole.time * width;
    if (w < .4) return;
    boxes.push({ x, y, w, node });
    g.fillStyle = colour(node.name);
    g.fillRect(x, y + 1, Math.max(w - .5, .4), ROW - 2);
    g.fillStyle = text;
    if (w > 24) g.fillText(node.name.slice(0, Math.floor(w / 6)), x + 2, y + ROW / 2);
    for (const child of [...node.children.values()].sort((a, b) => b.time - a.time)) {
      draw(child, x, y + ROW);
      x += child.time / whole.time * width;
    }
  };
  draw(whole, 0, 0);
  const names = [];
  for (let n = whole; n; n = n.parent) names.unshift(n.name);
  document.getElementById("path").textContent = names.join(" > ");
}
{
  const canvas = document.getElementById("flame");
  const box = event => boxes.find(b => event.offsetX >= b.x && event.offsetX < b.x + b.w && event.offsetY >= b.y && event.offsetY < b.y + ROW);
  canvas.onclick = event => {
    const found = box(event);
    if (found) whole = found.node === whole && whole.parent ? whole.parent : found.node;
    drawFlame();
  };
  canvas.onmousemove = event => {
    const found = box(event);
    show(event, found && `${found.node.name}\n${time(found.node.time)}, ${(100 * found.node.time / root.time).toFixed(1)} % of all`);
  };
  canvas.onmouseleave = event => show(event, null);
}

// Memory over time.
const which = document.getElementById("which");
data.ranks.forEach((r, i) => which.add(new Option(`rank ${r.rank}, from ${time(r.events.length ? r.events[0][1] : 0)}`, i)));
function drawMemory() {
  const r = data.ranks[which.value || 0], height = 180;
  const [g, width] = surface("memory", height);
  let begin = Infinity, end = 0, most = 1;
  for (const [t, live] of r.memory) {
    begin = Math.min(begin, t);
    end = Math.max(end, t, begin + 1);
    most = Math.max(most, live);
  }
  most += r.state;
  const across = t => LEFT + (t - begin) / (end - begin) * (width - LEFT - 4);
  const down = b => height - 4 - b / most * (height - 16);
  g.fillStyle = colour("state");
  g.fillRect(LEFT, down(r.state), width - LEFT - 4, height - 4 - down(r.state));
  g.fillStyle = colour("live");
  g.beginPath();
  g.moveTo(LEFT, down(r.state));
  let before = 0;
  for (const [t, live] of r.memory) {
    g.lineTo(across(t), down(r.state + before));
    g.lineTo(across(t), down(r.state + live));
    before = live;
  }
  g.lineTo(across(end), down(r.state));
  g.fill();
  g.fillStyle = text;
  g.fillText(bytes(most), 2, 12);
  g.fillText("state " + bytes(r.state), 2, Math.min(down(r.state), height - 12));
  const peak = r.peaks.reduce((a, b) => b.bytes > a.bytes ? b : a, { bytes: -1, live: [] });
  document.getElementById("peak").textContent = peak.bytes < 0 ? "" : `live at most ${bytes(peak.bytes)}, in ${peak.program}, at ${peak.at}:`;
  const table = document.getElementById("live");
  table.replaceChildren(...peak.live.map(([name, size]) => {
    const row = document.createElement("tr");
    for (const cell of [bytes(size), T[name]]) row.appendChild(document.createElement("td")).textContent = cell;
    return row;
  }));
}
which.onchange = drawMemory;
const drawAll = () => { drawTimeline(); drawFlame(); drawMemory(); };
onresize = drawAll;
drawAll();
)js";

}  // namespace tessera
