# SPDX-License-Identifier: GPL-2.0-only
"""The style sheet of the pages."""

CSS = """
:root { color-scheme: light dark;
  --paper: #fbfaf8; --card: #ffffff; --ink: #1d1f23; --soft: #626873; --line: #dcd9d2;
  --always: #c8452f; --never: #8a909b; --reactive: #d99a1c; --mthp: #1b7f63;
  --mem: #c9d8ee; --stall: #c8452f; --huge: #1b7f63; --middle: #6cae7a; --little: #e3c25a; --base: #8a909b; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #16181c; --card: #1e2127; --ink: #e8e6e1; --soft: #9aa0ab; --line: #343841;
  --always: #e5694f; --never: #7d8491; --reactive: #e2ad45; --mthp: #37b08d;
  --mem: #2f4a70; --stall: #e5694f; --huge: #37b08d; --middle: #4f8f63; --little: #c9a63f; --base: #6d7480; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 32px 20px 60px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 6px; letter-spacing: -0.01em; }
h2 { font-size: 20px; margin: 44px 0 10px; padding-top: 14px; border-top: 1px solid var(--line); }
h3 { font-size: 15px; margin: 22px 0 8px; }
header p, .note { color: var(--soft); margin: 6px 0; max-width: 78ch; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(210px, 1fr)); gap: 14px; margin: 26px 0 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px; }
.card b { display: block; font-size: 30px; line-height: 1.15; color: var(--mthp); font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: 13.5px; }
.scroll { overflow-x: auto; margin: 14px 0 4px; }
table { border-collapse: collapse; width: 100%; background: var(--card); border: 1px solid var(--line);
  font-variant-numeric: tabular-nums; font-size: 14px; }
th, td { padding: 6px 12px; text-align: right; border-top: 1px solid var(--line); white-space: nowrap; }
thead th { border-top: 0; font-weight: 600; background: color-mix(in srgb, var(--line) 35%, transparent); }
th:first-child { text-align: left; font-weight: 500; }
thead th:first-child { font-weight: 700; }
td small { font-size: 12px; } .good { color: var(--mthp); } .bad { color: var(--always); }
.same { color: var(--soft); }
td.none { color: var(--soft); }
.gates td:nth-child(2), .gates th:nth-child(2) { text-align: left; white-space: normal; }
.gates td:first-child { text-align: left; font-weight: 600; }
tr.ok td:first-child { color: var(--mthp); } tr.failed td { color: var(--always); }
tr.unjudged td { color: var(--soft); }
.plain th { width: 1%; } .plain td { text-align: left; white-space: normal; }
.fates { margin: 4px 0 18px; padding: 0; list-style: none; color: var(--soft); font-size: 13.5px; }
.dot { display: inline-block; width: 9px; height: 9px; border-radius: 50%; margin-right: 7px; }
.dot.always { background: var(--always); } .dot.never { background: var(--never); }
.dot.reactive { background: var(--reactive); } .dot.mthp_ext { background: var(--mthp); }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(320px, 1fr)); gap: 18px 26px; }
.grid.wide { grid-template-columns: repeat(auto-fill, minmax(430px, 1fr)); }
figure { margin: 0; } figcaption { font-size: 13.5px; margin-bottom: 2px; }
svg { width: 100%; height: auto; display: block; } svg text { font: 11px system-ui, sans-serif; fill: var(--ink); }
svg .t { font-weight: 600; font-size: 12.5px; } svg .u, svg .l, svg .a, svg .n { fill: var(--soft); }
svg .u { font-weight: 400; font-size: 11px; } svg .n { font-style: italic; }
svg .e { font-weight: 600; fill: var(--always); }
rect.always { fill: var(--always); } rect.never { fill: var(--never); } rect.reactive { fill: var(--reactive); }
rect.mthp_ext { fill: var(--mthp); } .whisker { stroke: var(--ink); stroke-width: 1.5; fill: none; }
.plot { fill: var(--card); stroke: var(--line); } .mem { fill: var(--mem); }
.large { fill: var(--huge); opacity: 0.55; }
.stall { fill: var(--stall); opacity: 0.75; }
.limit { stroke: var(--ink); stroke-dasharray: 4 3; fill: none; } .event { stroke: var(--always); fill: none; }
rect.huge, .key.huge { fill: var(--huge); background: var(--huge); }
rect.middle, .key.middle { fill: var(--middle); background: var(--middle); }
rect.little, .key.little { fill: var(--little); background: var(--little); }
rect.base, .key.base { fill: var(--base); background: var(--base); }
rect.off, .key.off { fill: transparent; stroke: var(--line); background: transparent; outline: 1px solid var(--line); }
svg.rates { max-width: 860px; } svg .l2 { font-weight: 600; } svg .l2 .u { font-weight: 400; }
svg .m { fill: var(--ink); font-weight: 600; } .rate { opacity: 0.85; }
.rate.always { fill: var(--always); } .rate.never { fill: var(--never); } .rate.reactive { fill: var(--reactive); }
.rate.mthp_ext { fill: var(--mthp); }
.legend span { margin-right: 18px; font-size: 13.5px; white-space: nowrap; }
.key { display: inline-block; width: 14px; height: 10px;
  border-radius: 2px; margin-right: 6px; }
@media print { body { background: #fff; } main { max-width: none; padding: 0; }
section, figure, .card, svg { break-inside: avoid; }
  h2 { break-after: avoid; } * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""
