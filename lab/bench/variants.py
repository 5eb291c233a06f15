# SPDX-License-Identifier: GPL-2.0-only
"""The default policy with other options: without one of its rules, or with another value of a constant. Each is an arm
that runs only where its difference can show."""

from collections.abc import Mapping
from dataclasses import dataclass

from lab.bench.arms import ARM, DEFAULT, USUAL, Arm
from lab.errors import Exit, LabError


@dataclass(frozen=True)
class Without:
    """A rule that can be taken away."""

    about: str
    options: tuple[str, ...]
    """Of `mthp_ext run`; they make the rule bind nothing."""
    cases: tuple[str, ...]
    """Names of the cases that it is there for, and of those that it might harm."""


WITHOUT: Mapping[str, Without] = {
    "pressure": Without(
        "stall never counts", ("--threshold", "1s"),
        ("redis/set-high", "redis/bgsave-high", "redis/bgsave-max", "memcached/max", "hostpressure/redis",
         "hostpressure/node", "tree/follows"),
    ),
    "small": Without("no cgroup is small", ("--min-memory", "0"), ("mixed/host", "bloat/threads", "bloat/short")),
    "sparse": Without(
        "no process is sparse", ("--sparse-waste", "0"), ("bloat/sparse", "bloat/sparse-max", "underused/cache")
    ),
    "room": Without(
        "large folios until the limit; the machine is none, either",
        ("--limit-share", "100", "--room-factor", "1"),
        ("redis/set-high", "redis/set-max", "mixed/host", "tree/follows"),
    ),
    "share": Without(
        "K alone; the machine is no limit",
        ("--limit-share", "0", "--set", "count-machine=0"),
        ("roomy/x2", "roomy/files"),
    ),
    "machine": Without(
        "the machine is no limit", ("--set", "count-machine=0"), ("hostpressure/redis",)
    ),
    "cache": Without("page cache counts as used", ("--set", "spare-cache=0"), ("roomy/files",)),
}  # fmt: skip
"""Rule, or part of one -> how it is taken away."""


@dataclass(frozen=True)
class Sweep:
    """A constant that is varied."""

    default: str
    values: tuple[str, ...]
    """The others, in order."""
    cases: tuple[str, ...]
    measured: bool = False
    """It is there to be measured: only `--set` knows it."""


SWEEPS: Mapping[str, Sweep] = {
    "limit-share": Sweep(
        "50",
        ("0", "25", "75", "100"),
        (
            "roomy/x2",
            "dense/x85",
            "dense/x95",
            "redis/set-max",
            "redis/set-high",
            "redis/bgsave-high",
            "hostpressure/redis",
            "square/high",
            "late/load",
            "late/quarter",
            # Not Redis, whose memory is one even heap.
            "heap/node-high",
            "database/sort-high",
            "advised/arrays-high",
        ),
    ),
    "room-factor": Sweep(
        "1024",
        ("16", "64", "256", "4096"),
        ("redis/set-max", "redis/set-high", "hostpressure/redis", "hostpressure/node"),
    ),
    "min-memory": Sweep(
        "8M", ("0", "2M", "4M", "16M", "32M"), ("bloat/threads", "mixed/host", "kernbench/none", "redis/set-none")
    ),
    "sparse-waste": Sweep(
        "64M",
        ("0", "16M", "32M", "48M", "256M"),
        (
            "bloat/sparse",
            "underused/cache",
            "services/grown",
            "redis/set-none",
            "memcached/none",
            # Several processes that share the cgroup, sparse or not.
            "underused/heaps",
            "shapes/workers",
            "kernbench/none",
        ),
    ),
    "threshold": Sweep("100ms", ("20ms", "50ms", "200ms", "500ms"), ("redis/bgsave-high", "hostpressure/node")),
    "window": Sweep("1s", ("250ms", "4s"), ("square/high", "hostpressure/node")),
    "some-stall": Sweep("0", ("1",), ("redis/bgsave-high", "hostpressure/node", "cpus/threads"), measured=True),
    "sample-every": Sweep(
        "16", ("1", "64", "256"), ("bloat/sparse", "hostpressure/redis", "roomy/files"), measured=True
    ),
}
"""Option of `mthp_ext run` -> its sweep."""


def _given(option: str, value: str) -> tuple[str, ...]:
    return ("--set", f"{option}={value}") if SWEEPS[option].measured else (f"--{option}", value)


def _arm(key: str, label: str, about: str, options: tuple[str, ...], cases: tuple[str, ...]) -> Arm:
    return Arm(key, label, about, "always", policy=options, extra=True, cases=cases)


ABLATION: Mapping[str, Arm] = {
    rule: _arm(f"no-{rule}", f"without {rule}", one.about, one.options, one.cases) for rule, one in WITHOUT.items()
}
"""Rule -> the arm without it."""
SWEPT: Mapping[str, Mapping[str, Arm]] = {
    option: {
        value: _arm(
            f"{option}={value}", f"{option} {value}", " ".join(_given(option, value)), _given(option, value), one.cases
        )
        for value in one.values
    }
    for option, one in SWEEPS.items()
}
"""Option -> value -> the arm with it."""

LIKE_4G: Mapping[str, Arm] = {
    case: _arm(
        f"like-4G-{name}", f"room-factor {factor}", f"K as many times the limit as below 4 GiB: {factor} folios",
        ("--room-factor", factor), (case,),
    )
    for name, factor, case in (
        ("96M", "24", "redis/set-high"), ("384M", "96", "larger/high-384M"), ("1536M", "384", "larger/high-1536M"),
    )
}  # fmt: skip
"""Case -> the arm whose K is to its limit what 1,024 is to 4 GiB: if only the ratio counts, they agree with each other
and with the default below 4 GiB."""

VARIANTS = (*ABLATION.values(), *(arm for values in SWEPT.values() for arm in values.values()), *LIKE_4G.values())
"""All of them."""

_SINGLE = {
    **ARM,
    **{arm.key: arm for arm in VARIANTS},
}
_GROUPS = {
    "ablation": [DEFAULT, *(arm.key for arm in ABLATION.values())],
    "like-4G": [DEFAULT, *(arm.key for arm in LIKE_4G.values())],
    "sweep": [DEFAULT, *(arm.key for values in SWEPT.values() for arm in values.values())],
}


def named(words: list[str]) -> list[Arm]:
    """The arms of these names, "ablation" and "sweep" for all of a kind; the usual ones if there are none. In the
    order of runs, each once."""
    wanted: set[str] = set()
    for word in words or USUAL:
        if word not in _SINGLE and word not in _GROUPS:
            known = ", ".join([*ARM, *_GROUPS])
            raise LabError(
                Exit.USAGE,
                f"arm {word!r} is not known; there are: {known}, the rules as no-{next(iter(WITHOUT))} and so on, and "
                f"the swept constants as {next(iter(SWEPT['limit-share'].values())).key} and so on",
            )
        wanted.update(_GROUPS.get(word, [word]))
    return [arm for key, arm in _SINGLE.items() if key in wanted]
