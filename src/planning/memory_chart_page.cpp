#include "base/markup.h"
#include "base/text.h"
#include "planning/memory_chart.h"

namespace tessera {
namespace {

constexpr std::string_view kStyle = R"page(<style>
  :root { color-scheme: light dark; --text: #1c1e21; --soft: #626a73; --line: #d8dce1; --back: #fff; --raised: #f4f6f8; --peak: #c2185b }
  @media (prefers-color-scheme: dark) { :root { --text: #dfe2e6; --soft: #98a1ab; --line: #363b42; --back: #15171a; --raised: #1e2126; --peak: #ff6fa5 } }
  * { box-sizing: border-box }
  body { margin: 1em; font: 14px/1.45 system-ui, sans-serif; color: var(--text); background: var(--back) }
  h1 { font-size: 18px; margin: 0 0 .3em } h2 { font-size: 14px; margin: 1.2em 0 .3em }
  #bar { display: flex; gap: .4em 1em; flex-wrap: wrap; align-items: center; margin: .6em 0 }
  select, button { font: inherit; color: inherit; background: var(--back); border: 1px solid var(--line); border-radius: 6px; padding: .25em .6em; max-width: 100% }
  button:disabled { opacity: .4 }
  canvas { width: 100%; display: block; margin-top: .4em; touch-action: pan-y }
  .soft { color: var(--soft) }
  #tip { position: fixed; display: none; pointer-events: none; padding: .4em .6em; border-radius: 6px; background: var(--raised);
         border: 1px solid var(--line); white-space: pre-wrap; overflow-wrap: anywhere; max-width: min(34em, calc(100vw - 16px)); font-size: 13px; z-index: 1 }
  #legend, #stateLegend { display: flex; flex-wrap: wrap; gap: .1em 1.1em; margin-top: .4em }
  i { display: inline-block; width: .8em; height: .8em; margin-right: .35em; border-radius: 2px }
  #state { display: flex; height: 1.4em; margin: .3em 0; border-radius: 6px; overflow: hidden; gap: 1px }
  #state div { min-width: 1px }
</style>
)page";

constexpr std::string_view kBody = R"page(<div id="facts"></div>
<div id="bar"><label>Program <select id="program"></select></label>
<label>Colour by <select id="colour"><option value="5">kind</option><option value="6">layer</option></select></label>
<span><button id="closer">Zoom in</button> <button id="all" disabled>All</button></span></div>
<canvas id="arena"></canvas>
<canvas id="live"></canvas>
<div id="legend"></div>
<p class="soft">Across: ops in the order in which they run; drag to zoom. Up: places in the arena; below it the bytes that live at each op. Bytes of
a kind or layer are those at the peak, which the line marks.</p>
<h2 id="total"></h2><div id="state"></div><div id="stateLegend"></div>
<div id="tip"></div>
<script>
"use strict";
const $ = id => document.getElementById(id);
const bytes = n => { let u = ["B", "KiB", "MiB", "GiB", "TiB"], i = 0;
  while (n >= 1024 && i < 4) { n /= 1024; ++i; } return n.toFixed(i ? 2 : 0) + " " + u[i]; };
const palette = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#ff9da7", "#bab0ac"];
const kinds = { "arguments": 0, "forward values": 1, "compute copies of parameters": 2, "backward values": 3, "recompute values": 4, "workspace": 5,
  "copies of results": 6, "optimizer values": 7 };
// What is always there is no kind of the arena: shades of one colour.
const shades = ["hsl(215 35% 38%)", "hsl(215 30% 50%)", "hsl(215 25% 62%)", "hsl(215 20% 74%)", "#f28e2b"];
const text = n => DATA.texts[n], GAP = 6;
let program = DATA.programs[0], by = 5, colours = new Map(), chosen = null, from = 0, to = 1, left = 0, drag = null;
const colourOf = key => by == 6 ? (key < 0 ? "#8d949c" : "hsl(" + key * 47 % 360 + " 50% 55%)") : colours.get(key);
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name);
const size = () => Math.max(1, program.arena || program.far_arena);
const inTier = s => s[4] == 0 || program.arena == 0;
const opAt = node => program.ops[node] === undefined ? "the end" : text(program.ops[node]);
const across = node => left + (node - from) / (to - from) * ($("arena").clientWidth - left);
const nodeAt = x => from + (x - left) / ($("arena").clientWidth - left) * (to - from);
const high = () => Math.max(260, Math.min(520, innerHeight * .55));
function fit(canvas, height) {
  const ratio = devicePixelRatio || 1;
  canvas.width = canvas.clientWidth * ratio; canvas.height = height * ratio; canvas.style.height = height + "px";
  const c = canvas.getContext("2d"); c.scale(ratio, ratio);
  c.font = "11px system-ui, sans-serif"; c.textBaseline = "middle"; c.textAlign = "right";
  return [c, canvas.clientWidth, height];
}
// Lines at round numbers of bytes.
function grid(c, width, height, marks) {
  let step = 2 ** Math.ceil(Math.log2(size() / marks));
  for (let b = 0; b <= size(); b += step) {
    const y = height - GAP - b / size() * (height - 2 * GAP);
    c.fillStyle = style("--line"); c.fillRect(left, y, width - left, 1);
    c.fillStyle = style("--soft"); c.fillText(bytes(b).replace(/\.00 /, " "), left - 6, y);
  }
}
function peakLine(c, height) {
  const x = across(program.peak_node + .5);
  c.fillStyle = style("--peak"); if (x >= left) c.fillRect(x - .75, 0, 1.5, height);
}
function draw() {
  left = $("arena").clientWidth < 500 ? 58 : 72;
  const [c, width, height] = fit($("arena"), high());
  grid(c, width, height, 6);
  const up = b => height - GAP - b / size() * (height - 2 * GAP);
  const keys = new Map();
  colours = new Map();
  for (const s of program.storages) {
    if (!inTier(s)) continue;
    if (!colours.has(s[5])) colours.set(s[5], palette[kinds[text(s[5])] ?? 9]);
    keys.set(s[by], (keys.get(s[by]) || 0) + (s[0] <= program.peak_node && program.peak_node <= s[1] ? Math.ceil(s[3] / 64) * 64 : 0));
    const x = Math.max(left, across(s[0])), w = across(s[1] + 1) - x, y = up(s[2] + s[3]), h = up(s[2]) - y;
    if (w <= 0 || x > width) continue;
    c.fillStyle = colourOf(s[by]);
    // A hair between neighbours, where there is room for one.
    c.fillRect(x, y, Math.max(.6, w - (w > 4 ? .7 : 0)), Math.max(.6, h - (h > 3 ? .7 : 0)));
    if (s === chosen) { c.strokeStyle = style("--text"); c.lineWidth = 2; c.strokeRect(x, y, Math.max(1, w), Math.max(1, h)); }
  }
  peakLine(c, height);
  if (drag) { c.fillStyle = "#7f9fd055"; c.fillRect(Math.min(drag[0], drag[1]), 0, Math.abs(drag[1] - drag[0]), height); }
  const [l, , below] = fit($("live"), 110);
  grid(l, width, below, 2);
  l.fillStyle = "#4e79a7"; l.beginPath(); l.moveTo(left, below - GAP);
  const first = Math.floor(from), last = Math.min(program.live.length, Math.ceil(to));
  for (let i = first; i < last; ++i) {
    const y = below - GAP - program.live[i] / size() * (below - 2 * GAP);
    l.lineTo(Math.max(left, across(i)), y); l.lineTo(Math.min(width, across(i + 1)), y);
  }
  l.lineTo(Math.min(width, across(last)), below - GAP); l.fill();
  peakLine(l, below);
  $("facts").textContent = program.name + ": " + program.nodes + " ops, arena " + bytes(program.arena) + ", at most " + bytes(program.peak) + " live, at " +
    opAt(program.peak_node) + (program.far_arena ? ", far arena " + bytes(program.far_arena) : "");
  const names = [...keys.keys()].sort((a, b) => by == 5 ? keys.get(b) - keys.get(a) : a - b);
  $("legend").replaceChildren(...names.slice(0, 200).map(k =>
    entry(colourOf(k), by == 5 ? text(k) : k < 0 ? "no layer" : "layer " + k, keys.get(k))));
  $("all").disabled = from == 0 && to == program.nodes;
}
function entry(colour, name, size) {
  const span = document.createElement("span"), i = document.createElement("i"), soft = document.createElement("span");
  i.style.background = colour; soft.className = "soft"; soft.textContent = " " + bytes(size);
  span.append(i, name, soft);
  return span;
}
function under(event) {
  const box = $("arena").getBoundingClientRect(), height = box.height, node = nodeAt(event.clientX - box.left);
  const at = (box.bottom - GAP - event.clientY) / (height - 2 * GAP) * size();
  if (event.clientX - box.left < left) return null;
  return program.storages.find(s => inTier(s) && s[0] <= node && node < s[1] + 1 && s[2] <= at && at < s[2] + s[3]) || null;
}
function show(event, lines) {
  const tip = $("tip"); tip.style.display = lines ? "block" : "none"; if (!lines) return;
  tip.textContent = lines.join("\n");
  tip.style.left = Math.max(8, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = Math.max(8, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)) + "px";
}
function look(event) {
  const s = under(event), changed = s !== chosen; chosen = s; if (changed) draw();
  show(event, s && [text(s[7]) || "copy", text(s[8]) || "scratch", bytes(s[3]) + " at " + s[2], text(s[5]) + (s[6] < 0 ? "" : ", layer " + s[6]),
    "op " + s[0] + " to " + s[1] + " of " + program.nodes]);
}
function zoom(a, b) {
  const middle = (a + b) / 2, half = Math.max(4, (b - a) / 2);
  from = Math.max(0, middle - half); to = Math.min(program.nodes, middle + half); draw();
}
const place = event => event.clientX - $("arena").getBoundingClientRect().left;
$("arena").onpointerdown = event => { look(event); if (event.pointerType == "mouse") drag = [place(event), place(event)]; };
$("arena").onpointermove = event => {
  if (!drag) return look(event);
  drag[1] = place(event); show(event, null); draw();
};
onpointerup = () => { if (!drag) return; const [a, b] = drag.map(nodeAt).sort((x, y) => x - y), far = Math.abs(drag[1] - drag[0]) > 8;
  drag = null; far ? zoom(a, b) : draw(); };
$("arena").ondblclick = $("all").onclick = () => { from = 0; to = program.nodes; draw(); };
$("closer").onclick = () => {
  const middle = from <= program.peak_node && program.peak_node <= to ? program.peak_node : (from + to) / 2; zoom(middle - (to - from) / 4, middle + (to - from) / 4); };
$("live").onpointermove = $("live").onpointerdown = event => { const i = Math.floor(nodeAt(place(event)));
  show(event, i < from || program.live[i] === undefined ? null : [bytes(program.live[i]) + " live", opAt(i)]); };
for (const id of ["arena", "live"]) $(id).onpointerleave = event => { if (event.pointerType != "mouse" || drag) return; chosen = null; show(event, null); draw(); };
function choose(p) { program = p; chosen = null; from = 0; to = Math.max(1, p.nodes); draw(); }
DATA.programs.forEach((p, i) => $("program").append(new Option(p.name + " (" + bytes(p.arena) + ")", i)));
$("program").onchange = () => choose(DATA.programs[$("program").value]);
$("colour").onchange = () => { by = +$("colour").value; draw(); };
$("total").textContent = "All that a rank takes: " + bytes(DATA.total);
DATA.state.concat([["arena, where the programs run", DATA.arena]]).forEach((s, i) => {
  const part = document.createElement("div"); part.style.flex = String(s[1]); part.style.background = shades[i];
  part.title = s[0] + " " + bytes(s[1]); $("state").append(part); $("stateLegend").append(entry(shades[i], s[0], s[1])); });
if (program) { onresize = draw; choose(program); matchMedia("(prefers-color-scheme: dark)").onchange = draw; }
</script></body></html>
)page";

}  // namespace

std::string memory_chart_page(std::string_view title, std::string_view json) {
  return cat(page_head(cat("Memory of ", title)), kStyle, "</head><body>\n<h1>Memory of ",
             escape_markup(title), "</h1>\n<script>const DATA = ", json, ";</script>\n", kBody);
}

}  // namespace tessera
