# SPDX-License-Identifier: GPL-2.0-only
"""A counter's rate over time, one panel for each side of a comparison, as text and as inline SVG: what a change does to
a server while it serves."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from statistics import median


@dataclass(frozen=True)
class Line:
    """One side."""

    label: str
    css: str
    """Class of its colour."""
    counts: Sequence[tuple[float, int]]
    """(seconds, what was counted until then), in order."""
    note: str = ""
    """What it comes to, in a few words."""
    ended_s: float | None = None
    """When the server died; None: it lived."""
    until_s: float | None = None
    """When the run ended; None: with the longest. Of what comes after, nothing is known."""


@dataclass(frozen=True)
class Mark:
    """A moment at which something changes."""

    t_s: float
    text: str


def counted(counts: Sequence[tuple[float, int]], t_s: float) -> float | None:
    """What was counted until `t_s`, evenly between two readings; None before the first and after the last one."""
    for (begin, low), (end, high) in pairwise(counts):
        if begin <= t_s <= end and end > begin:
            return low + (high - low) * (t_s - begin) / (end - begin)
    return None


def rates(line: Line, span_s: float, columns: int) -> list[float | None]:
    """Mean rate in each of so many equal parts of the time; None where nothing is known. A server that lives and does
    not answer serves nobody."""
    if not line.counts:
        return [None] * columns
    width = span_s / columns
    (first, _), (last, _) = line.counts[0], line.counts[-1]
    until_s = span_s if line.until_s is None else line.until_s
    # Between two readings nothing is known, which is no silence yet.
    period = median([after[0] - before[0] for before, after in pairwise(line.counts)] or [0.0])
    found: list[float | None] = []
    for column in range(columns):
        begin, end = column * width, (column + 1) * width
        if (line.ended_s is not None and end > line.ended_s) or begin >= until_s:
            found.append(None)
        elif begin < last and end > first:
            begin, end = max(begin, first), min(end, last)
            low, high = counted(line.counts, begin), counted(line.counts, end)
            found.append(None if low is None or high is None else (high - low) / (end - begin))
        elif begin >= last and until_s - last > 3 * period:
            found.append(0.0)
        else:
            found.append(found[-1] if found else None)
    return found


def top(all_rates: Sequence[Sequence[float | None]]) -> float:
    """A round number that no rate is above."""
    most = max((rate for one in all_rates for rate in one if rate is not None), default=0.0)
    if most <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(most))
    return next(step * unit for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * unit >= most * (1 - 1e-9))


def _short(value: float) -> str:
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def as_text(lines: Sequence[Line], span_s: float, marks: Sequence[Mark], columns: int = 60, rows: int = 5) -> list[str]:
    """The panels one above the other, of plain characters: '#' for a rate, '.' where nothing was served."""
    every = [rates(line, span_s, columns) for line in lines]
    most = top(every)
    at = {min(columns - 1, int(mark.t_s / span_s * columns)): mark for mark in marks}
    margin = max([len(_short(most)), *(len(line.label) for line in lines)])
    out = []
    for line, found in zip(lines, every, strict=True):
        out.append(f"{line.label:>{margin}}   {line.note}".rstrip())
        for row in range(rows, 0, -1):
            name = _short(most) if row == rows else "0" if row == 1 else ""
            cells = (_cell(rate, row, most / rows, column in at) for column, rate in enumerate(found))
            out.append(f"{name:>{margin}} |{''.join(cells)}".rstrip())
    ruler = [" "] * columns
    for column in at:
        ruler[column] = "^"
    out.append(f"{'':{margin}}  {''.join(ruler)}".rstrip())
    for column, mark in at.items():
        text = f"{mark.text} at {mark.t_s:.1f} s of {span_s:.1f} s"
        out.append(f"{'':{margin}}  {' ' * min(column, max(0, columns - len(text)))}{text}")
    return out


def _cell(rate: float | None, row: int, step: float, marked: bool) -> str:
    filled = rate is not None and rate > (row - 0.5) * step
    if filled:
        return "#"
    if marked:
        return ":"
    # A little is not nothing.
    return "." if row == 1 and rate is not None else " "


def as_svg(title: str, lines: Sequence[Line], span_s: float, marks: Sequence[Mark]) -> str:
    """The panels one above the other, on one scale."""
    width, left, right, tall, gap, head = 720, 52, 8, 64, 26, 22
    room = width - left - right
    columns = 240
    every = [rates(line, span_s, columns) for line in lines]
    most = top(every)
    height = head + len(lines) * (tall + gap) + 16

    def x(t_s: float) -> float:
        return left + room * min(max(t_s, 0.0), span_s) / span_s

    out = [
        f'<svg class="rates" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">',
        f'<text x="0" y="13" class="t">{escape(title)}</text>',
    ]
    bottom = head
    for line, found in zip(lines, every, strict=True):
        base = bottom + gap - 6 + tall
        out.append(
            f'<text x="{left}" y="{base - tall - 5}" class="l2">{escape(line.label)}'
            f'<tspan class="u">  {escape(line.note)}</tspan></text>'
        )
        out.append(f'<rect x="{left}" y="{base - tall}" width="{room}" height="{tall}" class="plot"/>')
        for points in _pieces(found, span_s / columns):
            shape = " ".join(f"{x(t):.1f},{base - tall * min(rate / most, 1):.1f}" for t, rate in points)
            first, last = x(points[0][0]), x(points[-1][0])
            out.append(
                f'<polygon points="{first:.1f},{base} {shape} {last:.1f},{base}" class="rate {line.css}">'
                f"<title>{escape(line.label)}: {escape(line.note)}</title></polygon>"
            )
        out.append(f'<text x="{left - 4}" y="{base - tall + 9}" class="a" text-anchor="end">{_short(most)}</text>')
        out.append(f'<text x="{left - 4}" y="{base}" class="a" text-anchor="end">0</text>')
        for mark in marks:
            out.append(f'<path d="M{x(mark.t_s):.1f} {base - tall}V{base}" class="limit"/>')
        if line.ended_s is not None:
            out.append(f'<path d="M{x(line.ended_s):.1f} {base - tall}V{base}" class="event"/>')
        bottom = base
    for mark in marks:
        at = x(mark.t_s)
        anchor, shift = ("end", -4) if at > left + room * 0.6 else ("start", 4)
        out.append(f'<text x="{at + shift:.1f}" y="{head + gap - 6 + 12}" class="m" text-anchor="{anchor}">'
                   f"{escape(mark.text)}</text>")  # fmt: skip
    for share in (0.0, 0.5, 1.0):
        anchor = ("start", "middle", "end")[int(share * 2)]
        out.append(
            f'<text x="{left + room * share:.1f}" y="{height - 3}" class="a" text-anchor="{anchor}">'
            f"{span_s * share:.3g} s</text>"
        )
    return "\n".join([*out, "</svg>"])


def _pieces(found: Sequence[float | None], width: float) -> list[list[tuple[float, float]]]:
    """The outline of each stretch in which the rate is known, as steps."""
    pieces: list[list[tuple[float, float]]] = []
    known = False
    for column, rate in enumerate(found):
        if rate is not None:
            if not known:
                pieces.append([])
            pieces[-1] += [(column * width, rate), ((column + 1) * width, rate)]
        known = rate is not None
    return pieces
