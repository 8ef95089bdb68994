#include "passes/graph_page.h"

namespace tessera {

const char* const kGraphPageBody = R"html(<style>
  :root { color-scheme: light dark; --text: #1c1e21; --soft: #626a73; --line: #d8dce1; --back: #fff; --raised: #f4f6f8;
          --link: #0b57b0; --added: #12703a; --removed: #b3261e; --changed: #8a5a00; --added-back: #e5f4ea;
          --removed-back: #fbe9e7; --changed-back: #fdf2da; --mark: #ffe45c; --chosen: #cfe3ff }
  @media (prefers-color-scheme: dark) { :root { --text: #dfe2e6; --soft: #98a1ab; --line: #363b42; --back: #15171a;
          --raised: #1e2126; --link: #7db4ff; --added: #6fcf8e; --removed: #ff8a80; --changed: #f0bd5a; --added-back: #15291c;
          --removed-back: #331a19; --changed-back: #30260f; --mark: #7a6400; --chosen: #1d3a63 } }
  * { box-sizing: border-box }
  body { margin: 0; font: 14px/1.45 system-ui, sans-serif; color: var(--text); background: var(--back) }
  header { position: sticky; top: 0; z-index: 1; padding: .6em 1em; background: var(--raised); border-bottom: 1px solid var(--line) }
  h1 { display: inline; font-size: 16px; margin: 0 .6em 0 0 }
  #bar { display: flex; flex-wrap: wrap; gap: .4em .7em; align-items: center; margin-top: .4em }
  #search { flex: 1 1 14em; min-width: 0; max-width: 34em; padding: .35em .6em; font: inherit; color: inherit; background: var(--back);
            border: 1px solid var(--line); border-radius: 6px }
  button { font: inherit; color: inherit; background: var(--back); border: 1px solid var(--line); border-radius: 6px; padding: .3em .7em; cursor: pointer }
  main { padding: .2em 1em 40vh }
  h2 { font-size: 14px; margin: 1.2em 0 .3em; text-transform: capitalize }
  small, .soft { color: var(--soft); font-weight: normal; text-transform: none }
  details { border: 1px solid var(--line); border-radius: 6px; margin: .25em 0; overflow: hidden }
  summary { padding: .35em .7em; background: var(--raised); cursor: pointer }
  .node { padding: .25em .7em .25em calc(.7em - 3px); border-top: 1px solid var(--line); border-left: 3px solid transparent;
          font: 12.5px/1.5 ui-monospace, monospace; overflow-wrap: anywhere }
  @media (max-width: 600px) { header { padding: .4em .7em } main { padding: 0 .6em 40vh } h1 { font-size: 15px } button { padding: .2em .6em } }
  .op { font-weight: 600 }
  .attributes { color: var(--soft) }
  .scope { color: var(--soft); margin-left: 1.2em; font-family: system-ui, sans-serif }
  .remark { color: var(--changed); padding-left: 1.4em }
  .added { color: var(--added) } .removed { color: var(--removed) } .changed { color: var(--changed) }
  .node.added { color: inherit; background: var(--added-back); border-left-color: var(--added) }
  .node.removed { color: inherit; background: var(--removed-back); border-left-color: var(--removed) }
  .node.removed .op { text-decoration: line-through }
  .node.changed { color: inherit; background: var(--changed-back); border-left-color: var(--changed) }
  .node.here { outline: 2px solid var(--link); outline-offset: -2px }
  a { color: var(--link); text-decoration: none; cursor: pointer; border-radius: 3px }
  a:hover { text-decoration: underline }
  a.chosen { background: var(--chosen) }
  mark { background: var(--mark); color: inherit; border-radius: 2px }
  #panel { position: fixed; bottom: 0; left: 0; right: 0; max-height: 38vh; overflow: auto; padding: .6em 1em; background: var(--raised);
           border-top: 1px solid var(--line); box-shadow: 0 -3px 12px #0003 }
  #panel[hidden] { display: none }
  #panel ul { margin: .2em 0; padding-left: 1.4em }
  #close { float: right }
</style></head><body>
<header><h1 id="title"></h1><span id="facts"></span>
<div id="bar"><input id="search" type="search" placeholder="op, scope, type, %12 ... ( / )" aria-label="search">
<button id="previous" title="the hit before (Shift+Enter)">&uarr;</button><button id="next" title="the next hit (Enter)">&darr;</button>
<span id="hits" class="soft" aria-live="polite"></span>
<label id="filter"><input id="changes" type="checkbox"> only what the pass changed</label>
<button id="open">Open all</button><button id="fold">Fold all</button></div></header>
<main id="groups"></main>
<div id="panel" hidden></div>
)html";

const char* const kGraphPageScript = R"js(
const $ = id => document.getElementById(id), T = n => data.texts[n];
const PHASES = ["forward", "backward", "recompute", "optimizer"], CHANGES = ["", "added", "removed", "changed"];
const SIGNS = { added: "+", removed: "\u2212", changed: "~" };
const element = (tag, name, ...children) => {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...children);
  return made;
};
const plural = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
// Values of nodes that were removed are numbered below 0.
const valueText = id => id < 0 ? `%${-1 - id}` : `%${id}`;

const maker = new Map(), typeOf = new Map(), readers = new Map(), groups = new Map(), named = new Map();
const nodes = data.nodes.map(([op, attributes, scope, place, phase, change, inputs, outputs, remark], index) => {
  const node = { index, op: T(op), attributes: T(attributes), scope: T(scope), place: T(place), phase: PHASES[phase],
    change: CHANGES[change], inputs, outputs: [], remark: T(remark), row: null };
  for (let i = 0; i < outputs.length; i += 2) {
    node.outputs.push(outputs[i]);
    maker.set(outputs[i], node);
    typeOf.set(outputs[i], T(outputs[i + 1]));
  }
  for (const id of new Set(inputs)) readers.has(id) ? readers.get(id).push(node) : readers.set(id, [node]);
  const key = node.phase + " " + node.place;
  if (!groups.has(key)) groups.set(key, { phase: node.phase, place: node.place, nodes: [], shown: [] });
  (node.group = groups.get(key)).nodes.push(node);
  return node;
});
for (const [name, id, kind] of data.inputs) named.set(id, `${kind} ${name}`);
const results = new Map();
for (const [name, id] of data.outputs) results.set(id, [...(results.get(id) || []), "output " + name]);
for (const [name, id] of data.updates) results.set(id, [...(results.get(id) || []), "update of " + name]);
const textOf = node => node.text ||= [node.op, node.attributes, node.scope, node.phase, node.change, node.remark,
  ...node.outputs.map(id => `${valueText(id)} ${typeOf.get(id)} ${named.get(id) || ""} ${(results.get(id) || []).join(" ")}`)].join(" ").toLowerCase();

let words = [], hits = [], hit = -1, chosen = null;
// A word that ends in a digit ends there: layers.1 is not layers.12.
const isIn = (word, text) => {
  for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1))
    if (!/\d$/.test(word) || !/\d/.test(text[at + word.length] || "")) return true;
  return false;
};
const fits = node => words.every(word => /^%\d+$/.test(word) ? [...node.inputs, ...node.outputs].some(id => valueText(id) === word)
  : isIn(word, textOf(node))) && (!$("changes").checked || node.change);

