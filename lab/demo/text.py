# SPDX-License-Identifier: GPL-2.0-only
"""The proposal's tables, for a terminal."""

from collections.abc import Sequence

from lab.bench.run import Run
from lab.bench.scenarios.store import requests
from lab.demo.cells import EVERY, LIMITS
from lab.demo.outcome import Table, killed_s, served
from lab.report.parts import NOTE, clock_note, gate_lines, grid
from lab.results import Gate

ROWS = (
    ("rps", "rps", +1),
    ("avg_ms", "avg_latency_ms", -1),
    ("p50_ms", "p50_latency_ms", -1),
    ("p95_ms", "p95_latency_ms", -1),
    ("p99_ms", "p99_latency_ms", -1),
    ("max_ms", "max_latency_ms", -1),
    ("pages_in", "pages swapped in", 0),
    ("pages_out", "pages swapped out", 0),
    ("flips", "policy flips", 0),
)
"""(metric, label, +1 if more is better, -1 if less is, 0 if no change is shown)"""


def number(value: float) -> str:
    """Five significant digits at the most, thousands grouped."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3f}" if value < 100 else f"{value:.1f}"


def count(value: float) -> str:
    """A number of events."""
    return f"{value:,.0f}"


def change(value: float, base: float, better: int) -> str:
    """Change against `base` in percent; positive is better, as in the proposal's tables."""
    percent = (value / base - 1) * 100 * better
    return f"({percent:+,.1f}%)" if abs(percent) < 1000 else f"({percent:+,.0f}%)"


def stopped(run: Run) -> str:
    """Of a run that was stopped before its end: by what, and when."""
    if run.by_host:
        return f"stopped by the clock of this machine after {run.elapsed_s:.1f} s of guest time"
    return f"stopped after {run.elapsed_s:.0f} s"


def death(run: Run) -> str:
    """Of a run whose server did not live to its end; empty if it did."""
    died = killed_s(run)
    return "" if died is None else f"OOM-killed after {died:.2f} s"


def shown(runs: list[Run]) -> Run:
    """The run that stands for its cell wherever only one can: the one that died first, else one that was stopped."""
    dead = [run for run in runs if run.died]
    if dead:
        return min(dead, key=lambda run: killed_s(run) or 0.0)
    return next((run for run in runs if run.bounded), runs[0])


def fate(runs: list[Run]) -> str:
    """What became of a cell that did not serve all requests; empty if it did."""
    if not runs:
        return "it was not run"
    run = shown(runs)
    ending = death(run) or (stopped(run) if run.bounded else "")
    if not ending:
        return ""
    alike = sum(bool(one.died) or one.bounded for one in runs)
    which = f" ({alike} of {len(runs)} runs ended so, this one first)" if len(runs) > 1 else ""
    return f"{ending}, {served(run):,} of {requests(run.cell.case):,} served{which}"


def cell(table: Table, limit: str, arm: str, metric: str, better: int) -> str:
    """One field: median, and the change against `always`, if that finishes."""
    value = table.median(limit, arm, metric)
    ending = death(shown(table.runs(limit, arm)))
    # The rate of a server's short life is not one to compare with.
    if metric == "rps" and ending:
        return ending
    if value is None:
        return "killed" if ending else "not measured"
    if metric == "flips" and EVERY[arm].policy is None:
        return "-"
    if better == 0:
        return count(value)
    base = comparable(table, limit, arm, metric)
    return f"{number(value)} {change(value, base, better)}" if base else number(value)


def comparable(table: Table, limit: str, arm: str, metric: str) -> float | None:
    """What `always` came to, for another arm to be compared with; None if it did not finish."""
    if arm == "always" or not table.finished(limit, "always"):
        return None
    return table.median(limit, "always", metric)


_SHORT = ("always", "never", "mthp_ext")


def short_table(table: Table, limit_bytes: int) -> list[str]:
    """Requests per second of the arms that matter, and nothing else."""
    rows = [["requests/s", *_SHORT]]
    for limit in LIMITS:
        if any(table.runs(limit, arm) for arm in _SHORT):
            rows.append([title(limit, limit_bytes), *(_short(table, limit, arm) for arm in _SHORT)])
    return grid(rows) if len(rows) > 1 else []


def _short(table: Table, limit: str, arm: str) -> str:
    runs, rps = table.runs(limit, arm), table.median(limit, arm, "rps")
    if not runs or rps is None:
        return "not run"
    if ending := death(shown(runs)):
        return ending.partition(" after")[0]
    if table.by_host(limit, arm):
        return f"cut short ({rps:,.0f}/s until then)"
    return f"does not finish ({rps:,.0f}/s when stopped)" if table.stopped(limit, arm) else f"{rps:,.0f}"


def title(limit: str, limit_bytes: int) -> str:
    """A limit, with its value."""
    return LIMITS[limit] + ("" if limit == "none" else f" = {limit_bytes >> 20}M")


def limit_table(table: Table, limit: str, limit_bytes: int) -> list[str]:
    """The lines of one limit's table; none if it was not run."""
    arms = [arm for arm in EVERY.values() if table.runs(limit, arm.key)]
    if not arms:
        return []
    rows = [[title(limit, limit_bytes), *(arm.label for arm in arms)]]
    for metric, label, better in ROWS:
        rows.append([label, *(cell(table, limit, arm.key, metric, better) for arm in arms)])
    lines = grid(rows)
    for arm in arms:
        if text := fate(table.runs(limit, arm.key)):
            lines.append(f"  {arm.label}: {text}")
    return lines


def spread_line(table: Table) -> str:
    """One line on how well the runs repeat."""
    spreads = []
    for limit in LIMITS:
        for arm in EVERY:
            runs = table.runs(limit, arm)
            # The rate of a server's short life, or of what this machine had time for, is not one to compare.
            if len(runs) < 2 or death(shown(runs)) or table.by_host(limit, arm):
                continue
            if found := table.figure(limit, arm, "rps"):
                spreads.append((found.spread, limit, arm))
    if not spreads:
        return "Each cell ran once."
    worst, limit, arm = max(spreads)
    return (
        "Medians of repeated runs; rps of the runs of a cell differ by at most "
        f"{worst * 100:.1f}% ({LIMITS[limit]}, {arm})."
    )


def clock_line(table: Table) -> str:
    """What a reader must know of runs that the clock of this machine stopped; empty without any."""
    return clock_note([f"{LIMITS[limit]}, {arm}" for limit in LIMITS for arm in EVERY if table.by_host(limit, arm)])


def report(table: Table, gates: list[Gate], limit_bytes: int, mode: str, scene: Sequence[str] = ()) -> str:
    """All that is printed at the end; `scene` is the time line, if it was run."""
    parts = ["\n".join(short)] if (short := short_table(table, limit_bytes)) else []
    parts += ["\n".join(scene)] if scene else []
    parts += ["\n".join(lines) for limit in LIMITS if (lines := limit_table(table, limit, limit_bytes))]
    notes = [
        "In brackets: change against always, where it finishes; + is better.",
        spread_line(table),
        clock_line(table),
    ]
    parts.append("\n".join(filter(None, [*notes, NOTE[mode]])))
    if gates:
        parts.append("Gates\n" + "\n".join(gate_lines(gates)))
    return "\n\n".join(parts)
