# SPDX-License-Identifier: GPL-2.0-only
"""A garbage-collected heap over a limit: the collector visits what the program has forgotten, copies what lives, and
leaves holes behind. Node.js, whose young generation moves and whose old one is swept."""

from lab.bench.scenarios import job
from lab.bench.spec import Case, Machine, Role, Scale, Task

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
# V8 sizes its heap by the memory that it sees, and sees the limit or not depending on its version.
_FIXED = ("--single-threaded", "--max-old-space-size=2000", "--max-semi-space-size=16")
_SIZES = {
    # objects, replaced, limit
    Scale.SMOKE: (40_000, 60_000, 20),
    Scale.CI: (300_000, 1_200_000, 104),
    Scale.FULL: (6_000_000, 40_000_000, 1000),
}


def _case(scale: Scale) -> Case:
    live, turns, limit_mib = _SIZES[scale]
    script = _SCRIPT.replace("{live}", str(live)).replace("{turns}", str(turns))
    # One thread does it all: with one processor helpers only make runs differ.
    load = Task("load", Role.LOAD, ("{node}", *_FIXED, "-e", script), group="heap")
    title = f"Node.js replaces {turns:,} of {live:,} objects"
    # The program itself lies in the guest's memory, too.
    return job.case("heap", "node-high", title, Machine(4 * limit_mib + 640, 4 * limit_mib), limit_mib, (load,), "node")


def cases(scale: Scale) -> list[Case]:
    """One."""
    return [_case(scale)]
