# SPDX-License-Identifier: GPL-2.0-only
"""Eight shell scripts at a time in the manner of UnixBench's shell8: many processes that live for milliseconds."""

from lab.bench.run import Run
from lab.bench.spec import Case, Group, Machine, Metric, Role, Scale, Task

_LOOPS = {Scale.SMOKE: 2, Scale.CI: 12, Scale.FULL: 600}

# What one of UnixBench's scripts does, with our own words and a text of our own.
_ONE = """
{sort} < /lab/text > /tmp/sorted.$1
{od} /tmp/sorted.$1 | {sort} -n -k 1 > /tmp/dump.$1
{grep} the /tmp/sorted.$1 | {tee} /tmp/found.$1 | {wc} > /tmp/count.$1
{rm} -f /tmp/sorted.$1 /tmp/dump.$1 /tmp/found.$1 /tmp/count.$1
"""


def _script(loops: int) -> str:
    one = " ".join(f"one {n} &" for n in range(8))
    return f"one() {{ {_ONE} }}; i=0; while [ $i -lt {loops} ]; do {one} wait; i=$((i+1)); done"


def _per_minute(loops: int) -> Metric:
    def of(run: Run) -> float | None:
        end = run.ends["load"]
        return 60 * loops / (end.ended_s - end.started_s) if end.code == 0 and not end.stopped else None

    return Metric("loops", "loops/minute", "", +1, of)


def cases(scale: Scale) -> list[Case]:
    """One."""
    loops = _LOOPS[scale]
    return [
        Case(
            scenario="shell8",
            key="free",
            title="eight shell scripts at a time, no limit",
            machine=Machine(512, 128),
            groups=(Group("shell"),),
            tasks=(Task("load", Role.LOAD, ("{dash}", "-c", _script(loops)), group="shell"),),
            software=("shell",),
            scores=(_per_minute(loops),),
            deadline_s=60 if scale is not Scale.FULL else 3600,
            main="shell",
            # No reclaim takes place.
            lrus=("classic",),
        )
    ]
