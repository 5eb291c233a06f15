# SPDX-License-Identifier: GPL-2.0-only
"""The suite's page: one HTML file without references to anything outside it."""

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from lab.bench import published
from lab.bench.arms import ARM, ARMS, DEFAULT, Arm
from lab.bench.common import COVER_2M, COVER_64K, MEAN, PEAK
from lab.bench.compare import LEFT_OUT, ablated, ablation, sweeps, tlb_lines
from lab.bench.execute import fates_of
from lab.bench.run import Run
from lab.bench.served import panels
from lab.bench.spec import Metric
from lab.bench.style import CSS
from lab.bench.table import Table, World
from lab.bench.text import ONCE, clock_line, field, label, not_modelled, regret_field, row_name, warnings
from lab.bench.timeline import timeline
from lab.bench.walks import PER_INSTRUCTION, PER_OPERATION
from lab.report import svg
from lab.report.parts import BANDS, NOTE, environment_section, gates_section, number, order
from lab.report.stats import INTERVAL, RATIO
from lab.results import Gate


def render(table: Table, gates: Sequence[Gate], environment: dict[str, Any]) -> str:
    """The whole document."""
    note = NOTE[str(environment["qemu_mode"])]
    parts = [
        "<!doctype html>",
        "<!-- SPDX-License-Identifier: GPL-2.0-only -->",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>mthp_ext bench</title><style>{CSS}</style></head><body><main>",
        "<header><h1>Every static huge page setting against every policy</h1>",
        "<p>Real programs, each arm in a virtual machine of its own, arms interleaved. Regret is an arm's result "
        "divided by that of the best static setting of that row: 1 means nobody could have chosen better by hand.</p>"
        f"<p>{escape(note)} {escape(clock_line(table))}</p>{_warning(environment)}</header>",
        _headline(table, gates),
        _heat_map(table),
        _published(table),
        _variants(table),
        _scenarios(table),
        gates_section(sorted(gates, key=order)),
        _not_modelled(environment),
        environment_section(environment),
        "</main></body></html>",
    ]
    return "\n".join(parts)


def _warning(environment: dict[str, Any]) -> str:
    return "".join(f"<p class='bad'>{escape(text)}</p>" for text in warnings(environment))


def _not_modelled(environment: dict[str, Any]) -> str:
    lines = "".join(f"<li>{escape(line)}</li>" for line in not_modelled(environment))
    return f"<section><h2>What emulation does not model</h2><ul>{lines}</ul></section>" if lines else ""


def _headline(table: Table, gates: Sequence[Gate]) -> str:
    cards: list[tuple[str, str, bool]] = []
    found = [table.regret(world, "mthp_ext", score) for world in table.worlds for score in world.case.scores
             if not table.by_host(world, "mthp_ext")]  # fmt: skip
    known = [one.value for one in found if one is not None]
    if known:
        reached = sum(value >= 0.98 for value in known)
        cards.append((f"{min(known):.3f}", "the default policy's worst regret", min(known) >= 0.98))
        cards.append((f"{reached} of {len(known)}", "rows in which it is 0.98 or better", reached == len(known)))
    counted = [one for one in gates if one.counts]
    held, judged = sum(one.ok for one in counted), sum(one.judged for one in counted)
    if judged:
        cards.append((f"{held} of {judged}", "gates hold", held == judged))
    kills = {
        arm.label: sum(run.oom_kills for world in table.worlds for run in table.runs(world, arm.key)) for arm in ARMS
    }
    if any(kills.values()):
        worst, mine = max(kills, key=lambda name: kills[name]), kills[ARM[DEFAULT].label]
        text = f"out-of-memory kills under {worst}; the default policy: {mine}"
        cards.append((str(kills[worst]), text, mine == 0))
    shown = "".join(
        f"<div class='card'><b class={'good' if good else 'bad'}>{escape(big)}</b><span>{escape(small)}</span></div>"
        for big, small, good in cards
    )
    return f"<div class='cards'>{shown}</div>"


