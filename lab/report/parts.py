# SPDX-License-Identifier: GPL-2.0-only
"""Parts of a report that do not depend on what was measured."""

from collections.abc import Mapping, Sequence
from html import escape

from lab.results import Gate

NOTE = {
    "icount": "Guest time is counted in instructions (1 instruction = 1 ns) under emulation, which models no TLB and\n"
    "no cache: the figures show how much work is done, not how fast your machine is. Equal runs differ, too:\n"
    "docs/results.md says by how much.",
    "tcg": "Emulated, with the host's own noise and without a model of TLB and cache: read the order, not the figures.",
    "kvm": "Measured under KVM on this host.",
}


def gate_value(one: Gate) -> str:
    """A gate's value as it is shown."""
    if one.value is None:
        return "not measured"
    return one.value if isinstance(one.value, str) else f"{one.value:.4g}"


def gate_lines(gates: Sequence[Gate]) -> list[str]:
    """The gates as a list."""
    return [f"  {'ok  ' if one.ok else 'FAIL'}  {one.name}: {gate_value(one)} ({one.bound})" for one in gates]


def gates_section(gates: Sequence[Gate]) -> str:
    """The gates as a section of a page; empty without any."""
    if not gates:
        return ""
    rows = "".join(
        f"<tr class='{'ok' if one.ok else 'failed'}'><td>{'ok' if one.ok else 'FAILED'}</td>"
        f"<td>{escape(one.name)}</td><td>{escape(gate_value(one))}</td><td>{escape(one.bound)}</td></tr>"
        for one in gates
    )
    return (
        "<section><h2>Gates</h2><div class='scroll'><table class='gates'><thead><tr><th></th><th>figure</th>"
        f"<th>value</th><th>bound</th></tr></thead><tbody>{rows}</tbody></table></div></section>"
    )


def environment_section(rows: Mapping[str, object]) -> str:
    """The environment as a section of a page."""
    body = "".join(
        f"<tr><th>{escape(str(name))}</th><td>{escape(str(value))}</td></tr>"
        for name, value in rows.items()
        if value is not None
    )
    return f"<section><h2>Environment</h2><div class='scroll'><table class='plain'>{body}</table></div></section>"


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
