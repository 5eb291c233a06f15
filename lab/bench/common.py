# SPDX-License-Identifier: GPL-2.0-only
"""Figures that every case has, of its main cgroup or of the guest."""

from lab.bench.run import Run
from lab.bench.spec import MIB, Metric


def _main(of: str) -> Metric:
    names = {
        "peak": ("peak resident", "MiB", -1),
        "mean": ("mean resident", "MiB", -1),
        "some": ("stall, some", "s", -1),
        "full": ("stall, full", "s", -1),
        "system": ("system time", "s", -1),
        "user": ("user time", "s", -1),
    }
    label, unit, better = names[of]

    def value(run: Run) -> float | None:
        name = run.cell.case.main
        total = run.groups[name]
        if of == "peak":
            return total.peak / MIB
        if of == "mean":
            seen = [sample.current[name] for sample in run.samples]
            return sum(seen) / len(seen) / MIB if seen else None
        return {"some": total.some_s, "full": total.full_s, "system": total.system_s, "user": total.user_s}[of]

    return Metric(f"{of}_{unit.lower()}", label, unit, better, value)


PEAK = _main("peak")
MEAN = _main("mean")
MAIN_USER = _main("user")
MAIN_SYSTEM = _main("system")
COVER_64K = Metric("cover_64k", "anon in folios >= 64K", "share", 0, lambda run: run.coverage(64))
COVER_2M = Metric("cover_2m", "anon in 2M folios", "share", 0, lambda run: run.coverage(2048))
PEAK_ANON = Metric(
    "peak_anon", "peak anonymous, all cgroups", "MiB", -1,
    lambda run: max((sample.anon for sample in run.samples), default=0) / MIB,
)  # fmt: skip
"""Of the guest, by samples."""
SWAPPED_IN = Metric("swap_in", "pages swapped in", "", -1, lambda run: float(run.vmstat["pswpin"]))
SWAPPED_OUT = Metric("swap_out", "pages swapped out", "", -1, lambda run: float(run.vmstat["pswpout"]))
FLIPS = Metric("flips", "policy flips", "", 0, lambda run: float(run.flips(run.cell.case.main)))
KILLS = Metric("oom_kills", "out-of-memory kills", "", -1, lambda run: float(run.oom_kills))
COMMON = (
    PEAK,
    MEAN,
    PEAK_ANON,
    COVER_64K,
    COVER_2M,
    SWAPPED_IN,
    SWAPPED_OUT,
    Metric("thp_swap_out", "2M folios swapped out", "", 0, lambda run: run.vmstat.get("thp_swpout")),
    Metric("thp_split", "2M folios split", "", 0, lambda run: run.vmstat.get("thp_split_page")),
    Metric("bpf_split", "folios split by the policy", "", 0, lambda run: run.vmstat.get("thp_bpf_split")),
    _main("some"),
    _main("full"),
    MAIN_SYSTEM,
    FLIPS,
    KILLS,
)
"""Measured in every case, of its main cgroup or of the guest."""