def heat_colour(value: float) -> str:
    """Of a regret: green from 0.98 on, over yellow to red at a half and below; logarithmic, so that 0.9 is seen."""
    if value >= 0.98:
        return f"hsl(150 45% {72 - 12 * min(1.0, max(0.0, (value - 0.98) / 0.1)):.0f}%)"
    share = min(1.0, math.log(0.98 / max(value, 1e-6)) / math.log(2))
    return f"hsl({70 - 62 * share:.0f} 75% {76 - 12 * share:.0f}%)"


def _heat_map(table: Table) -> str:
    arms = [arm for arm in ARMS if any(table.runs(world, arm.key) for world in table.worlds)]
    first_policy = next((arm for arm in arms if not arm.static), None)
    # A label may break, or a dozen arms would not fit the page.
    head = "".join(f"<th{_border(arm, first_policy)}>{escape(arm.label).replace('+', '+&#8203;')}</th>" for arm in arms)
    rows = []
    for world in table.worlds:
        for score in world.case.scores:
            name = f"<th><a href='#{anchor(world)}'>{escape(row_name(table, world, score))}</a></th>"
            rows.append(
                f"<tr>{name}{''.join(_heat_field(table, world, arm, score, first_policy) for arm in arms)}</tr>"
            )
    return (
        "<section><h2>Regret</h2><div class='scroll'><table class='heat'><thead><tr><th></th>"
        f"{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        f"<p class='note'>* is the best static setting of its row. {ONCE}. Small: {RATIO}. Green from 0.98 on.</p>"
        "</section>"
    )


def _border(arm: Arm, first_policy: Arm | None) -> str:
    return " class='policy'" if arm is first_policy else ""


def _heat_field(table: Table, world: World, arm: Arm, score: Metric, first_policy: Arm | None) -> str:
    found = table.regret(world, arm.key, score)
    border = "policy " if arm is first_policy else ""
    shown = regret_field(table, world, arm.key, score)
    if found is None or table.by_host(world, arm.key):
        return f"<td class='{border}nothing'>{shown}</td>"
    interval = ""
    if found.interval and found.interval.low != found.interval.high:
        interval = f"<small>{found.interval.low:.3f} to {found.interval.high:.3f}</small>"
    return f"<td class='{border}' style='background:{heat_colour(found.value)}'><b>{escape(shown)}</b>{interval}</td>"


def anchor(world: World) -> str:
    """Of a world's part of the page."""
    return world.key.replace("/", "-")


def _published(table: Table) -> str:
    rows = published.grid(table, "classic")
    if not rows:
        return ""
    return (
        f"<section><h2>The proposal's published figures beside ours</h2>{_plain(rows)}"
        "<p class='note'>Theirs: a Ryzen 9 9950X with 32 GB and zram. "
        "Ours under the classic LRU. Ratio of ratios: (our reactive / our never) / (their policy / their never); "
        '1 where emulation shows what their hardware showed. "Ours by never": our always was not run, or did not '
        "finish.</p>"
        "</section>"
    )


def _plain(rows: Sequence[Sequence[str]], css: str = "") -> str:
    head = "".join(f"<th>{escape(field)}</th>" for field in rows[0])
    body = "".join(
        f"<tr><th>{escape(row[0].strip('*'))}</th>{''.join(f'<td>{escape(field)}</td>' for field in row[1:])}</tr>"
        for row in rows[1:]
    )
    return (
        f"<div class='scroll'><table class='figures {css}'><thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
        "</table></div>"
    )


def _variants(table: Table) -> str:
    parts = []
    if removed := ablation(table):
        parts.append(
            "<section><h2>Rules taken away</h2><p class='note'>The default policy without one of its rules, in the "
            f"cases that the rule is there for. {LEFT_OUT}</p>"
            f"{_plain(removed, 'words')}{_tlb(table, ablated(table))}</section>"
        )
    swept = "".join(
        f"<p class='note'>--{escape(option)}, {escape(world.key)}</p>{_plain(rows)}{_tlb(table, [world])}"
        for option, world, rows in sweeps(table)
    )
    if swept:
        parts.append(f"<section><h2>Constants varied</h2>{swept}</section>")
    return "".join(parts)


def _tlb(table: Table, worlds: Sequence[World]) -> str:
    return "".join(f"<p class='note'>{escape(line)}</p>" for line in tlb_lines(table, worlds))