function link(id) {
  const made = element("a", id === chosen ? "chosen" : "", valueText(id));
  made.dataset.value = id;
  made.href = "#" + valueText(id);
  made.title = typeOf.get(id) || "";
  made.onclick = event => { event.preventDefault(); choose(id); };
  return made;
}
function list(ids, typed) {
  return ids.flatMap((id, i) => [i ? ", " : "", link(id), typed ? ":" + typeOf.get(id) : ""]);
}
function highlight(row) {
  const found = words.filter(word => !/^%\d+$/.test(word));
  if (!found.length) return;
  const walker = document.createTreeWalker(row, NodeFilter.SHOW_TEXT), texts = [];
  while (walker.nextNode()) texts.push(walker.currentNode);
  for (let part of texts)
    for (;;) {
      const lower = part.data.toLowerCase();
      const [at, word] = found.map(w => [lower.indexOf(w), w]).filter(x => x[0] >= 0).sort((x, y) => x[0] - y[0])[0] || [-1];
      if (at < 0) break;
      const middle = part.splitText(at), rest = middle.splitText(word.length);
      middle.replaceWith(element("mark", "", middle.data));
      part = rest;
    }
}
function rowOf(node) {
  const row = element("div", "node " + node.change, ...list(node.outputs, true), node.outputs.length ? " = " : "", element("span", "op", node.op));
  if (node.attributes) {
    const long = node.attributes.length > 120, attributes = element("span", "attributes", `{${long ? node.attributes.slice(0, 100) + " ..." : node.attributes}}`);
    if (long) {
      attributes.title = "click for all";
      attributes.onclick = () => { attributes.textContent = `{${node.attributes}}`; };
    }
    row.append(attributes);
  }
  row.append("(", ...list(node.inputs, false), ")");
  const notes = [...node.outputs.flatMap(id => results.get(id) || [])];
  row.append(element("span", "scope", [node.scope, ...notes].filter(x => x).join(" \u00b7 ")));
  if (node.remark) row.append(element("div", "remark", node.remark));
  row.dataset.node = node.index;
  highlight(row);
  return node.row = row;
}
function fill(group) {
  for (const node of group.nodes) node.row = null;
  group.body.replaceChildren(...(group.details.open ? group.shown.map(rowOf) : []));
}
function counts(list) {
  const made = [];
  for (const [change, sign] of Object.entries(SIGNS)) {
    const n = list.filter(node => node.change === change).length;
    if (n) made.push(" ", element("span", change, sign + n));
  }
  return made;
}
function show() {
  const filtered = words.length > 0 || $("changes").checked;
  hits = [];
  hit = -1;
  for (const group of groups.values()) {
    group.shown = filtered ? group.nodes.filter(fits) : group.nodes;
    if (filtered) hits.push(...group.shown);
  }
  for (const group of groups.values()) {
    group.details.hidden = group.shown.length === 0;
    group.count.replaceChildren(filtered ? `${group.shown.length} of ${plural(group.nodes.length, "node")}` : plural(group.nodes.length, "node"), ...counts(group.nodes));
    if (filtered && hits.length <= 300) group.details.open = true;
    fill(group);
  }
  for (const heading of document.querySelectorAll("h2"))
    heading.hidden = [...groups.values()].every(g => g.phase !== heading.dataset.phase || g.shown.length === 0);
  $("hits").textContent = filtered ? plural(hits.length, "node") : "";
}
function open(group) {
  if (!group.details.open) group.details.open = true;
  if (!group.body.childElementCount) fill(group);
}
function reveal(node) {
  if (!node.group.shown.includes(node)) {
    $("search").value = "";
    $("changes").checked = false;
    words = [];
    show();
  }
  open(node.group);
  for (const other of document.querySelectorAll(".here")) other.classList.remove("here");
  node.row.classList.add("here");
  node.row.scrollIntoView({ block: "center" });
}
function step(by) {
  if (!hits.length) return;
  hit = (hit + by + hits.length) % hits.length;
  reveal(hits[hit]);
  $("hits").textContent = `${hit + 1} of ${plural(hits.length, "node")}`;
}
function choose(id) {
  chosen = id;
  for (const other of document.querySelectorAll("a.chosen")) other.classList.remove("chosen");
  for (const other of document.querySelectorAll(`a[data-value="${id}"]`)) other.classList.add("chosen");
  const to = node => {
    const made = element("a", "", `${node.op} in ${node.scope || "the program"} (${node.phase})`);
    made.href = "#" + valueText(id);
    made.onclick = event => { event.preventDefault(); reveal(node); };
    return element("li", node.change, made, node.change ? " " + node.change : "");
  };
  const close = element("button", "", "Close");
  close.id = "close";
  close.onclick = () => { $("panel").hidden = true; chosen = null; document.body.style.paddingBottom = ""; };
  const made = maker.get(id), by = readers.get(id) || [];
  $("panel").replaceChildren(close, element("b", "", valueText(id)), " ", element("code", "", typeOf.get(id) || ""), " ",
    element("span", "soft", [id < 0 ? "as it was before the pass" : "", named.get(id), ...(results.get(id) || [])].filter(x => x).join(", ")),
    element("div", "", "Made by", element("ul", "", ...(made ? [to(made)] : ["a node that is still there"]))),
    element("div", "", by.length ? `Read by ${plural(by.length, "node")}` : "Read by nobody", element("ul", "", ...by.map(to))));
  $("panel").hidden = false;
  history.replaceState(null, "", "#" + valueText(id));
}

