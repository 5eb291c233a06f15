# SPDX-License-Identifier: GPL-2.0-only
"""The lines of docs/kubernetes.md for kubectl, by the real one, without an API server. What it makes alone is compared;
of all others it must take the words, and fail only as nobody answers."""

import json
import os
import re
import shlex
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.bench import packages
from lab.checks.result import Suite
from lab.deb import build as deb
from lab.paths import REPO

_PAGE = REPO / "docs" / "kubernetes.md"
_PACKAGES = {"12": "kubernetes-client", "13": "kubectl"}
"""Debian 13's kubernetes-client only depends on the other."""
_REFUSED = re.compile(r"connection (?:to the server \S+ was )?refused")
_NODE = "apiVersion: v1\nkind: Node\nmetadata:\n  name: NODE\n"


def program() -> Path:
    """The one that is installed, or that of Debian: 1.20 in Debian 12."""
    return packages.program(_PACKAGES[deb.release()], "usr/bin/kubectl")


def lines(page: str) -> list[str]:
    """Those of a page with kubectl in them, as a shell takes them: of its blocks, and between backquotes."""
    blocks = re.findall(r"^```console\b.*?\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    shown = [line for block in blocks for line in re.findall(r"^[$#] (.*\bkubectl .*)$", block, re.MULTILINE)]
    prose = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    # `kubectl apply` alone is a word for it.
    return shown + [span for span in re.findall(r"`(kubectl [^`]+)`", prose) if len(span.split()) > 2]


def calls(line: str) -> list[list[str]]:
    """Those of kubectl in a line, without what is piped, and where to."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set("|;&"):
            found.append([])
        else:
            found[-1].append(word)
    cut = [words[: words.index(">")] if ">" in words else words for words in found]
    return [words for words in cut if words[:1] == ["kubectl"]]


def is_local(call: Sequence[str]) -> bool:
    """Whether it asks no server."""
    return "create" in call and "--dry-run=client" in call


class Kubectl:
    """The real one, with nobody to ask: whatever cluster the user of this machine has, none of this goes there."""

    def __init__(self, path: Path, port: int, directory: Path) -> None:
        self._path, self._directory = path, directory
        self._server = (f"--server=http://127.0.0.1:{port}", "--kubeconfig=/dev/null")
        self._env = {"HOME": str(directory), "KUBECONFIG": "/dev/null", "PATH": os.environ["PATH"], "LC_ALL": "C"}

    def __call__(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        argv = [str(self._path), *self._server, *words]
        return subprocess.run(
            argv, cwd=self._directory, env=self._env, input=given, capture_output=True, text=True, check=False
        )

    def takes(self, *words: str, given: str = "") -> str:
        """What it has against the words; nothing, if it went as far as to a server."""
        done = self(*words, given=given)
        return "" if done.returncode != 0 and _REFUSED.search(done.stderr) else done.stdout + done.stderr or "nothing"


@contextmanager
def alone(directory: Path) -> Iterator[Kubectl]:
    """kubectl in a directory, with a server's address that refuses: somebody has the port and does not listen."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        yield Kubectl(program(), nobody.getsockname()[1], directory)


def amiss(config_map: Mapping[str, Any], text: str, daemon_set: Mapping[str, Any]) -> list[str]:
    """What is wrong with a ConfigMap for the file of pods.py: what is in it, and that the pod has it mounted."""
    sources = [
        source["configMap"]
        for volume in daemon_set["spec"]["template"]["spec"]["volumes"]
        for source in volume.get("projected", {}).get("sources", [])
    ]
    where = config_map["metadata"]
    keys = [item["key"] for one in sources if one["name"] == where["name"] for item in one.get("items", [])]
    found = [] if keys == [*config_map["data"]] else [f"mounted of {where['name']}: {keys}"]
    if where.get("namespace") != daemon_set["metadata"]["namespace"]:
        found.append(f"in the namespace {where.get('namespace')}")
    return found + ["not what pods.py printed"] * ([*config_map["data"].values()] != [text])


def _of_label(kubectl: Kubectl, call: Sequence[str]) -> dict[str, str]:
    """The labels of a node that has had mthp-ext/enabled, after what the page says."""
    words = call[call.index("NODE") + 1 :]
    node = _NODE + ('  labels:\n    mthp-ext/enabled: "true"\n' if words[0].endswith("-") else "")
    done = kubectl("label", "--local", "-f", "-", "-o", "json", *words, given=node)
    return dict(json.loads(done.stdout)["metadata"].get("labels", {})) if done.returncode == 0 else {"": done.stderr}


def check(suite: Suite, daemon_set: Mapping[str, Any], drop_in: str, scratch: Path) -> None:
    """All of it; `drop_in` is what pods.py has printed."""
    (scratch / "pods.toml").write_text(drop_in)
    (scratch / "packaging").symlink_to(REPO / "packaging")
    found = [call[1:] for line in lines(_PAGE.read_text()) for call in calls(line)]
    with alone(scratch) as kubectl:
        [local] = [call for call in found if is_local(call)]
        made = kubectl(*(word if word != "yaml" else "json" for word in local))
        wrong = amiss(json.loads(made.stdout), drop_in, daemon_set) if made.returncode == 0 else [made.stderr]
        suite.check("kubectl makes a ConfigMap of what pods.py prints, and the pod has it", not wrong, "\n".join(wrong))
        asking = [call for call in found if not is_local(call)]
        # The ConfigMap is what the page pipes into one of them.
        wrong = [f"{shlex.join(call)}: {why}" for call in asking if (why := kubectl.takes(*call, given=made.stdout))]
        suite.check(f"kubectl takes the words of {len(asking)} lines of the page", not wrong, "\n".join(wrong))
        # Or it would take any.
        why = kubectl.takes(*asking[0], "--no-such-option")
        suite.check("kubectl refuses other words before it asks a server", "unknown flag" in why, why)
        wanted = daemon_set["spec"]["template"]["spec"]["nodeSelector"]
        labels = {call[-1]: _of_label(kubectl, call) for call in found if call[0] == "label"}
        # kubelet puts the others on.
        of_ours = {key: value for key, value in wanted.items() if not key.startswith("kubernetes.io/")}
        ok = [*labels.values()] == [of_ours, {}]
        suite.check("the labels of the page are those that the DaemonSet selects nodes by", ok, str(labels))
        of_pod = daemon_set["spec"]["template"]["metadata"]["labels"].items()
        selectors = {call[call.index("-l") + 1] for call in found if "-l" in call}
        ok = selectors == {f"{key}={value}" for key, value in of_pod}
        suite.check("the page asks for the logs of the DaemonSet's pods", ok, str(selectors))
