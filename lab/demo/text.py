# SPDX-License-Identifier: GPL-2.0-only
"""The proposal's tables, for a terminal."""

from lab.demo.cells import ARM, LIMITS
from lab.demo.outcome import Run, Table
from lab.report.parts import NOTE, gate_lines
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


def fate(runs: list[Run]) -> str:
    """What became of a cell that did not serve all requests; empty if it did."""
    for run in runs:
        total = run.cell.scale.requests
        if run.killed_s is not None:
            cause = "OOM-killed" if run.oom_kills else "server died"
            return f"{cause} after {run.killed_s:.2f} s, {run.served:,} of {total:,} served"
        if run.bounded:
            return f"stopped after {run.elapsed_s:.0f} s, {run.served:,} of {total:,} served"
    return ""


def killed_at(runs: list[Run]) -> float | None:
    """When the first of the runs lost its server, seconds; None if none did."""
    return min((run.killed_s for run in runs if run.killed_s is not None), default=None)


def cell(table: Table, limit: str, arm: str, metric: str, better: int) -> str:
    """One field: median, and the change against `always`."""
    value = table.median(limit, arm, metric)
    killed = killed_at(table.runs(limit, arm))
    # The rate of a server's short life is not one to compare with.
    if metric == "rps" and killed is not None:
        return f"killed at {killed:.2f} s"
    if value is None:
        return "killed" if killed is not None else "not measured"
    if metric == "flips" and ARM[arm].policy is None:
        return "-"
    if better == 0:
        return count(value)
    base = table.median(limit, "always", metric)
    shown = number(value)
    dead = killed_at(table.runs(limit, "always")) is not None
    if arm == "always" or not base or dead:
        return shown
    return f"{shown} {change(value, base, better)}"


def limit_table(table: Table, limit: str, limit_bytes: int) -> list[str]:
    """The lines of one limit's table; none if it was not run."""
    arms = [arm for arm in ARM.values() if table.runs(limit, arm.key)]
    if not arms:
        return []
    title = LIMITS[limit] + ("" if limit == "none" else f" = {limit_bytes >> 20}M")
    grid = [[title, *(arm.label for arm in arms)]]
    for metric, label, better in ROWS:
        grid.append([label, *(cell(table, limit, arm.key, metric, better) for arm in arms)])
    widths = [max(len(row[i]) for row in grid) for i in range(len(grid[0]))]
    lines = [
        "| " + " | ".join(field.ljust(width) for field, width in zip(row, widths, strict=True)) + " |" for row in grid
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    for arm in arms:
        if text := fate(table.runs(limit, arm.key)):
            lines.append(f"  {arm.label}: {text}")
    return lines


def spread_line(table: Table) -> str:
    """One line on how well the runs repeat."""
    spreads = []
    for limit in LIMITS:
        for arm in ARM:
            # The rate of a server's short life is not one to compare.
            if killed_at(table.runs(limit, arm)) is not None:
                continue
            if len(table.runs(limit, arm)) > 1 and (found := table.figure(limit, arm, "rps")):
                spreads.append((found.spread, limit, arm))
    if not spreads:
        return "Each cell ran once."
    worst, limit, arm = max(spreads)
    return (
        "Medians of repeated runs; rps of the runs of a cell differ by at most "
        f"{worst * 100:.1f}% ({LIMITS[limit]}, {arm})."
    )


def report(table: Table, gates: list[Gate], limit_bytes: int, mode: str) -> str:
    """All that is printed at the end."""
    parts = ["\n".join(lines) for limit in LIMITS if (lines := limit_table(table, limit, limit_bytes))]
    parts.append("In brackets: change against always, + is better. " + spread_line(table) + "\n" + NOTE[mode])
    if gates:
        parts.append("Gates\n" + "\n".join(gate_lines(gates)))
    return "\n\n".join(parts)