$("title").textContent = document.title;
$("facts").append(plural(nodes.filter(n => n.change !== "removed").length, "node"), ...counts(nodes).map(part => part),
  ...(data.axes.length ? [" \u00b7 " + data.axes.map(([name, size]) => `${name} ${size}`).join(" x ")] : []));
$("filter").hidden = !data.compared;
for (const phase of new Set([...groups.values()].map(group => group.phase))) {
  const heading = element("h2", "", phase, " ");
  heading.dataset.phase = phase;
  $("groups").append(heading);
  for (const group of groups.values()) {
    if (group.phase !== phase) continue;
    group.count = element("small", "");
    group.body = element("div", "");
    group.details = element("details", "", element("summary", "", element("b", "", group.place || "outside of the model"), " ", group.count), group.body);
    group.details.ontoggle = () => { if (!group.details.open) group.body.replaceChildren(); else if (!group.body.childElementCount) fill(group); };
    $("groups").append(group.details);
  }
}
if (nodes.length <= 150) for (const group of groups.values()) group.details.open = true;
show();
$("search").oninput = () => { words = $("search").value.toLowerCase().split(/\s+/).filter(word => word); show(); };
$("changes").onchange = show;
$("next").onclick = () => step(1);
$("previous").onclick = () => step(-1);
$("open").onclick = () => { for (const group of groups.values()) open(group); };
$("fold").onclick = () => { for (const group of groups.values()) group.details.open = false; };
document.onkeydown = event => {
  if (event.target === $("search")) {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
  } else if (event.key === "/") {
    event.preventDefault();
    $("search").focus();
  }
};
if (/^#%\d+$/.test(decodeURIComponent(location.hash)) ) {
  const id = +decodeURIComponent(location.hash).slice(2);
  if (maker.has(id)) { choose(id); reveal(maker.get(id)); }
}
)js";

}  // namespace tessera
