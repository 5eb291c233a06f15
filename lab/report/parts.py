# SPDX-License-Identifier: GPL-2.0-only
"""Parts of a report that do not depend on what was measured."""

import textwrap
from collections.abc import Mapping, Sequence
from html import escape

from lab.results import Gate

NOTE = {
    "icount": "Emulated: time is counted in instructions (1 instruction = 1 ns); it knows no TLB and no cache. Ratios\n"
    "show how much work the kernel does, not how fast a machine is. docs/results.md says how well runs repeat.",
    "tcg": "Emulated, with the host's own noise and without a model of TLB and cache: read the order, not the figures.",
    "kvm": "Measured under KVM on this host.",
}
"""What the figures of each mode are worth: said here and nowhere else."""


def clock_note(cut: Sequence[str]) -> str:
    """What a reader must know of the cells that the clock of this machine `cut` short; empty without any."""
    if not cut:
        return ""
    return textwrap.fill(
        f"The clock of this machine stopped: {'; '.join(cut)}. Such a rate is that of what was served until then; "
        "over a limit, that of all requests would be less. Gates that this leaves open were not judged.",
        width=110,
    )


def gate_value(one: Gate) -> str:
    """A gate's value as it is shown."""
    if one.value is None:
        return "not measured"
    if not one.judged:
        return f"not judged, {one.value}"
    return one.value if isinstance(one.value, str) else f"{one.value:.4g}"


def gate_lines(gates: Sequence[Gate]) -> list[str]:
    """The gates as a list."""
    return [
        f"  {state(one, 'ok  ', 'FAIL', '?   ', '-   ')}  {one.name}: {gate_value(one)} ({one.bound})" for one in gates
    ]


NO_MERIT = "Held, and could not have failed here: no part of the total"


def gate_report(gates: Sequence[Gate]) -> list[str]:
    """The gates under headings with totals, those that could not fail apart."""
    counted, rest = [one for one in gates if one.counts], [one for one in gates if not one.counts]
    lines = [f"Gates: {total_of(gates)}", *gate_lines(counted)]
    return lines + ([NO_MERIT, *gate_lines(rest)] if rest else [])


def total_of(gates: Sequence[Gate]) -> str:
    """How many hold, in words."""
    judged = [one for one in gates if one.judged and one.counts]
    open_, left = sum(not one.decided for one in judged), sum(not one.judged for one in gates)
    more = [f"{open_} undecided"] * bool(open_) + [f"{left} not judged"] * bool(left)
    return ", ".join([f"{sum(one.ok for one in judged)} of {len(judged)} hold", *more])


def state(one: Gate, ok: str, missed: str, undecided: str, unjudged: str) -> str:
    """The word for what became of a gate."""
    return ok if one.ok else missed if one.missed else undecided if one.judged else unjudged


def order(one: Gate) -> int:
    """Sorts gates: missed, undecided, not judged, held."""
    return ("missed", "undecided", "unjudged", "ok").index(state(one, "ok", "missed", "undecided", "unjudged"))


def gates_section(gates: Sequence[Gate]) -> str:
    """The gates as a section of a page; empty without any."""
    if not gates:
        return ""
    rest = [one for one in gates if not one.counts]
    apart = f"<details><summary>{NO_MERIT} ({len(rest)})</summary>{_gate_table(rest)}</details>" if rest else ""
    shown = _gate_table([one for one in gates if one.counts])
    return f"<section><h2>Gates: {total_of(gates)}</h2>{shown}{apart}</section>"


def _gate_table(gates: Sequence[Gate]) -> str:
    rows = "".join(
        f"<tr class='{state(one, 'ok', 'failed', 'unjudged', 'unjudged')}'>"
        f"<td>{state(one, 'ok', 'FAILED', 'undecided', '-')}</td>"
        f"<td>{escape(one.name)}</td><td>{escape(gate_value(one))}</td><td>{escape(one.bound)}</td></tr>"
        for one in gates
    )
    return (
        "<div class='scroll'><table class='gates'><thead><tr><th></th><th>figure</th>"
        f"<th>value</th><th>bound</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def environment_section(rows: Mapping[str, object]) -> str:
    """The environment as a section of a page."""
    body = "".join(
        f"<tr><th>{escape(str(name))}</th><td>{escape(str(value))}</td></tr>"
        for name, value in rows.items()
        if value is not None
    )
    return f"<section><h2>Environment</h2><div class='scroll'><table class='plain'>{body}</table></div></section>"


def number(value: float, unit: str = "") -> str:
    """Four significant digits at the most, thousands grouped."""
    if unit == "share":
        return f"{value * 100:.1f}%"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value == int(value) else f"{value:.4g}"


def grid(rows: Sequence[Sequence[str]], *, right: bool = False) -> list[str]:
    """A Markdown table with aligned columns; the first row is its head. `right`: figures end below each other."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    pads = [str.ljust, *[str.rjust if right else str.ljust] * (len(widths) - 1)]
    lines = [
        "| " + " | ".join(pad(field, width) for pad, field, width in zip(pads, row, widths, strict=True)) + " |"
        for row in rows
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]


BANDS = (
    ("huge", "2 MiB and all smaller sizes"),
    ("middle", "128 KiB to 1 MiB"),
    ("little", "16 to 64 KiB"),
    ("base", "4 KiB only"),
    ("off", "no policy"),
)
"""Class and meaning of a strip of a time line: what a policy allows at page fault."""


def band_css(orders: int) -> str:
    """Class of a set of orders by its largest: 9 is 2 MiB with base pages of 4 KiB."""
    largest = orders.bit_length() - 1
    return "huge" if largest >= 9 else "middle" if largest >= 5 else "little" if largest >= 2 else "base"
