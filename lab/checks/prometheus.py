# SPDX-License-Identifier: GPL-2.0-only
"""`make test-prometheus`: a real Prometheus with the rules of packaging/prometheus scrapes pages that mthp_ext served
in a guest, beside a real node exporter. promtool checks the rules, and each expression of dashboard and rules has an
answer. Whether their names and labels are in the table of metrics, tests/prometheus.rs says without all this."""

import http.server
import json
import re
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab import proc, setup, vm
from lab.bench import packages
from lab.checks import guest, host, systemd
from lab.checks.result import Status, Suite
from lab.errors import Exit, LabError
from lab.kernel import build
from lab.paths import BUILD, REPO
from lab.vm import accel

_RULES = REPO / "packaging" / "prometheus"
_DASHBOARD = REPO / "packaging" / "grafana" / "mthp_ext.json"
_FILES = ("mthp_ext.rules.yml", "mthp_ext.fleet.yml")
_TESTS = ("mthp_ext.tests.yml", "mthp_ext.fleet.tests.yml")
_GUEST_TEST = "pages_for_prometheus"
"""Of tests/e2e_metrics.rs: it records what the daemon serves while a cgroup comes under pressure."""
_LOGS = BUILD / "log" / "prometheus"
_SCRAPES = 15
"""Of a second each: enough for the rates of a minute."""
_START_S = 60.0
_EXPECTED = "MthpExtConfigLeftOut"
"""The guest's configuration has a mistake, so this alert must be on its way."""

Query = Callable[[str, Mapping[str, str]], Any]
"""Asks Prometheus' API: path and parameters; the `data` of its answer."""


def dashboard(text: str) -> list[str]:
    """The expressions of a dashboard, with values for what Grafana fills in."""
    found = [target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]]
    return [one.replace("$__rate_interval", "1m").replace("$instance", ".*") for one in found]


def metrics(expression: str) -> set[str]:
    """The metrics of ours, and of the node exporter, that an expression names."""
    return set(re.findall(r"(?<![\w:])(?:mthp_ext|node)_\w+", re.sub(r'"[^"]*"', "", expression)))


def unanswered(expressions: Sequence[str], query: Query, begin: float, end: float) -> list[str]:
    """Those without one series in all the time, each with what Prometheus says."""
    found = []
    for one in expressions:
        over = {"query": one, "start": f"{begin:.3f}", "end": f"{end:.3f}", "step": "1"}
        try:
            if not query("query_range", over)["result"]:
                found.append(f"no answer: {one}")
        except LabError as error:
            found.append(f"{one}: {error}")
    return found


def unsound(groups: Sequence[Mapping[str, Any]], names: set[str]) -> list[str]:
    """What is wrong with the rules that Prometheus has loaded, where there are metrics of these `names`."""
    found = []
    for rule in (rule for group in groups for rule in group["rules"]):
        if rule["health"] != "ok":
            found.append(f"{rule['name']}: {rule['health']}: {rule.get('lastError', '')}")
        found += [f"{rule['name']}: there is no {name}" for name in sorted(metrics(rule["query"]) - names)]
    return found


def _pages() -> list[bytes]:
    """What a daemon in a guest answered to one scrape after the other."""
    kernel = build.ensure()
    log = _LOGS / "cargo-test-build.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    tests = [test for test in host.cargo_tests(["--test", "e2e_metrics"], log) if test.name == "e2e_metrics"]
    job = guest.alone(kernel, tests[0], accel.of(kernel)[0], _GUEST_TEST)
    outcome = vm.run(job)
    outcome.check("recording pages in a guest")
    pages = [record["page"].encode() for record in outcome.records if record.get("name") == "page"]
    if len(pages) < 2:
        raise LabError(Exit.TESTS, f"the guest recorded {len(pages)} pages; log: {outcome.output}", log=outcome.output)
    return pages


