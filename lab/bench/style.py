# SPDX-License-Identifier: GPL-2.0-only
"""What the suite's page adds to the common style sheet."""

from zlib import crc32

from lab.bench.arms import ARM
from lab.report.style import CSS as COMMON

_OWN = {
    "madvise": ("#8d7bb0", "#a593cc"),
    "only16": ("#9db8d9", "#b9cfe8"),
    "only32": ("#759dcb", "#93b7de"),
    "only64": ("#4d82bd", "#6fa1d8"),
    "only64-2m": ("#2d5f97", "#4d82bd"),
    "shrinker": ("#b5653a", "#cf8257"),
    "oracle": ("#5b5f66", "#c9ccd1"),
    "mthp_madvise": ("#4aa58c", "#6cc4ab"),
    "headroom": ("#77a832", "#93c253"),
    "fixed": ("#a3873b", "#c4a85a"),
    "database": ("#2f8f9d", "#55b3c0"),
    "small-services": ("#c06c9b", "#d98fb8"),
    "vm-host": ("#7a7f3d", "#a0a65c"),
    "splits": ("#8a6f5a", "#b5977f"),
}
"""Arm -> its colour on light and on dark paper, where another than that of its name is easier to tell apart."""


def colours(arm: str) -> tuple[str, str]:
    """On light and on dark paper."""
    hue = crc32(arm.encode()) % 360
    return _OWN.get(arm, (f"hsl({hue} 45% 45%)", f"hsl({hue} 50% 65%)"))


def _sheet(arms: dict[str, tuple[str, str]]) -> str:
    light, dark = ("".join(f" --{arm}: {pair[at]};" for arm, pair in arms.items()) for at in (0, 1))
    uses = "".join(
        f".dot.{arm} {{ background: var(--{arm}); }} rect.{arm}, .rate.{arm} {{ fill: var(--{arm}); }}\n"
        for arm in arms
    )
    return f":root {{{light} }}\n@media (prefers-color-scheme: dark) {{ :root {{{dark} }} }}\n{uses}"


CSS = (
    COMMON
    + _sheet({arm: colours(arm) for arm in ARM if f".dot.{arm} " not in COMMON})
    + """
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
