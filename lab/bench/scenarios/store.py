# SPDX-License-Identifier: GPL-2.0-only
"""A Redis server and its benchmark, as several scenarios use them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.bench import readers
from lab.bench.spec import Case, Group, Machine, Meter, Metric, Role, Scale, Task

SOCKET = "/run/redis.sock"
VALUE_BYTES, CLIENTS, PIPELINE = 1024, 16, 32
"""redis-benchmark -d, -c and -P, as in the proposal."""

_DATA_MIB = 170 / 200_000
"""What the server's memory comes to for each key of the range, two thirds of which are ever written."""


@dataclass(frozen=True)
class Size:
    """Of the workload."""

    keys: int
    requests: int
    limit_mib: int
    """About half of what the server needs."""
    machine: Machine
    deadline_s: int
    """Under a limit some arms would take hours."""


SIZES = {
    Scale.SMOKE: Size(20_000, 20_000, 12, Machine(512, 128), 10),
    Scale.CI: Size(200_000, 200_000, 96, Machine(768, 512), 30),
    Scale.FULL: Size(3_000_000, 3_000_000, 2048, Machine(8192, 6144), 600),
}


NEEDED_MIB = {Scale.SMOKE: 21, Scale.CI: 170, Scale.FULL: 2550}
"""What the server needs in base pages: the peak of redis/set-none under `never`, and by the number of keys."""


def server(*args: str, group: str = "redis", snapshots: bool = False, env: Mapping[str, str] | None = None) -> Task:
    """The server. Redis switches THP off for itself unless configured not to."""
    directory = ("--dir", "/mnt") if snapshots else ()
    return Task(
        "server",
        Role.SERVER,
        ("{redis-server}", "--port", "0", "--unixsocket", SOCKET, "--save", "", "--appendonly", "no",
         "--disable-thp", "no", "--daemonize", "no", *directory, *args),
        group=group,
        env=env or {},
        # The file may be the one of another tool of Redis; it goes by what it is called.
        arg0="redis-server",
        ready=SOCKET,
        quiet=True,
    )  # fmt: skip


def load(case: Case) -> tuple[str, ...]:
    """Arguments of the benchmark in `case`, without the way to the server."""
    [argv] = [task.argv for task in case.tasks if task.name == "load"]
    return argv[argv.index(SOCKET) + 1 :]


def requests(case: Case) -> int:
    """How many the benchmark in `case` makes."""
    words = load(case)
    return int(words[words.index("-n") + 1])


def benchmark(
    name: str, role: Role, test: str, keys: int, requests: int, clients: int = CLIENTS, *, quiet: bool = False
) -> Task:
    """redis-benchmark with the proposal's command; outside the server's cgroup."""
    sizes = ("-r", keys, "-n", requests, "-d", VALUE_BYTES, "-c", clients, "-P", PIPELINE)
    argv = ("{redis-benchmark}", "-s", SOCKET, "-t", test, *(str(word) for word in sizes))
    return Task(name, role, argv, seeded=True, quiet=quiet)


CLIENT = ("/init", "zipf", SOCKET)
"""The lab's own client (lab/guest/src/zipf.rs), for what redis-benchmark cannot do."""


UNIFORM = 0
"""An exponent of Zipf's law: all keys alike."""


def fill(keys: int) -> Task:
    """Stores each key once."""
    sizes = (keys, 0, 0, VALUE_BYTES, CLIENTS, PIPELINE, 0, 0)
    return Task("fill", Role.SETUP, (*CLIENT, *(str(number) for number in sizes)), quiet=True)


def client(keys: int, exponent: int, get: int, warm_up_s: int, time_s: int) -> Task:
    """The load, by that client: exponent and share of GET in percent; seconds, the warm-up included."""
    sizes = (keys, exponent, get, VALUE_BYTES, CLIENTS, PIPELINE, warm_up_s, time_s)
    return Task("load", Role.LOAD, (*CLIENT, *(str(number) for number in sizes)), seeded=True)


def report(lines: Sequence[str]) -> dict[str, float]:
    """What that client says at its end of the time after the warm-up: "rps", and latencies in ms; empty if it did not
    come that far."""
    found = [line for line in lines if line.startswith("zipf: ")]
    return {name: float(value) for name, value in re.findall(r"(\w+)=([0-9.]+)", found[-1])} if found else {}


def client_figure(name: str, label: str) -> Metric:
    """A latency by that client's report."""
    return Metric(name, label, "ms", -1, lambda run: None if run.died else report(run.lines("load")).get(name))


def served_rate() -> Metric:
    """Requests per second by that client's report."""
    return Metric("rps", "requests/s", "", +1, lambda run: None if run.died else report(run.lines("load")).get("rps"))


SERVED = Meter("served", SOCKET, "INFO commandstats", "cmdstat_set:calls=", 100)
"""What the server has counted of SET, ten times a second. It spends some 90 us on each answer, a thousandth of its
time."""


def info(name: str, section: str) -> Task:
    """What the server says about itself at the end."""
    return Task(name, Role.PROBE, ("{redis-cli}", "-s", SOCKET, "INFO", section))


PROBE = info("info", "commandstats")
"""How many requests were served, for a run that was stopped."""


def rps(command: str = "set") -> Metric:
    """Requests per second."""
    return Metric("rps", "requests/s", "", +1, lambda run: readers.redis_rps(run, "load", "info", command))


TAIL = readers.latency("load", "p99", "p99 latency")
LATENCIES = (
    readers.latency("load", "avg", "average latency"),
    readers.latency("load", "p50", "p50 latency"),
    readers.latency("load", "p95", "p95 latency"),
    readers.latency("load", "max", "worst latency"),
)
SLOW = ("always",)
"""Over a limit it is stopped at the deadline."""


def case(scenario: str, key: str, title: str, size: Size, settings: Mapping[str, str | int] | None = None) -> Case:
    """A server that is filled by SET, in a cgroup of these settings."""
    return Case(
        scenario=scenario,
        key=key,
        title=title,
        machine=size.machine,
        groups=(Group("redis", settings or {}),),
        tasks=(server(), benchmark("load", Role.LOAD, "set", size.keys, size.requests), PROBE),
        software=("redis",),
        scores=(rps(),),
        tail=TAIL,
        more=LATENCIES,
        deadline_s=size.deadline_s,
        main="redis",
        data_mib=round(size.keys * _DATA_MIB),
    )
