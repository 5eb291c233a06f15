# SPDX-License-Identifier: GPL-2.0-only
"""The charts of the pages, as inline SVG. Colours are CSS classes, so that light and dark come from the page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 340


@dataclass(frozen=True)
class Bar:
    """One bar: `value` None is drawn as a note instead."""

    label: str
    css: str
    value: float | None
    text: str
    least: float | None = None
    most: float | None = None


def _log_needed(values: Sequence[float]) -> bool:
    return bool(values) and min(values) > 0 and max(values) / min(values) > 15


def bars(title: str, unit: str, rows: Sequence[Bar], hint: str) -> str:
    """Horizontal bars with their values; logarithmic, and labelled so, when the values are far apart."""
    values = [row.value for row in rows if row.value is not None]
    log = _log_needed(values)
    left, right, top, step = 118, 84, 26, 22
    height = top + step * len(rows) + 6
    room = WIDTH - left - right
    # Whiskers reach beyond the medians that the bars show.
    top_value = max([*values, *(row.most for row in rows if row.most is not None)], default=1.0) or 1.0
    floor = 10 ** math.floor(math.log10(min(values))) if log else 0.0

    def x(value: float) -> float:
        if log:
            return room * math.log10(max(value, floor) / floor) / max(math.log10(top_value / floor), 1e-9)
        return room * value / top_value

    scale = f", {unit}" if unit else ""
    out = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">',
        f'<text x="0" y="13" class="t">{escape(title)}<tspan class="u">{escape(scale)}'
        f"{' (log scale)' if log else ''} {escape(hint)}</tspan></text>",
    ]
    for i, row in enumerate(rows):
        y = top + i * step
        out.append(f'<text x="{left - 8}" y="{y + 12}" class="l" text-anchor="end">{escape(row.label)}</text>')
        if row.value is None:
            out.append(f'<text x="{left}" y="{y + 12}" class="n">{escape(row.text)}</text>')
            continue
        width = max(1.5, x(row.value))
        out.append(f'<rect x="{left}" y="{y}" width="{width:.1f}" height="15" rx="2" class="{row.css}"/>')
        end = width
        if row.least is not None and row.most is not None and row.most > row.least:
            low, high = left + x(row.least), left + x(row.most)
            out.append(f'<path d="M{low:.1f} {y + 7.5}H{high:.1f}" class="whisker"/>')
            end = max(end, high - left)
        out.append(f'<text x="{left + end + 5:.1f}" y="{y + 12}" class="v">{escape(row.text)}</text>')
    return "\n".join([*out, "</svg>"])


@dataclass(frozen=True)
class Band:
    """From `start` to `end`: what the policy allowed at page fault."""

    start: float
    end: float
    css: str
    text: str


@dataclass(frozen=True)
class Event:
    """A moment worth a mark."""

    t: float
    text: str


def timeline(
    span: float,
    memory: Sequence[tuple[float, float]],
    limit: Sequence[tuple[float, float]],
    stall: Sequence[tuple[float, float]],
    bands: Sequence[Band],
    events: Sequence[Event],
    large: Sequence[tuple[float, float]] = (),
) -> str:
    """Memory against its limit above, stall share below, the policy's decision as a strip between them. `memory`, what
    of it is in `large` folios, and `limit` (from when on it holds; inf: none) in bytes, `stall` from 0 to 1, times in
    seconds of guest time."""
    width, left, right = 520, 44, 10
    room = width - left - right
    high, strip, low = 84, 14, 46
    top, y_strip = 8, 8 + 84 + 6
    y_low = y_strip + strip + 6
    height = y_low + low + 20
    peak = max([1.0, *(value for _, value in (*limit, *memory) if value != math.inf)]) * 1.05

    def x(t: float) -> float:
        return left + room * min(max(t, 0.0), span) / span

    out = [f'<svg class="time" viewBox="0 0 {width} {height}" role="img" aria-label="time line">']
    out.append(f'<rect x="{left}" y="{top}" width="{room}" height="{high}" class="plot"/>')
    out.append(f'<rect x="{left}" y="{y_low}" width="{room}" height="{low}" class="plot"/>')
    for series, css in ((memory, "mem"), (large, "large")):
        if any(value for _, value in series):
            points = " ".join(f"{x(t):.1f},{top + high * (1 - min(value / peak, 1)):.1f}" for t, value in series)
            first, last = x(series[0][0]), x(series[-1][0])
            out.append(f'<polygon points="{first:.1f},{top + high} {points} {last:.1f},{top + high}" class="{css}"/>')
    for i, (since, value) in enumerate(limit):
        if value == math.inf:
            continue
        until = limit[i + 1][0] if i + 1 < len(limit) else span
        y = top + high * (1 - value / peak)
        out.append(f'<path d="M{x(since):.1f} {y:.1f}H{x(until):.1f}" class="limit"/>')
    marks = sorted({value for _, value in limit if value != math.inf}) or [peak / 1.05]
    for value in marks:
        y = top + high * (1 - value / peak)
        out.append(f'<text x="{left - 4}" y="{y + 4:.1f}" class="a" text-anchor="end">{value / 2**20:.0f}M</text>')
    out.append(f'<text x="{left - 4}" y="{top + high}" class="a" text-anchor="end">0</text>')
    out.append(f'<rect x="{left}" y="{y_strip}" width="{room}" height="{strip}" class="off"/>')
    for band in bands:
        begin, end = x(band.start), x(band.end)
        out.append(
            f'<rect x="{begin:.1f}" y="{y_strip}" width="{max(0.8, end - begin):.1f}" height="{strip}" '
            f'class="{band.css}"><title>{escape(band.text)}</title></rect>'
        )
    before = 0.0
    for t, share in stall:
        begin, end = x(before), x(t)
        tall = low * share
        if tall > 0.2:
            out.append(
                f'<rect x="{begin:.1f}" y="{y_low + low - tall:.1f}" width="{max(0.5, end - begin):.1f}" '
                f'height="{tall:.1f}" class="stall"/>'
            )
        before = t
    out.append(f'<text x="{left - 4}" y="{y_low + 9}" class="a" text-anchor="end">100%</text>')
    out.append(f'<text x="{left - 4}" y="{y_low + low}" class="a" text-anchor="end">stall</text>')
    for event in events:
        at = x(event.t)
        out.append(f'<path d="M{at:.1f} {top}V{y_low + low}" class="event"/>')
        anchor = "end" if at > left + room * 0.6 else "start"
        shift = -4 if anchor == "end" else 4
        out.append(
            f'<text x="{at + shift:.1f}" y="{top + 12}" class="e" text-anchor="{anchor}">{escape(event.text)}</text>'
        )
    for share in (0.0, 0.5, 1.0):
        anchor = ("start", "middle", "end")[int(share * 2)]
        place = f'x="{left + room * share:.1f}" y="{height - 5}" class="a" text-anchor="{anchor}"'
        out.append(f"<text {place}>{span * share:.3g} s</text>")
    return "\n".join([*out, "</svg>"])
