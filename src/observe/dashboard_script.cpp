#include "observe/dashboard_page.h"

namespace tessera {

const char* const kDashboardScript = R"js(const $ = id => document.getElementById(id);
const make = (tag, text, name) => { const e = document.createElement(tag); if (text !== undefined) e.textContent = text; if (name) e.className = name; return e; };
const say = (element, text) => { if (element.textContent !== text) element.textContent = text; };
const none = "\u2013";
const is = x => x !== null && x !== undefined && Number.isFinite(x);
const bytes = n => { let u = 0; while (n >= 1024 && u < 5) { n /= 1024; ++u; } return n.toFixed(u > 2 ? 2 : u ? 1 : 0) + " " + ["B", "KiB", "MiB", "GiB", "TiB", "PiB"][u]; };
const count = n => n.toLocaleString("en");
const digits = x => !is(x) ? none : x === 0 ? "0" : Math.abs(x) >= 1e5 || Math.abs(x) < 1e-3 ? x.toExponential(2) : String(+x.toPrecision(4));
const short = (x, places = 3) => { for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (Math.abs(x) >= unit) return +(x / unit).toPrecision(places) + letter; return x !== 0 && Math.abs(x) < 1e-3 ? (+x.toPrecision(places)).toExponential() : String(+x.toPrecision(Math.max(4, places))); };
const two = n => String(n).padStart(2, "0");
const span = s => { s = Math.round(s); const h = Math.floor(s / 3600), m = Math.floor(s % 3600 / 60); return h ? h + "h" + two(m) + "m" : m ? m + "m" + two(s % 60) + "s" : s + "s"; };
const quick = s => !is(s) ? none : s >= 10 ? span(s) : s >= 1 ? s.toFixed(2) + " s" : (1000 * s).toFixed(s < 0.01 ? 2 : 0) + " ms";
const clock = t => { const d = new Date(1000 * t); return two(d.getHours()) + ":" + two(d.getMinutes()) + ":" + two(d.getSeconds()); };

// Curves. A point is [step, then of each of four numbers its mean, least and greatest value].
let points = [], validations = [], stride = 0, curve = 0, factor = 0.6;
const SVG = "http://www.w3.org/2000/svg";
const node = (tag, attributes, text) => { const e = document.createElementNS(SVG, tag); for (const k in attributes) e.setAttribute(k, attributes[k]); if (text !== undefined) e.textContent = text; return e; };
function smoothed(values) {
  let sum = 0, weight = 0;
  return values.map(v => { if (!is(v)) return v; sum = factor * sum + (1 - factor) * v; weight = factor * weight + (1 - factor); return sum / weight; });
}
// Multiples of 1, 2 or 5 times a power of ten.
function marks(low, high, about) {
  if (!(high > low)) { const room = Math.abs(low) / 10 || 1; low -= room; high += room; }
  const rough = (high - low) / about, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find(f => f * power >= rough * 0.999) || 10), at = [];
  for (let i = Math.floor(low / step + 1e-9); i <= Math.ceil(high / step - 1e-9) && at.length < 50; ++i) at.push(i * step);
  return at;
}
// As many digits as tell marks apart.
function labels(at) {
  const largest = Math.max(...at.map(Math.abs)), places = Math.ceil(Math.log10(largest / (at[1] - at[0]))) + 1;
  return at.map(x => short(x, Math.max(3, Math.min(15, places))));
}
function line(xs, ys, across, down) {
  let path = "", drawn = false;
  xs.forEach((x, i) => { if (is(ys[i])) path += (drawn ? "L" : "M") + across(x).toFixed(1) + " " + down(ys[i]).toFixed(1); drawn = is(ys[i]); });
  return path;
}
class Chart {
  constructor(title, number, height, validated, unit) {
    Object.assign(this, { title, number, height, validated, unit: unit || "", cursor: -1 });
    const section = make("section"), head = make("div", undefined, "row apart"), h2 = make("h2", title);
    head.append(h2);
    if (validated) {
      this.key = make("div", undefined, "row key faint");
      for (const [name, colour] of [["training", "--one"], ["validation", "--two"]]) { const s = make("span"), i = make("i"); i.style.background = `var(${colour})`; s.append(i, name); this.key.append(s); }
      head.append(this.key);
    }
    this.svg = node("svg", { tabindex: 0, role: "img", height });
    this.tip = make("div", undefined, "tip");
    this.tip.hidden = true;
    const box = make("div", undefined, "chart");
    box.append(this.svg, this.tip);
    section.append(head, box);
    $("charts").append(section);
    this.svg.addEventListener("pointermove", e => this.point(this.nearest(e.offsetX)));
    this.svg.addEventListener("pointerdown", e => this.point(this.nearest(e.offsetX)));
    this.svg.addEventListener("pointerleave", () => this.point(-1));
    this.svg.addEventListener("blur", () => this.point(-1));
    this.svg.addEventListener("keydown", e => {
      const far = e.shiftKey ? Math.ceil(points.length / 20) : 1, at = this.cursor < 0 ? points.length - 1 : this.cursor;
      const to = { ArrowLeft: at - far, ArrowRight: at + far, Home: 0, End: points.length - 1, Escape: -1 }[e.key];
      if (to === undefined || !points.length) return;
      e.preventDefault();
      this.point(e.key === "Escape" ? -1 : Math.max(0, Math.min(points.length - 1, to)));
      if (this.cursor >= 0) say($("said"), this.tip.textContent);
    });
    new ResizeObserver(() => this.draw()).observe(box);
  }
  column(of) { return points.map(p => p[1 + 3 * this.number + of]); }
  nearest(x) {
    if (!points.length || !this.across) return -1;
    let best = 0;
    points.forEach((p, i) => { if (Math.abs(this.across(p[0]) - x) < Math.abs(this.across(points[best][0]) - x)) best = i; });
    return best;
  }
  draw() {
    const width = this.svg.clientWidth, height = this.height, right = width - 10, top = 10, bottom = height - 22;
    if (width < 80) return;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const all = [], xs = points.map(p => p[0]), mean = this.column(0), smooth = this.smooth = smoothed(mean), id = "clip" + this.number;
    const checks = this.validated ? validations : [];
    const seen = mean.concat(smooth, checks.map(v => v[1])).filter(is), steps = xs.concat(checks.map(v => v[0]));
    if (!seen.length) {
      this.svg.replaceChildren(node("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "no step yet"));
      this.svg.setAttribute("aria-label", this.title + ": no step yet");
      this.across = null;
      return;
    }
    const ys = marks(Math.min(...seen), Math.max(...seen), height / 50), low = ys[0], high = ys[ys.length - 1];
    const named = labels(ys), left = 14 + 6.2 * Math.max(...named.map(n => n.length));
    let begin = Math.min(...steps), end = Math.max(...steps);
    if (begin === end) { begin -= 1; end += 1; }
    const across = this.across = x => left + (x - begin) / (end - begin) * (right - left);
    const down = this.down = y => bottom - (y - low) / (high - low) * (bottom - top);
    const clip = node("clipPath", { id });
    clip.append(node("rect", { x: left, y: top - 3, width: right - left + 4, height: bottom - top + 6 }));
    all.push(clip);
    ys.forEach((y, i) => all.push(node("line", { class: "grid", x1: left, x2: right, y1: down(y), y2: down(y) }), node("text", { x: left - 6, y: down(y) + 4, "text-anchor": "end" }, named[i])));
    const at = marks(begin, end, Math.max(2, width / 110)), numbered = labels(at);
    at.forEach((x, i) => { if (x >= begin && x <= end && Number.isInteger(x)) all.push(node("text", { x: across(x), y: height - 5, "text-anchor": across(x) > right - 12 ? "end" : across(x) < left + 6 ? "start" : "middle" }, numbered[i])); });
    const curves = node("g", { "clip-path": `url(#${id})` });
    if (stride > 1) {
      const lows = this.column(1), highs = this.column(2);
      let band = "";
      for (let i = 0; i < xs.length;) {
        let e = i;
        while (e < xs.length && is(lows[e])) ++e;
        if (e > i) band += "M" + [...Array(e - i).keys()].map(k => across(xs[i + k]).toFixed(1) + " " + down(highs[i + k]).toFixed(1)).join("L") + "L" + [...Array(e - i).keys()].map(k => across(xs[e - 1 - k]).toFixed(1) + " " + down(lows[e - 1 - k]).toFixed(1)).join("L") + "Z";
        i = Math.max(e, i + 1);
      }
      curves.append(node("path", { class: "band", d: band, style: "fill: var(--one)" }));
    }
    const stroke = (d, colour, width, opacity) => curves.append(node("path", { d, style: `stroke: var(${colour}); stroke-width: ${width}; opacity: ${opacity}` }));
    if (factor > 0) stroke(line(xs, mean, across, down), "--one", 1, 0.3);
    stroke(line(xs, smooth, across, down), "--one", 1.8, 1);
    if (checks.length) stroke(line(checks.map(v => v[0]), checks.map(v => v[1]), across, down), "--two", 1.8, 1);
    for (const v of checks.length <= 60 ? checks : []) if (is(v[1])) curves.append(node("circle", { cx: across(v[0]), cy: down(v[1]), r: 3, style: "fill: var(--two)" }));
    this.cross = node("g", {});
    this.svg.replaceChildren(...all, curves, this.cross);
    const newest = mean.findLast(is);
    this.svg.setAttribute("aria-label", `${this.title} over steps ${begin} to ${end}: ${digits(mean.find(is))} at first, ${digits(newest)} now. Arrow keys read its values.`);
    this.point(Math.min(this.cursor, points.length - 1));
  }
  // Shows the values at a point; -1: none.
  point(at) {
    this.cursor = at;
    this.tip.hidden = at < 0 || !this.across;
    if (this.cross) this.cross.replaceChildren();
    if (this.tip.hidden) return;
    const p = points[at], value = p[1 + 3 * this.number], x = this.across(p[0]);
    let text = `step ${count(p[0])}\n${digits(value)}${this.unit}`;
    if (factor > 0 && is(value)) text += `\nsmoothed ${digits(this.smooth[at])}`;
    if (stride > 1) text += `\n${digits(p[2 + 3 * this.number])} to ${digits(p[3 + 3 * this.number])} in ${stride} steps`;
    if (this.validated) { const v = validations.findLast(v => v[0] <= p[0]); if (v) text += `\nvalidation ${digits(v[1])} (step ${count(v[0])})`; }
    this.tip.textContent = text;
    this.tip.style.left = Math.max(0, x + 12 + this.tip.offsetWidth > this.svg.clientWidth ? x - 12 - this.tip.offsetWidth : x + 12) + "px";
    this.cross.append(node("line", { class: "cross", x1: x, x2: x, y1: 6, y2: this.height - 22 }));
    if (is(value)) this.cross.append(node("circle", { cx: x, cy: this.down(this.smooth[at]), r: 4, style: "fill: var(--one)" }));
  }
}
const charts = [new Chart("Loss", 0, 270, true), new Chart("Learning rate", 1, 180), new Chart("Gradient norm", 2, 180), new Chart("Throughput", 3, 180, false, " tokens/s")];
$("smooth").addEventListener("input", () => { factor = +$("smooth").value; $("factor").textContent = factor.toFixed(2); for (const chart of charts) chart.draw(); });

function showNumbers(s) {
  const l = s.last || {}, all = [["Loss", is(l.loss) ? l.loss.toFixed(4) : s.last ? "not finite" : none], ["Validation loss", is(s.validation_loss) ? s.validation_loss.toFixed(4) : none],
    ["Tokens/s", is(l.tokens_per_second) ? count(Math.round(l.tokens_per_second)) : none], ["MFU", is(l.mfu) ? (100 * l.mfu).toFixed(1) + " %" : none], ["Learning rate", digits(l.learning_rate)],
    ["Gradient norm", digits(l.gradient_norm)], ["Step time", quick(l.step_seconds)], ["Waits for data", quick(l.data_seconds)], ["Tokens seen", is(l.tokens_seen) ? short(l.tokens_seen) : none]];
  if (is(l.loss_scale)) all.push(["Loss scale", digits(l.loss_scale)]);
  if (s.skipped) all.push(["Skipped updates", count(s.skipped)]);
  const list = $("numbers");
  while (list.children.length > all.length) list.lastChild.remove();
  all.forEach(([name, value], i) => {
    if (!list.children[i]) { const pair = make("div"); pair.append(make("dt"), make("dd")); list.append(pair); }
    say(list.children[i].children[0], name);
    say(list.children[i].children[1], value);
  });
}
function showHead(s) {
  say($("title"), s.title);
  const facts = s.facts.concat([["started", clock(s.start_time)]]);
  if ($("facts").childElementCount !== facts.length) $("facts").replaceChildren(...facts.map(([name, value]) => make("span", `${name}: ${value}`)));
  const share = s.steps > 0 ? Math.min(1, s.step / s.steps) : 0, percent = Math.floor(100 * share);
  $("bar").setAttribute("aria-valuenow", percent);
  $("bar").firstElementChild.style.width = 100 * share + "%";
  say($("steps"), s.steps > 0 ? `step ${count(s.step)} of ${count(s.steps)} (${percent} %)` : "no step yet");
  say($("left"), [s.last && s.last.elapsed_seconds ? span(s.last.elapsed_seconds) + " trained" : "", s.last && is(s.last.seconds_left) && !s.end && s.step < s.steps ? span(s.last.seconds_left) + " left" : ""].filter(x => x).join(", "));
  document.title = (s.steps > 0 ? percent + " % " : "") + (s.last && is(s.last.loss) ? "loss " + s.last.loss.toFixed(3) + " " : "") + s.title;
  showState(s.end ? s.end : s.doing, s.end === "failed" ? "bad" : s.end ? "quiet" : "");
}
function showState(text, kind) { say($("state"), text); $("state").className = kind; }

const HEADS = ["Rank", "Host", "Does", "Step", "Step time", "Waits for ranks", "Waits for data", "Memory"];
$("heads").replaceChildren(...HEADS.map(name => { const th = make("th", name); th.scope = "col"; return th; }));
const late = [];
function showRanks(s) {
  const body = $("ranks"), own = r => is(r.step_seconds) ? r.step_seconds - (r.exchange_seconds || 0) : null;
  $("ranks-section").hidden = !s.ranks.length;
  say($("heard"), is(s.ranks_heard) ? "heard " + (s.ranks_heard < 3 ? "just now" : span(s.ranks_heard) + " ago") : "");
  $("heard").style.color = s.ranks_heard > 5 ? "var(--bad)" : "";
  const times = s.ranks.map(own).filter(is).sort((a, b) => a - b), usual = times[Math.floor((times.length - 1) / 2)];
  while (body.children.length > s.ranks.length) body.lastChild.remove();
  s.ranks.forEach((r, i) => {
    if (!body.children[i]) { const tr = make("tr"); tr.append(...HEADS.map(name => { const td = make("td"); td.dataset.name = name; return td; })); body.append(tr); }
    // It computes longer than most do, in more than one step: a long one is in several answers.
    late[i] = late[i] || { step: null, times: 0 };
    if (late[i].step !== r.step) late[i] = { step: r.step, times: is(own(r)) && own(r) > 1.25 * usual && own(r) > usual + 0.005 ? late[i].times + 1 : 0 };
    const slow = late[i].times > 2;
    const cells = [r.rank, `${r.host} (${r.process})`, r.doing + (r.doing_seconds >= 5 && r.doing !== "training" ? " for " + span(r.doing_seconds) : ""), is(r.step) ? count(r.step) : none,
      quick(r.step_seconds) + (slow ? " (slow)" : ""), quick(r.exchange_seconds), quick(r.data_seconds), bytes(r.memory_bytes)];
    cells.forEach((text, c) => say(body.children[i].children[c], String(text)));
    body.children[i].children[4].className = slow ? "slow" : "";
  });
}
function showMemory(s) {
  $("memory-section").hidden = !s.memory.length;
  say($("resident"), s.last ? "resident now: " + bytes(s.last.memory_bytes) : "");
  if ($("parts").childElementCount === s.memory.length + 1) return;
  const total = s.memory.reduce((sum, part) => sum + part[1], 0);
  $("memory").replaceChildren(...s.memory.map(([, size], i) => { const part = make("div"); part.style.flex = String(size); part.style.background = `var(--m${i % 5})`; return part; }));
  $("parts").replaceChildren(...s.memory.map(([name, size], i) => { const e = make("span"), mark = make("i"); mark.style.background = `var(--m${i % 5})`; e.append(mark, `${name} ${bytes(size)}`); return e; }), make("span", "together " + bytes(total)));
}
let lastEvents = "";
function showEvents(s) {
  const now = JSON.stringify(s.events);
  if (now === lastEvents) return;
  lastEvents = now;
  $("events").replaceChildren(...s.events.reverse().map(([time, level, message]) => {
    const li = make("li", undefined, level > 2 ? "error" : ""), text = make("span");
    if (level > 1) text.append(make("b", level > 2 ? "Error " : "Warning "));
    text.append(message);
    li.append(make("time", clock(time)), text);
    return li;
  }));
}

// What the run has to say, once a second; less often where nobody looks.
const base = location.pathname.replace(/\/*$/, "/");
let timer = 0, asking = false, answered = 0, ended = "";
async function ask() {
  clearTimeout(timer);
  if (asking) return;
  asking = true;
  let wait = document.hidden ? 5000 : 1000;
  try {
    const reply = await fetch(`${base}state/${curve}/${points.length}`, { signal: AbortSignal.timeout(10000) });
    if (!reply.ok) throw new Error(reply.status);
    const s = await reply.json();
    points.length = s.first;
    for (const point of s.points) points.push(point);
    stride = s.stride;
    curve = s.curve;
    validations = s.validations;
    answered = Date.now() / 1000;
    ended = s.end || (s.steps > 0 && s.step >= s.steps ? "ended" : "");
    showHead(s);
    showNumbers(s);
    showRanks(s);
    showMemory(s);
    showEvents(s);
    for (const chart of charts) chart.draw();
  } catch (error) {
    wait = 3000;
    showState(ended || (answered ? "no answer since " + clock(answered) + ": the run has ended, or began again, at the address in its log" : "no answer"), ended === "ended" ? "quiet" : "bad");
  }
  asking = false;
  timer = setTimeout(ask, wait);
}
document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
ask();
)js";

}  // namespace tessera
