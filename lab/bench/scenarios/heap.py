# SPDX-License-Identifier: GPL-2.0-only
"""A garbage-collected heap over a limit: the collector visits what the program has forgotten, copies what lives, and
leaves holes behind. Node.js, whose young generation moves and whose old one is swept."""

from lab.bench import readers
from lab.bench.scenarios import store
from lab.bench.spec import MIB, Case, Group, Machine, Metric, Role, Scale, Task

# Replaces objects of a heap in no order; all random, so that what lives lies scattered.
_SCRIPT = """
const live = {live}, turns = {turns};
let state = 7;
const next = n => (state = (Math.imul(state, 1103515245) + 12345) >>> 0) % n;
const heap = new Array(live);
const make = n => ({ id: n, name: 'n' + n, tags: [n, n + 1, n + 2] });
for (let i = 0; i < live; i++) heap[i] = make(i);
let sum = 0;
for (let t = 0; t < turns; t++) {
  heap[next(live)] = make(t);
  sum += heap[next(live)].tags.length;
}
console.log(sum);
"""
_SIZES = {
    # objects, replaced, limit
    Scale.SMOKE: (40_000, 60_000, 20),
    Scale.CI: (300_000, 1_200_000, 104),
    Scale.FULL: (6_000_000, 40_000_000, 1400),
}


def _case(scale: Scale, limited: bool) -> Case:
    live, turns, limit_mib = _SIZES[scale]
    where = f"memory.high = {limit_mib}M" if limited else "no limit"
    script = _SCRIPT.replace("{live}", str(live)).replace("{turns}", str(turns))
    return Case(
        scenario="heap",
        key="node-high" if limited else "node-none",
        title=f"Node.js replaces {turns:,} of {live:,} objects, {where}",
        # The program itself lies in the guest's memory, too.
        machine=Machine(4 * limit_mib + 640, 4 * limit_mib),
        groups=(Group("heap", {"memory.high": limit_mib * MIB} if limited else {}),),
        # One thread does it all: with one processor helpers only make runs differ.
        tasks=(Task("load", Role.LOAD, ("{node}", "--single-threaded", "-e", script), group="heap"),),
        software=("node",),
        scores=(Metric("elapsed", "elapsed", "s", -1, readers.elapsed("load")),),
        deadline_s=180,
        main="heap",
        roomy=not limited,
        slow=store.SLOW if limited else (),
    )


def cases(scale: Scale) -> list[Case]:
    """Without a limit, and with one."""
    return [_case(scale, limited) for limited in (False, True)]
