# SPDX-License-Identifier: GPL-2.0-only
"""The report as Markdown, for results/DATE/tables.md."""

from collections.abc import Sequence
from typing import Any

from lab.bench import published
from lab.bench.compare import LEFT_OUT, ablated, ablation, sweeps, tlb_lines
from lab.bench.table import Table
from lab.bench.text import ONCE, case_table, clock_line, heat_map, not_modelled, warnings
from lab.report.parts import NO_MERIT, NOTE, gate_value, grid, order, state, total_of
from lab.report.stats import INTERVAL
from lab.results import Gate


def render(table: Table, gates: Sequence[Gate], environment: dict[str, Any]) -> str:
    """The whole document."""
    missing, mode = not_modelled(environment), str(environment["qemu_mode"])
    parts = [
        "<!-- SPDX-License-Identifier: GPL-2.0-only -->\n# Results",
        " ".join(
            part
            for part in [
                "Written by `make bench`: see [what it measures](../../docs/internals/bench.md) and",
                "[how to read the figures](../../docs/results.md#how-to-read-the-figures).",
                *([] if mode == "icount" else [NOTE[mode]]),
                clock_line(table).replace("\n", " "),
                *warnings(environment),
            ]
            if part
        ),
        "## Regret\n\nAn arm's result divided by that of the best static setting of its row (*); 1 means nobody could "
        f"have chosen better by hand. {ONCE}.\n\n" + "\n".join(heat_map(table)),
        *_published(table),
        *_variants(table),
        f"## Scenarios\n\nMedians; in brackets {INTERVAL}.",
        *(f"### {world.title}\n\n" + _block(case_table(table, world)) for world in table.worlds),
        *_gates(gates),
        "## What emulation does not model\n\n" + "\n".join(f"- {line}" for line in missing) if missing else "",
        "## Environment\n\n"
        + "\n".join(grid([["what", "value"], *([str(k), str(v)] for k, v in environment.items() if v is not None)])),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _block(lines: Sequence[str]) -> str:
    table = [line for line in lines if line.startswith("|")]
    fates = [f"- {line.strip()}" for line in lines if not line.startswith("|")]
    return "\n".join(table) + ("\n\n" + "\n".join(fates) if fates else "")


def _gates(gates: Sequence[Gate]) -> list[str]:
    if not gates:
        return []
    rest = [one for one in gates if not one.counts]
    shown = "\n".join(grid(_gate_rows([one for one in gates if one.counts])))
    apart = [f"### {NO_MERIT}\n\n" + "\n".join(grid(_gate_rows(rest)))] if rest else []
    return [f"## Gates\n\n{total_of(gates)}.\n\n{shown}", *apart]


def _gate_rows(gates: Sequence[Gate]) -> list[list[str]]:
    rows = [["", "figure", "value", "bound"]]
    for one in sorted(gates, key=order):
        rows.append([state(one, "ok", "**missed**", "undecided", "not judged"), one.name, gate_value(one), one.bound])
    return rows


def _variants(table: Table) -> list[str]:
    parts = []
    if removed := ablation(table):
        parts += [
            "## Rules taken away\n\nThe default policy without one of its rules, in the cases that the rule is there "
            f"for. {LEFT_OUT}\n\n" + _block([*grid(removed), *tlb_lines(table, ablated(table))])
        ]
    swept = [
        f"**{option}**, {world.key}\n\n" + _block([*grid(rows), *tlb_lines(table, [world])])
        for option, world, rows in sweeps(table)
    ]
    if swept:
        parts += ["## Constants varied\n\nThe default in bold.", *swept]
    return parts


def _published(table: Table) -> list[str]:
    rows = published.grid(table, "classic")
    if not rows:
        return []
    return [
        "## The proposal's published figures beside ours\n\n" + "\n".join(grid(rows)),
        "Ratio of ratios: (our reactive / our never) / (their policy / their never); 1 where emulation shows what "
        'their hardware (Ryzen 9 9950X) showed. "Ours by never": our `always` was not run, or did not finish.',
    ]
