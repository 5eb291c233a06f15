#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Has the agent on each node read the drop-in of pods.py, once it is there:

    python3 reload.py pods.toml

kubelet hands a changed ConfigMap on within a minute or two; a reload before that reads the old one. So this looks, in
each pod, which overrides its file has, and waits until they are those of pods.toml. Takes kubectl and Python 3.11."""

import argparse
import json
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

_KUBECTL = ("kubectl", "--namespace", "mthp-ext")
_CONFIG = "/etc/mthp_ext/config.toml"
_DROP_IN = "/etc/mthp_ext/config.d/pods.toml"
Overrides = list[tuple[list[str], str]]
"""Patterns and policy of each."""


def _agent(pod: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [*_KUBECTL, "exec", pod, "--", "/usr/sbin/mthp_ext", *words]
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def wanted(text: str) -> Overrides:
    """Those of the drop-in."""
    return [(one["cgroups"], one["policy"]) for one in tomllib.loads(text).get("override", [])]


def there(shown: str) -> Overrides:
    """Those of the same file in what `mthp_ext config --show --json` prints."""
    return [(one["cgroups"], one["policy"]) for one in json.loads(shown)["shown"] if one["file"] == _DROP_IN]


def waiting(pods: Sequence[str], of: Overrides) -> Iterator[tuple[str, str]]:
    """The pods that do not have it yet, and why; the others are reloaded."""
    for pod in pods:
        done = _agent(pod, "config", "--show", "--json", _CONFIG)
        if done.returncode == 0 and there(done.stdout) == of:
            done = _agent(pod, "reload")
            if done.returncode == 0:
                print(f"{pod}: {done.stdout.strip()}", flush=True)
                continue
        yield pod, done.stderr.strip() or "kubelet has not handed the file on"


def main() -> int:
    """1 if a pod has not taken it in time, or there is none."""
    parser = argparse.ArgumentParser(description="has the agents read the overrides of pods, once they are there")
    parser.add_argument("file", type=Path, help="what pods.py has printed")
    parser.add_argument("--patience", type=float, default=180, help="seconds to wait for all (default: 180)")
    args = parser.parse_args()
    of = wanted(args.file.read_text())
    list_them = [*_KUBECTL, "get", "pods", "--selector", "app.kubernetes.io/name=mthp-ext", "--output", "name"]
    listed = subprocess.run(list_them, stdout=subprocess.PIPE, text=True, check=False)
    pods = listed.stdout.split()
    if not pods:
        # kubectl has said what failed.
        print("no pods of mthp-ext" if listed.returncode == 0 else "the pods are not known", file=sys.stderr)
        return 1
    end = time.monotonic() + args.patience
    while left := dict(waiting(pods, of)):
        if time.monotonic() >= end:
            break
        pods = list(left)
        time.sleep(min(5, args.patience / 36))
    for pod, why in left.items():
        print(f"{pod}: {why}", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
