# SPDX-License-Identifier: GPL-2.0-only
"""How a server served over time, by its own counter: the panels that lab/report/rateline.py draws."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from lab.bench import readers
from lab.bench.execute import fate
from lab.bench.run import Run
from lab.bench.spec import MIB
from lab.report import rateline
from lab.report.rateline import Line, Mark


@dataclass(frozen=True)
class Panels:
    """One for each arm."""

    lines: list[Line]
    span_s: float
    marks: list[Mark]
    title: str

    def text(self) -> list[str]:
        """For a terminal."""
        return rateline.as_text(self.lines, self.span_s, self.marks)

    def svg(self) -> str:
        """For a page."""
        return rateline.as_svg(self.title, self.lines, self.span_s, self.marks)


def marks(run: Run) -> list[Mark]:
    """The moments at which a setting changed under the load."""
    found = []
    before = None
    for t_s, _, value in run.waves:
        # The first value only says how it begins.
        if before is not None and value != before:
            file = run.cell.case.waves[0].file
            found.append(Mark(t_s, f"{file} = {value if value == 'max' else f'{int(value) // MIB}M'}"))
        before = value
    return found


def note(run: Run) -> str:
    """What a run's rate comes to, before and from the first change on."""
    ending = fate(run)
    changes = marks(run)
    name = run.cell.case.meters[0].name
    edges = [0.0, *(change.t_s for change in changes[:1]), readers.known_s(run, name)]
    found = [readers.counted_rate(run, name, *edge) for edge in pairwise(edges)]
    shown = ["not measured" if rate is None else f"{rate:,.0f}/s" for rate in found]
    if len(shown) == 1:
        return ", ".join(filter(None, [shown[0], ending]))
    return f"{shown[0]} before, {ending if run.died else f'{shown[1]} with the limit'}"


def panels(runs: Sequence[Run]) -> Panels | None:
    """Of runs of one case under one LRU flavour, the first of each arm; None if the case has no meter."""
    first = {run.cell.arm.key: run for run in reversed(runs)}
    shown = [run for run in runs if first[run.cell.arm.key] is run and run.cell.case.meters]
    if not shown:
        return None
    name = shown[0].cell.case.meters[0].name
    lines = [
        Line(
            run.cell.arm.label,
            run.cell.arm.key,
            run.meters.get(name, []),
            note(run),
            min(run.died.values(), default=None),
            run.elapsed_s,
        )
        for run in shown
    ]
    # The moments are the cell's, and alike but for what a write of a limit takes.
    longest = max(shown, key=lambda run: run.elapsed_s)
    command = shown[0].cell.case.meters[0].counter.partition("_")[2].partition(":")[0].upper()
    title = f"{command} per second, by the server's own count"
    return Panels(lines, max(longest.elapsed_s, 0.001), marks(longest), title)
