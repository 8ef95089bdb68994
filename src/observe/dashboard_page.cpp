#include "observe/dashboard_page.h"

#include "base/markup.h"
#include "base/text.h"

namespace tessera {
namespace {

// Browsers ask for an icon where a page has none.
constexpr std::string_view kStyle = R"html(<link rel="icon" href="data:,">
<style>
:root { color-scheme: light dark; --back: #f4f5f8; --card: #fff; --text: #1b2230; --faint: #5d6778; --line: #e0e3ea; --track: #e6e9ef;
  --one: #2563eb; --two: #d1500a; --good: #15803d; --warning: #9a5b00; --bad: #c01f1f; --tip: #1b2230; --tip-text: #f4f5f8;
  --m0: #2563eb; --m1: #0f9b8e; --m2: #d1860a; --m3: #8b5cf6; --m4: #64748b }
@media (prefers-color-scheme: dark) { :root { --back: #0f1218; --card: #181c24; --text: #e7eaf0; --faint: #9aa4b5; --line: #2a303c; --track: #262c38;
  --one: #6ea8ff; --two: #ff9a52; --good: #4ade80; --warning: #fbbf4a; --bad: #ff7b72; --tip: #e7eaf0; --tip-text: #12151b;
  --m0: #5b93f5; --m1: #2bb8aa; --m2: #e3a43b; --m3: #a78bfa; --m4: #7b8aa3 } }
* { box-sizing: border-box }
body { margin: 0; font: 14px/1.45 system-ui, sans-serif; color: var(--text); background: var(--back); overflow-wrap: anywhere }
main { max-width: 1280px; margin: 0 auto; padding: 16px; display: grid; gap: 16px; grid-template-columns: minmax(0, 1fr) }
section, header { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px; min-width: 0 }
h1 { font-size: 20px; margin: 0 }
h2 { font-size: 14px; margin: 0 }
.row { display: flex; flex-wrap: wrap; gap: 4px 14px; align-items: center }
.apart { justify-content: space-between }
.faint, dt, th, #facts { color: var(--faint); font-size: 12.5px }
#facts { margin: 2px 0 12px; display: flex; flex-wrap: wrap; gap: 0 16px }
#state { font-weight: 600; padding: 2px 12px; border-radius: 14px; border: 1px solid currentColor; color: var(--good); font-size: 13px }
#state.quiet { color: var(--faint) } #state.bad { color: var(--bad) }
#bar { height: 10px; border-radius: 5px; background: var(--track); overflow: hidden; margin-bottom: 6px }
#bar div { height: 100%; width: 0; background: var(--one); border-radius: 5px }
#numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(108px, 1fr)); gap: 12px; margin: 14px 0 0 }
dt { margin: 0 } dd { margin: 0; font-size: 18px; font-weight: 600; font-variant-numeric: tabular-nums; line-height: 1.25 }
#charts { display: grid; gap: 16px; grid-template-columns: repeat(3, minmax(0, 1fr)) }
#charts section:first-child { grid-column: 1 / -1 }
.chart { position: relative; margin-top: 6px }
svg { display: block; width: 100%; touch-action: pan-y; border-radius: 4px; cursor: crosshair }
svg text { font: 11px system-ui, sans-serif; fill: var(--faint); font-variant-numeric: tabular-nums }
svg .grid { stroke: var(--line) } svg .cross { stroke: var(--faint) }
svg path { fill: none; stroke-linejoin: round } svg .band { stroke: none; opacity: .13 }
:focus-visible { outline: 2px solid var(--one); outline-offset: 2px }
.tip { position: absolute; top: 4px; pointer-events: none; white-space: pre; background: var(--tip); color: var(--tip-text); border-radius: 5px;
  padding: 3px 8px; font-size: 12px; font-variant-numeric: tabular-nums }
.key i { display: inline-block; width: 16px; height: 3px; border-radius: 2px; vertical-align: middle; margin-right: 5px }
#parts i { width: 11px; height: 11px }
label { display: inline-flex; gap: 8px; align-items: center }
input { accent-color: var(--one); width: 150px; margin: 0 }
#scroll { max-height: 420px; overflow-y: auto; margin-top: 8px }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums }
th { text-align: left; font-weight: 500; position: sticky; top: 0; background: var(--card) }
td, th { padding: 5px 10px 5px 0; border-bottom: 1px solid var(--line) }
tr:last-child td { border-bottom: 0 }
td.slow { color: var(--warning); font-weight: 600 }
#memory { display: flex; height: 22px; border-radius: 5px; overflow: hidden; background: var(--track); margin: 10px 0 8px; gap: 1px }
ol { list-style: none; margin: 8px 0 0; padding: 0; max-height: 420px; overflow-y: auto }
li { display: grid; grid-template-columns: 64px minmax(0, 1fr); gap: 10px; padding: 4px 0; border-bottom: 1px solid var(--line); white-space: pre-line }
li:last-child { border-bottom: 0 }
li time { color: var(--faint); font-variant-numeric: tabular-nums }
li b { color: var(--warning) } li.error b { color: var(--bad) }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap }
[hidden] { display: none !important }
@media (max-width: 900px) { #charts { grid-template-columns: minmax(0, 1fr) } }
@media (max-width: 600px) {
  main { padding: 8px; gap: 8px } #charts { gap: 8px } section, header { padding: 12px }
  #numbers { grid-template-columns: 1fr 1fr } dd { font-size: 17px }
  thead { position: absolute; clip-path: inset(50%); width: 1px; height: 1px; overflow: hidden }
  tbody tr { display: grid; grid-template-columns: 1fr 1fr; gap: 2px 10px; padding: 7px 0; border-bottom: 1px solid var(--line) }
  tr:last-child { border-bottom: 0 }
  td { border: 0; padding: 0 } td::before { content: attr(data-name) " "; color: var(--faint); font-size: 12px; font-weight: 400 }
}
@media (prefers-reduced-motion: no-preference) { #bar div { transition: width .4s } }
</style>
)html";

constexpr std::string_view kBody = R"html(</head><body><main>
<header>
<div class="row apart"><h1 id="title">tessera</h1><span id="state" class="quiet" role="status">connecting</span></div>
<div id="facts"></div>
<div id="bar" role="progressbar" aria-label="Steps" aria-valuemin="0" aria-valuemax="100"><div></div></div>
<div class="row apart"><span id="steps"></span><span id="left" class="faint"></span></div>
<dl id="numbers"></dl>
</header>
<div class="row apart"><h2>Curves</h2><label for="smooth">Smoothing <input id="smooth" type="range" min="0" max="0.99" step="0.01" value="0.6">
<output id="factor" for="smooth">0.60</output></label></div>
<div id="charts"></div>
<section aria-labelledby="ranks-title" id="ranks-section"><div class="row apart"><h2 id="ranks-title">Ranks</h2><span id="heard" class="faint"></span></div>
<div id="scroll"><table aria-labelledby="ranks-title"><thead><tr id="heads"></tr></thead><tbody id="ranks"></tbody></table></div></section>
<section aria-labelledby="memory-title" id="memory-section"><div class="row apart"><h2 id="memory-title">Planned memory of a rank</h2><span id="resident" class="faint"></span></div>
<div id="memory" aria-hidden="true"></div><div id="parts" class="row key"></div></section>
<section aria-labelledby="events-title"><h2 id="events-title">Last events</h2><ol id="events" tabindex="0" aria-labelledby="events-title"></ol></section>
<div id="said" class="unseen" aria-live="polite"></div>
</main>
<noscript><p>This page draws itself: allow it to run its script.</p></noscript>
<script>
"use strict";
)html";

}  // namespace

std::string dashboard_page() {
  return cat(page_head("tessera", "connect-src 'self'; img-src data:"), kStyle, kBody,
             kDashboardScript, "</script>\n</body></html>\n");
}

}  // namespace tessera
