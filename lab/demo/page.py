# SPDX-License-Identifier: GPL-2.0-only
"""The demo's page: one HTML file without references to anything outside it."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from lab.bench.arms import Arm
from lab.bench.run import Run
from lab.bench.scenarios.store import requests
from lab.bench.timeline import timeline
from lab.demo import arrival
from lab.demo.cells import EVERY, LIMITS, Scale, command
from lab.demo.outcome import Table, killed_s, served
from lab.demo.text import ROWS, change, clock_line, comparable, count, death, fate, number, shown, stopped, title
from lab.report import svg
from lab.report.parts import BANDS, NOTE, environment_section, gates_section
from lab.report.style import CSS
from lab.results import Gate

_CHARTS = (
    ("rps", "Requests per second", "", "(more is better)"),
    ("avg_ms", "Average latency", "ms", "(less is better)"),
    ("p99_ms", "p99 latency", "ms", "(less is better)"),
    ("max_ms", "Worst latency", "ms", "(less is better)"),
    ("pages_in", "Pages swapped in", "", "(less is better)"),
    ("huge_peak", "Memory in 2 MiB folios", "MiB at most", ""),
)


def render(
    table: Table,
    gates: Sequence[Gate],
    scale: Scale,
    environment: dict[str, Any],
    scene: Sequence[Run] = (),
) -> str:
    """The whole document."""
    limits = [limit for limit in LIMITS if any(table.runs(limit, arm) for arm in EVERY)]
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    parts = [
        "<!doctype html>",
        "<!-- SPDX-License-Identifier: GPL-2.0-only -->",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>mthp_ext demo</title><style>{CSS}</style></head><body><main>",
        "<header><h1>Transparent huge pages under memory pressure</h1>",
        "<p>A real Redis, filled over its memory limit, with the kernel's two settings, with the proposal's rule and "
        "with mthp_ext's default policy.</p></header>",
        _headline(table),
        arrival.section(scene),
        "<section><h2>Results</h2>",
        *(_table(table, limit, scale) for limit in limits),
        f"<p class='note'>In brackets: change against <b>always</b>, where it finishes; + is better. "
        f"{_repeats(table)} {escape(clock_line(table))} {escape(NOTE[str(environment['qemu_mode'])])}</p></section>",
        "<section><h2>Side by side</h2>",
        *(_charts(table, limit) for limit in limits),
        "</section>",
        *_timelines(table, limits, scale),
        gates_section(gates),
        _environment(environment, scale, when),
        "</main></body></html>",
    ]
    return "\n".join(parts)


def _repeats(table: Table) -> str:
    most = table.most_runs()
    return "Each cell ran once." if most == 1 else f"Medians of up to {most} runs, arms interleaved."


def _headline(table: Table) -> str:
    cards = []
    free = _ratio(table, "none", "always")
    if free:
        cards.append((f"{free * 100:.1f}%", "of always' throughput while memory is there"))
    gain = _ratio(table, "high", "always")
    if gain:
        cards.append((f"{gain:.0f}x", "the throughput of always over memory.high"))
    elif table.stopped("high", "always") and not table.by_host("high", "always"):
        cards.append(("does not finish", "always over memory.high"))
    never = _ratio(table, "high", "never")
    if never:
        cards.append((f"{never * 100:.1f}%", "of never's throughput over memory.high"))
    runs = table.runs("max", "mthp_ext")
    if runs:
        share = min(served(run) / requests(run.cell.case) for run in runs)
        other = any(run.died for run in table.runs("max", "always"))
        cards.append(
            (f"{share * 100:.0f}%", "of requests served under memory.max" + (", where always is OOM-killed" * other))
        )
    return (
        "<div class='cards'>"
        + "".join(f"<div class='card'><b>{escape(big)}</b><span>{escape(small)}</span></div>" for big, small in cards)
        + "</div>"
    )


def _ratio(table: Table, limit: str, base: str) -> float | None:
    """Throughput of mthp_ext divided by that of `base`; None unless both finish: a run that was stopped has no rate to
    be a multiple of."""
    whole = all(table.finished(limit, arm) for arm in ("mthp_ext", base))
    return table.ratio(limit, "rps", "mthp_ext", base) if whole else None


def _arms(table: Table, limit: str) -> list[Arm]:
    return [arm for arm in EVERY.values() if table.runs(limit, arm.key)]


def _table(table: Table, limit: str, scale: Scale) -> str:
    arms = _arms(table, limit)
    head = "".join(f"<th><i class='dot {arm.key}'></i>{escape(arm.label)}</th>" for arm in arms)
    rows = []
    for metric, label, better in ROWS:
        fields = "".join(_field(table, limit, arm, metric, better) for arm in arms)
        rows.append(f"<tr><th>{escape(label)}</th>{fields}</tr>")
    fates = [
        f"<li><i class='dot {arm.key}'></i>{escape(arm.label)}: {escape(text)}</li>"
        for arm in arms
        if (text := fate(table.runs(limit, arm.key)))
    ]
    after = f"<ul class='fates'>{''.join(fates)}</ul>" if fates else ""
    return (
        f"<div class='scroll'><table><thead><tr><th>{escape(title(limit, scale.limit_bytes))}</th>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>{after}"
    )


def _field(table: Table, limit: str, arm: Arm, metric: str, better: int) -> str:
    runs = table.runs(limit, arm.key)
    found = table.figure(limit, arm.key, metric)
    ending = death(shown(runs))
    if metric == "rps" and ending:
        return f"<td class='bad'>{ending}</td>"
    if found is None:
        return f"<td class='none'>{'killed' if ending else 'not measured'}</td>"
    if metric == "flips" and arm.policy is None:
        return "<td class='none'>-</td>"
    text = count(found.median) if better == 0 else number(found.median)
    spread = f" title='{number(found.least)} to {number(found.most)} in {len(runs)} runs'" if len(runs) > 1 else ""
    base = comparable(table, limit, arm.key, metric)
    if better == 0 or not base:
        return f"<td{spread}>{text}</td>"
    css = "good" if (found.median - base) * better >= 0 else "bad"
    if abs(found.median / base - 1) < 0.01:
        css = "same"
    return f"<td{spread}>{text} <small class='{css}'>{escape(change(found.median, base, better))}</small></td>"


def _charts(table: Table, limit: str) -> str:
    out = []
    for metric, heading, unit, hint in _CHARTS:
        scale = 2.0**-20 if metric == "huge_peak" else 1.0
        rows = []
        for arm in _arms(table, limit):
            found = table.figure(limit, arm.key, metric)
            ending = death(shown(table.runs(limit, arm.key)))
            if found is None or (metric == "rps" and ending):
                rows.append(svg.Bar(arm.label, arm.key, None, ending or "not measured"))
                continue
            value = found.median * scale
            text = count(value) if metric == "pages_in" else f"{value:.0f}" if metric == "huge_peak" else number(value)
            if metric == "rps" and table.stopped(limit, arm.key):
                text += " until stopped"
            rows.append(svg.Bar(arm.label, arm.key, value, text, found.least * scale, found.most * scale))
        if any(row.value for row in rows):
            out.append(svg.bars(heading, unit, rows, hint))
    return f"<h3>{escape(LIMITS[limit])}</h3><div class='grid'>{''.join(out)}</div>"


def _timelines(table: Table, limits: Iterable[str], scale: Scale) -> list[str]:
    out: list[str] = []
    for limit in (limit for limit in limits if limit != "none"):
        charts = []
        for arm in _arms(table, limit):
            run = shown(table.runs(limit, arm.key))
            caption = f"<figcaption><i class='dot {arm.key}'></i>{escape(arm.label)}</figcaption>"
            charts.append(f"<figure>{caption}{timeline(run, _events(run), large=False)}</figure>")
        out.append(f"<h3>{escape(title(limit, scale.limit_bytes))}</h3><div class='grid wide'>{''.join(charts)}</div>")
    if not out:
        return []
    legend = "".join(f"<span><i class='key {css}'></i>{text}</span>" for css, text in BANDS)
    return [
        "<section><h2>Decisions against pressure</h2>",
        "<p class='note'>One run of each cell: the first, or the first to die; guest time. Above: the memory and its "
        "limit. Strip: the largest size its page faults may use. Below: time in which all of its tasks stalled on "
        f"memory (PSI full).</p><p class='legend'>{legend}</p>",
        *out,
        "</section>",
    ]


def _events(run: Run) -> list[svg.Event]:
    """How a run ended that did not come to its end."""
    died = killed_s(run)
    if died is not None:
        return [svg.Event(died, death(run))]
    text = f"{stopped(run)}, {served(run):,} of {requests(run.cell.case):,} served"
    return [svg.Event(run.elapsed_s, text)] if run.bounded else []


def _environment(environment: dict[str, Any], scale: Scale, when: str) -> str:
    rows = {
        "when": when,
        "command": command(scale),
        "guest memory": f"{scale.size.machine.memory_mib} MiB, swap on zram (lz4)",
        **environment,
    }
    return environment_section(rows)