@contextmanager
def _served(pages: Sequence[bytes]) -> Iterator[int]:
    """Each scrape is answered with the next page, and then with the last; the port of loopback."""
    left = list(pages)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(left.pop(0) if len(left) > 1 else left[0])

        def log_message(self, *_: object) -> None:
            return

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def _port() -> int:
    """A port of loopback that nobody has."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def _started(name: str, argv: Sequence[str]) -> Iterator[None]:
    with (_LOGS / f"{name}.log").open("wb") as log:
        process = proc.start(argv, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            proc.stop(process)


def _asks(port: int) -> Query:
    def query(path: str, parameters: Mapping[str, str]) -> Any:
        url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise LabError(Exit.TESTS, error.read().decode(errors="replace")) from error
        except (OSError, ValueError) as error:
            raise LabError(Exit.TESTS, f"Prometheus does not answer ({error}); log: {_LOGS}/prometheus.log") from error

    return query


def _eventually(what: str, ready: Callable[[], bool]) -> None:
    end = time.monotonic() + _START_S
    while True:
        try:
            if ready():
                return
        except LabError:
            if time.monotonic() > end:
                raise
        if time.monotonic() > end:
            raise LabError(Exit.TESTS, f"not in {_START_S:g} s: {what}; logs: {_LOGS}")
        time.sleep(0.5)


def _promtool(suite: Suite, config: Path) -> None:
    tool = str(packages.program("prometheus", "usr/bin/promtool"))
    calls = [("check", "config", str(config))]
    calls += [("check", "rules", name) for name in _FILES]
    calls += [("test", "rules", name) for name in _TESTS]
    for call in calls:
        done = subprocess.run([tool, *call], cwd=_RULES, capture_output=True, text=True, check=False)
        suite.check(
            f"promtool {' '.join(call[:2])} {Path(call[2]).name}", done.returncode == 0, done.stdout + done.stderr
        )


def _judge(suite: Suite, query: Query) -> None:
    begin = time.time()
    jobs = {"mthp_ext", "node"}

    def scraped() -> bool:
        up = query("query", {"query": f"sum_over_time(up[1h]) >= {_SCRAPES}"})["result"]
        return {one["metric"]["job"] for one in up} == jobs

    _eventually(f"{_SCRAPES} scrapes of each", scraped)
    names = set(query("label/__name__/values", {}))
    groups = query("rules", {})["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    files = {Path(group["file"]).name for group in groups}
    suite.check("the rules are loaded", files == set(_FILES), f"of {sorted(files)}: {len(rules)} rules")
    found = unsound(groups, names)
    suite.check("the rules name what there is", not found, "\n".join(found))
    records = [rule["name"] for rule in rules if rule["type"] == "recording"]
    found = unanswered(records, query, begin, time.time())
    suite.check("each rule that records has recorded", bool(records) and not found, "\n".join(found))
    states = {rule["name"]: rule["state"] for rule in rules if rule["type"] == "alerting"}
    suite.check("the alert for a mistake is on its way", states.get(_EXPECTED) in {"pending", "firing"}, f"{states}")
    text = _DASHBOARD.read_text()
    found = unanswered(dashboard(text), query, begin, time.time())
    suite.check("each expression of the dashboard has an answer", not found, "\n".join(found))
    variable = query("series", {"match[]": "mthp_ext_build_info"})
    suite.check(
        "the dashboard has an instance to choose", bool(variable), "label_values(mthp_ext_build_info, instance)"
    )


def _suite(pages: Sequence[bytes]) -> Suite:
    suite = Suite("prometheus", logs=[_LOGS / "prometheus.log"])
    begin = time.monotonic()
    server = packages.program("prometheus", "usr/bin/prometheus")
    exporter = packages.program("prometheus-node-exporter", "usr/bin/prometheus-node-exporter")
    node, own = _port(), _port()
    with tempfile.TemporaryDirectory() as scratch, _served(pages) as port:
        config = Path(scratch, "prometheus.yml")
        targets = {"mthp_ext": port, "node": node}
        # JSON is YAML, too.
        config.write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(_RULES / name) for name in _FILES],
                    "scrape_configs": [
                        {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{at}"]}]}
                        for job, at in targets.items()
                    ],
                }
            )
        )
        _promtool(suite, config)
        if suite.count(Status.FAILED):
            # Prometheus would not start, and what promtool has said would be lost in that.
            suite.settle()
            return suite
        # As docs/fleet.md has each host write it.
        [line] = re.findall(r'echo "(.*) \$code" > \$file', (REPO / "docs" / "fleet.md").read_text())
        Path(scratch, "mthp_ext.prom").write_text(f"{line} 0\n")
        of_node = ["--collector.disable-defaults", "--collector.meminfo", "--collector.pressure"]
        of_node += ["--collector.textfile", f"--collector.textfile.directory={scratch}"]
        of_server = [f"--config.file={config}", f"--storage.tsdb.path={scratch}/data"]
        with (
            _started("node-exporter", [str(exporter), *of_node, f"--web.listen-address=127.0.0.1:{node}"]),
            _started("prometheus", [str(server), *of_server, f"--web.listen-address=127.0.0.1:{own}"]),
        ):
            _judge(suite, _asks(own))
    suite.settle()
    suite.seconds = time.monotonic() - begin
    return suite


def main() -> int:
    """Runs the checks; 1 if one failed."""
    setup.ensure(setup.Need.PROGRAM | setup.Need.VM)
    return systemd.show("test-prometheus", _suite(_pages()))