def _scenarios(table: Table) -> str:
    links = " ".join(f"<a href='#{anchor(world)}'>{escape(world.key)}</a>" for world in table.worlds)
    parts = [f"<section><h2>Scenarios</h2><nav>{links}</nav>", _legend(), "</section>"]
    for world in table.worlds:
        parts.append(f"<section id='{anchor(world)}'><h2>{escape(world.title)}</h2>")
        parts += [_figures(table, world), _charts(table, world), _timelines(table, world), "</section>"]
    return "\n".join(parts)


def _figures(table: Table, world: World) -> str:
    arms = table.arms(world)
    head = "".join(f"<th><i class='dot {arm.key}'></i>{escape(arm.label)}</th>" for arm in arms)
    rows = []
    for metric in table.metrics(world):
        best = table.best_static(world, metric) if metric in world.case.scores else None
        fields = []
        for arm in arms:
            shown, _, interval = field(table, world, arm.key, metric).partition(" (")
            small = f"<small>{escape(interval.rstrip(')'))}</small>" if interval else ""
            css = "best" if arm.key == best else "none" if not shown[:1].isdigit() else ""
            fields.append(f"<td class='{css}'>{escape(shown)}{small}</td>")
        rows.append(f"<tr><th>{escape(label(metric))}</th>{''.join(fields)}</tr>")
    counts = "".join(f"<td>{len(table.runs(world, arm.key))}</td>" for arm in arms)
    fates = [
        f"<li><i class='dot {arm.key}'></i>{escape(arm.label)}: {escape(text)}</li>"
        for arm in arms
        for text in fates_of(table.runs(world, arm.key))
    ]
    after = f"<ul class='fates'>{''.join(fates)}</ul>" if fates else ""
    after += _tlb(table, [world])
    return (
        f"<div class='scroll'><table class='figures'><thead><tr><th></th>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}<tr><th>runs</th>{counts}</tr></tbody></table></div>{after}"
    )


def _charts(table: Table, world: World) -> str:
    wanted = [*world.case.judged, PER_OPERATION, PER_INSTRUCTION, PEAK, MEAN, COVER_64K, COVER_2M]
    out = []
    for metric in dict.fromkeys(wanted):
        hint = {1: "(more is better)", -1: "(less is better)", 0: ""}[metric.better]
        rows = []
        for arm in table.arms(world):
            found = table.figure(world, arm.key, metric)
            if found is None:
                text = field(table, world, arm.key, metric)
                rows.append(svg.Bar(arm.label, arm.key, None, text))
                continue
            rows.append(
                svg.Bar(arm.label, arm.key, found.median, number(found.median, metric.unit), found.least, found.most)
            )
        if any(row.value for row in rows):
            unit = "" if metric.unit == "share" else metric.unit
            out.append(svg.bars(metric.label, unit, rows, hint))
    return f"<div class='grid'>{''.join(out)}</div>"


def _legend() -> str:
    legend = "".join(f"<span><i class='key {css}'></i>{text}</span>" for css, text in BANDS)
    return (
        f"<p class='note'>Tables: medians, in small print {INTERVAL}. Time lines: "
        "first run of each arm, guest time. Above: the cgroup's memory and its limit, and in green, where there is no "
        "other cgroup, the guest's anonymous memory in folios of 2 MiB. Strip: the largest size its page faults may "
        "use. Below: time in which all of its tasks stalled on memory (PSI full).</p>"
        f"<p class='legend'>{legend}</p>"
    )


def _timelines(table: Table, world: World) -> str:
    charts = []
    served = panels([run for arm in table.arms(world) for run in table.runs(world, arm.key)])
    over = f"<figure>{served.svg()}</figure>" if served else ""
    for arm in table.arms(world):
        if arm.static and arm.key not in ("always", "never"):
            continue
        run = table.runs(world, arm.key)[0]
        caption = f"<figcaption><i class='dot {arm.key}'></i>{escape(arm.label)}</figcaption>"
        charts.append(f"<figure>{caption}{timeline(run, _events(run))}</figure>")
    return over + (f"<div class='grid wide'>{''.join(charts)}</div>" if charts else "")


def _events(run: Run) -> list[svg.Event]:
    died = [svg.Event(when, f"{name} died at {when:.2f} s") for name, when in run.died.items()]
    return died + [svg.Event(run.elapsed_s, "stopped")] * run.bounded
