#include "base/text.h"
#include "planning/memory_chart.h"

namespace tessera {
namespace {

constexpr std::string_view kHead = R"page(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<style>
:root { color-scheme: light dark; font: 14px system-ui, sans-serif; }
body { margin: 1em; }
#bar { display: flex; gap: 1em; flex-wrap: wrap; align-items: center; }
canvas { width: 100%; display: block; margin-top: .6em; }
#tip { position: fixed; display: none; pointer-events: none; padding: .4em .6em; border-radius: 4px;
  background: Canvas; color: CanvasText; border: 1px solid GrayText; white-space: pre; font-size: 13px; z-index: 1; }
#legend span { display: inline-block; margin-right: 1em; }
#legend i { display: inline-block; width: .8em; height: .8em; margin-right: .3em; }
#state { display: flex; height: 1.6em; margin: .3em 0 .8em; font-size: 12px; line-height: 1.6em; overflow: hidden; }
#state div { overflow: hidden; white-space: nowrap; color: #000; }
</style>
)page";

constexpr std::string_view kBody = R"page(<div id="bar">
<label>Program <select id="program"></select></label>
<label>Colour by <select id="colour"><option value="5">kind</option><option value="6">layer</option></select></label>
<span id="facts"></span></div>
<canvas id="arena" height="480"></canvas>
<canvas id="live" height="120"></canvas>
<div id="legend"></div>
<p>Across: ops in the order in which they run. Up: bytes of the arena; below it what lives at each op.</p>
<div>Always there: <span id="total"></span></div><div id="state"></div>
<div id="tip"></div>
<script>
"use strict";
const $ = id => document.getElementById(id);
const bytes = n => { let u = ["B", "KiB", "MiB", "GiB", "TiB"], i = 0;
  while (n >= 1024 && i < 4) { n /= 1024; ++i; } return n.toFixed(i ? 2 : 0) + " " + u[i]; };
const palette = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#ff9da7", "#bab0ac"];
const text = n => DATA.texts[n];
let program = DATA.programs[0], by = 5, colours = new Map(), chosen = null, scale = [1, 1];
const colourOf = key => by == 6 ? (key < 0 ? "#bab0ac" : "hsl(" + key * 47 % 360 + " 55% 55%)") : colours.get(key);
const inTier = s => s[4] == 0 || program.arena == 0;
function fit(canvas) {
  const ratio = window.devicePixelRatio || 1, height = canvas.id == "arena" ? 480 : 120;
  canvas.width = canvas.clientWidth * ratio; canvas.height = height * ratio; canvas.style.height = height + "px";
  const c = canvas.getContext("2d"); c.scale(ratio, ratio);
  return [c, canvas.clientWidth, height];
}
function draw() {
  const [c, width, height] = fit($("arena")), size = Math.max(1, program.arena);
  scale = [width / Math.max(1, program.nodes), height / size];
  colours = new Map(); let next = 0; const keys = new Map();
  for (const s of program.storages) {
    if (!inTier(s)) continue;
    if (by == 5 && !colours.has(s[5])) colours.set(s[5], palette[next++ % palette.length]);
    keys.set(s[by], (keys.get(s[by]) || 0) + 1);
    c.fillStyle = colourOf(s[by]);
    const y = height - (s[2] + s[3]) * scale[1];
    c.fillRect(s[0] * scale[0], y, Math.max(.5, (s[1] - s[0] + 1) * scale[0]), Math.max(.5, s[3] * scale[1]));
    if (s === chosen) { c.strokeStyle = "CanvasText"; c.lineWidth = 2;
      c.strokeRect(s[0] * scale[0], y, (s[1] - s[0] + 1) * scale[0], s[3] * scale[1]); }
  }
  const [l, w, h] = fit($("live"));
  l.fillStyle = "#4e79a7";
  program.live.forEach((b, i) => l.fillRect(i * scale[0], h - b * h / size, Math.max(.5, scale[0]), b * h / size));
  l.fillStyle = "#e15759"; l.fillRect(program.peak_node * scale[0], 0, Math.max(1, scale[0]), h);
  $("facts").textContent = program.nodes + " ops, arena " + bytes(program.arena) + ", at most " + bytes(program.peak) + " live, at " +
    (program.ops[program.peak_node] === undefined ? "the end" : text(program.ops[program.peak_node])) +
    (program.far_arena ? ", far arena " + bytes(program.far_arena) : "");
  const names = [...keys.keys()].sort((a, b) => a - b);
  $("legend").replaceChildren(...names.slice(0, 200).map(k => { const span = document.createElement("span"), i = document.createElement("i");
    i.style.background = colourOf(k); span.append(i, by == 5 ? text(k) : k < 0 ? "no layer" : "layer " + k); return span; }));
}
function under(event) {
  const box = $("arena").getBoundingClientRect(), node = (event.clientX - box.left) / scale[0], at = (box.bottom - event.clientY) / scale[1];
  return program.storages.find(s => inTier(s) && s[0] <= node && node < s[1] + 1 && s[2] <= at && at < s[2] + s[3]) || null;
}
function show(event, lines) {
  const tip = $("tip"); tip.style.display = lines ? "block" : "none"; if (!lines) return;
  tip.textContent = lines.join("\n");
  tip.style.left = Math.max(0, Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = Math.max(0, Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 8)) + "px";
}
$("arena").onmousemove = event => { const s = under(event), changed = s !== chosen; chosen = s; if (changed) draw();
  show(event, s && [text(s[7]) || "copy", text(s[8]) || "scratch", bytes(s[3]) + " at " + s[2], text(s[5]) + (s[6] < 0 ? "" : ", layer " + s[6]),
    "op " + s[0] + " to " + s[1] + " of " + program.nodes]); };
$("live").onmousemove = event => { const i = Math.floor((event.clientX - $("live").getBoundingClientRect().left) / scale[0]);
  show(event, program.live[i] === undefined ? null : [bytes(program.live[i]) + " live", program.ops[i] === undefined ? "the end" : text(program.ops[i])]); };
for (const id of ["arena", "live"]) $(id).onmouseleave = event => { chosen = null; show(event, null); draw(); };
DATA.programs.forEach((p, i) => $("program").append(new Option(p.name + " (" + bytes(p.arena) + ")", i)));
$("program").onchange = () => { program = DATA.programs[$("program").value]; draw(); };
$("colour").onchange = () => { by = +$("colour").value; draw(); };
$("total").textContent = DATA.state.map(s => s[0] + " " + bytes(s[1])).join(", ") + "; with the arena " + bytes(DATA.total);
const all = DATA.state.concat([["arena", DATA.arena]]);
all.forEach((s, i) => { const part = document.createElement("div"); part.style.flex = String(s[1]); part.style.background = palette[i];
  part.textContent = s[0]; part.title = s[0] + " " + bytes(s[1]); $("state").append(part); });
if (program) { window.onresize = draw; draw(); }
</script></body></html>
)page";

}  // namespace

std::string memory_chart_page(std::string_view title, std::string_view json) {
  return cat(kHead, "<title>Memory of ", title,
             "</title></head><body>\n<script>const DATA = ", json, ";</script>\n", kBody);
}

}  // namespace tessera
