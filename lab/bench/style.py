# SPDX-License-Identifier: GPL-2.0-only
"""What the suite's page adds to the common style sheet."""

from lab.report.style import CSS as COMMON

CSS = (
    COMMON
    + """
:root { --madvise: #8d7bb0; --only64: #4d82bd; --shrinker: #b5653a; --headroom: #77a832;
  --fixed: #a3873b; --database: #2f8f9d; --small-services: #c06c9b; --vm-host: #7a7f3d;
  --only16: #9db8d9; --only32: #759dcb; --only64-2m: #2d5f97; --oracle: #5b5f66; --mthp_madvise: #4aa58c; }
@media (prefers-color-scheme: dark) { :root {
  --madvise: #a593cc; --only64: #6fa1d8; --shrinker: #cf8257; --headroom: #93c253;
  --fixed: #c4a85a; --database: #55b3c0; --small-services: #d98fb8; --vm-host: #a0a65c;
  --only16: #b9cfe8; --only32: #93b7de; --only64-2m: #4d82bd; --oracle: #c9ccd1; --mthp_madvise: #6cc4ab; } }
.dot.madvise { background: var(--madvise); } .dot.only64 { background: var(--only64); }
.dot.shrinker { background: var(--shrinker); } .dot.headroom { background: var(--headroom); }
rect.madvise { fill: var(--madvise); } rect.only64 { fill: var(--only64); }
rect.shrinker { fill: var(--shrinker); } rect.headroom { fill: var(--headroom); }
.dot.fixed { background: var(--fixed); } rect.fixed { fill: var(--fixed); }
.dot.database { background: var(--database); } rect.database { fill: var(--database); }
.dot.small-services { background: var(--small-services); } rect.small-services { fill: var(--small-services); }
.dot.vm-host { background: var(--vm-host); } rect.vm-host { fill: var(--vm-host); }
.dot.only16 { background: var(--only16); } rect.only16 { fill: var(--only16); }
.dot.only32 { background: var(--only32); } rect.only32 { fill: var(--only32); }
.dot.only64-2m { background: var(--only64-2m); } rect.only64-2m { fill: var(--only64-2m); }
.dot.oracle { background: var(--oracle); } rect.oracle { fill: var(--oracle); }
.dot.mthp_madvise { background: var(--mthp_madvise); } rect.mthp_madvise { fill: var(--mthp_madvise); }
.rate.madvise { fill: var(--madvise); } .rate.only16 { fill: var(--only16); } .rate.only32 { fill: var(--only32); }
.rate.only64 { fill: var(--only64); } .rate.only64-2m { fill: var(--only64-2m); }
.rate.shrinker { fill: var(--shrinker); } .rate.headroom { fill: var(--headroom); } .rate.fixed { fill: var(--fixed); }
.heat td { text-align: center; padding: 6px 8px; } .heat th { white-space: normal; }
.heat thead th { text-align: center; font-size: 13px; } .heat thead th:first-child { text-align: left; }
.heat td { border: 1px solid var(--paper); color: #1d1f23; } .heat td.nothing { color: var(--soft); }
.heat td b { font-weight: 700; } .heat small { display: block; font-size: 11px; opacity: 0.75; }
.heat .policy { border-left: 3px solid var(--paper); }
.card b.bad { color: var(--always); }
.figures { font-size: 13px; } .figures th, .figures td { padding: 4px 9px; }
.figures small { display: block; color: var(--soft); font-size: 11px; }
.words :is(td, th):nth-child(-n+3) { text-align: left; }
.figures td.best { font-weight: 700; }
nav { font-size: 13.5px; margin: 18px 0 0; line-height: 1.9; } nav a { margin-right: 16px; white-space: nowrap; }
/* The heat map has a column for each arm. */
@media screen { main { max-width: 1360px; } }
a { color: inherit; text-decoration-color: var(--line); text-underline-offset: 3px; }
@media print { .figures, .heat { font-size: 10.5px; } .figures th, .figures td, .heat td { padding: 2px 4px; }
  nav { display: none; } section { break-inside: auto; } tr, .grid svg { break-inside: avoid; }
  .heat td { line-height: 1.15; } .cards { margin-top: 12px; } h2 { margin-top: 20px; }
  .scroll { overflow: visible; } @page { size: A4 landscape; margin: 12mm; } }
"""
)
