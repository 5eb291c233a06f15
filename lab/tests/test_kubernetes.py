# SPDX-License-Identifier: GPL-2.0-only
"""Rules for the manifests, and the container image."""

import copy
import gzip
import hashlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import unittest
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab.checks import kubectl, kubernetes, registry
from lab.deb import oci

_spec = importlib.util.spec_from_file_location("pods", kubernetes.MANIFESTS / "pods.py")
assert _spec is not None and _spec.loader is not None
pods = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(pods)
RELOAD = kubernetes.MANIFESTS / "reload.py"

WHEN = datetime(2026, 11, 22, 1, 2, 3, tzinfo=UTC)


def good() -> list[dict[str, Any]]:
    """A DaemonSet that the rules let pass."""
    container = {
        "name": "c",
        "image": "i",
        "startupProbe": {"exec": {"command": ["c"]}},
        "ports": [{"containerPort": 1}],
        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"memory": "1Mi"}},
        "securityContext": {
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["BPF", "PERFMON", "SYS_RESOURCE"]},
        },
    }
    spec = {
        "automountServiceAccountToken": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [
            {"hostPath": {"path": "/sys/fs/cgroup"}},
            {"projected": {"sources": [{"configMap": {"name": "m"}}]}},
        ],
    }
    labels = {"a": "b", "c": "d"}
    peer = {"namespaceSelector": {"matchLabels": {"x": "y"}}, "podSelector": {"matchLabels": {"x": "y"}}}
    network = {
        "podSelector": {"matchLabels": {"a": "b"}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [peer], "ports": [{"port": 1}]}],
    }
    return [
        {
            "kind": "DaemonSet",
            "metadata": {"namespace": "n"},
            "spec": {"template": {"metadata": {"labels": labels}, "spec": spec}},
        },
        {"kind": "NetworkPolicy", "metadata": {"namespace": "n"}, "spec": network},
    ]


class RulesTest(unittest.TestCase):
    def test_each_right_too_many_is_named(self) -> None:
        self.assertEqual(kubernetes.against(good()), [])

        def template(change: Callable[[dict[str, Any]], object]) -> list[str]:
            documents = copy.deepcopy(good())
            change(documents[0]["spec"]["template"])
            return kubernetes.against(documents)

        def pod(change: Callable[[dict[str, Any]], object]) -> list[str]:
            return template(lambda of: change(of["spec"]))

        def container(change: Callable[[dict[str, Any]], object]) -> list[str]:
            return pod(lambda spec: change(spec["containers"][0]))

        def network(change: Callable[[dict[str, Any]], object]) -> list[str]:
            documents = copy.deepcopy(good())
            change(documents[1]["spec"])
            return kubernetes.against(documents)

        def peer(change: Callable[[dict[str, Any]], object]) -> list[str]:
            return network(lambda spec: change(spec["ingress"][0]["from"][0]))

        for found in (
            network(lambda spec: spec.update(policyTypes=["Ingress"])),
            network(lambda spec: spec.update(policyTypes=["Egress"])),
            network(lambda spec: spec["ingress"].append({"ports": [{"port": 1}]})),
            network(lambda spec: spec["ingress"][0].pop("ports")),
            network(lambda spec: spec["ingress"][0]["ports"].append({"port": 2})),
            network(lambda spec: spec.update(egress=[{}])),
            peer(lambda one: one.pop("podSelector")),
            peer(lambda one: one.pop("namespaceSelector")),
            peer(lambda one: one.update(podSelector={})),
            peer(lambda one: one.update(ipBlock={"cidr": "0.0.0.0/0"})),
            network(lambda spec: spec["podSelector"]["matchLabels"].update(e="f"))[:1],
            kubernetes.against(good()[:1])[:1],
            kubernetes.against([good()[0], {**good()[1], "metadata": {"namespace": "m"}}])[:1],
            pod(lambda spec: spec.update(hostPID=True)),
            pod(lambda spec: spec.pop("automountServiceAccountToken")),
            pod(lambda spec: spec.update(serviceAccountName="a")),
            pod(lambda spec: spec["securityContext"]["seccompProfile"].update(type="Unconfined")),
            pod(lambda spec: spec["volumes"].append({"hostPath": {"path": "/"}})),
            container(lambda one: one["securityContext"].update(privileged=True)),
            container(lambda one: one["securityContext"].pop("privileged")),
            container(lambda one: one["securityContext"].pop("allowPrivilegeEscalation")),
            container(lambda one: one["securityContext"].update(readOnlyRootFilesystem=False)),
            container(lambda one: one["securityContext"]["capabilities"].pop("drop")),
            container(lambda one: one["securityContext"]["capabilities"]["add"].append("SYS_ADMIN")),
            container(lambda one: one["resources"].pop("limits")),
            container(lambda one: one.pop("startupProbe")),
            container(lambda one: one.update(livenessProbe={"httpGet": {"port": 1}})),
            container(lambda one: one.update(readinessProbe={"tcpSocket": {"port": 1}})),
            container(lambda one: one.update(image="i:latest")),
            pod(lambda spec: spec["securityContext"].update(appArmorProfile={"type": "RuntimeDefault"})),
            container(lambda one: one["securityContext"].update(appArmorProfile={"type": "Unconfined"})),
            template(lambda of: of["metadata"].update(annotations={"container.apparmor.x/c": "unconfined"})),
            kubernetes.against([*good(), {"kind": "ClusterRole"}]),
            pod(lambda spec: spec.update(initContainers=[{"name": "x"}]))[:1],
        ):
            self.assertEqual(len(found), 1, found)
        self.assertEqual(kubernetes.against([]), ["no DaemonSet"])

    def test_what_kustomize_makes_belongs_together(self) -> None:
        names = {
            "namespace": "n",
            "resources": ["d.yaml"],
            "configMapGenerator": [{"name": "m", "files": ["c"]}],
            "images": [{"name": "i", "newName": "r/i", "newTag": "1"}],
        }

        def made(name: str, image: str, used: str, namespace: str = "n") -> list[str]:
            documents = copy.deepcopy(good())
            spec = documents[0]["spec"]["template"]["spec"]
            spec["containers"][0]["image"] = image
            spec["volumes"][1]["projected"]["sources"][0]["configMap"]["name"] = used
            one = {"kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
            return kubernetes.amiss(names, [{"kind": "Namespace", "metadata": {"name": "n"}}, one, *documents])

        self.assertEqual(made("m-1", "r/i:1", "m-1"), [])
        self.assertEqual(made("m-1", "r/i:1", "m"), ["no such ConfigMap: m", "nobody uses it: m-1"])
        self.assertEqual(made("m", "r/i:1", "m"), ["a change of it does not roll: m"])
        self.assertEqual(made("m-1", "i", "m-1"), ["another image: i", "another image: r/i:1"])
        self.assertEqual(made("m-1", "r/i:1", "m-1", "default"), ["another namespace"])

    def test_a_kustomization_names_what_is_there(self) -> None:
        names: dict[str, Any] = {
            "resources": ["d.yaml"],
            "configMapGenerator": [{"name": "m", "files": ["c"]}],
            "images": [{"name": "i"}],
        }
        self.assertEqual(kubernetes.misses(names, good(), {"d.yaml", "c"}), [])
        self.assertEqual(len(kubernetes.misses(names, good(), {"d.yaml", "c", "more"})), 1)
        self.assertEqual(len(kubernetes.misses(names, good(), {"c"})), 1)
        names["images"][0]["name"] = "j"
        self.assertEqual(len(kubernetes.misses(names, good(), {"d.yaml", "c"})), 2)


def pod(name: str, **others: Any) -> dict[str, Any]:
    """One of a namespace, as the API has it; its UID ends in its name."""
    uid = f"01234567-89ab-cdef-0123-456789abcde{name}"
    return {"metadata": {"namespace": "shop", "name": name, "uid": uid, **others}, "status": {"phase": "Running"}}


class PodsTest(unittest.TestCase):
    def test_what_pods_ask_for_is_an_override_of_their_cgroup(self) -> None:
        made = pods.overrides(
            [
                pod("c", labels={"mthp-ext/policy": "database"}, annotations={"mthp-ext/policy": "small-services"}),
                pod("b", labels={"mthp-ext/policy": "database"}, annotations=None),
                pod("a", labels={"app": "a"}),
                # Of the node's manifests.
                pod(
                    "d",
                    namespace="kube-system",
                    annotations={
                        "mthp-ext/policy": "database",
                        "kubernetes.io/config.hash": "8daa50c3a64c9ff60bb9eab7b44b56fd",
                    },
                ),
                {**pod("e", labels={"mthp-ext/policy": "database"}), "status": {"phase": "Succeeded"}},
            ],
            ["database", "small-services"],
        )
        text, refused = made
        self.assertEqual(refused, [])
        found = tomllib.loads(text)["override"]
        # By namespace and name.
        self.assertEqual([one["policy"] for one in found], ["database", "database", "small-services"])
        self.assertEqual(
            found[1]["cgroups"],
            [
                "kubepods.slice/**/kubepods*-pod01234567_89ab_cdef_0123_456789abcdeb.slice",
                "kubepods/**/pod01234567-89ab-cdef-0123-456789abcdeb",
            ],
        )
        self.assertIn("kubepods/**/pod8daa50c3a64c9ff60bb9eab7b44b56fd", found[0]["cgroups"])
        self.assertIn("# shop/b\n", text)

    def test_a_pod_gets_no_more_than_it_may_ask_for(self) -> None:
        wrong = [
            pod("a", labels={"mthp-ext/policy": "off"}),
            pod("b", labels={"mthp-ext/policy": "database"}, uid="*"),
            pod(
                "c",
                namespace="kube-system",
                annotations={"mthp-ext/policy": "database", "kubernetes.io/config.hash": "x/**"},
            ),
            pod("d", annotations={"mthp-ext/policy": 'database"\ncgroups = ["**"]'}),
        ]
        text, refused = pods.overrides(wrong, ["database"])
        names = ["kube-system/c", *(f"shop/{name}" for name in "abd")]
        self.assertEqual([line.partition(":")[0] for line in refused], names)
        self.assertEqual(tomllib.loads(text), {})

    def test_nobody_asks_in_anothers_place(self) -> None:
        victim = pod("a", labels={"app": "a"})
        uid = victim["metadata"]["uid"]
        for said in (uid, uid.replace("-", "")):
            annotations = {"mthp-ext/policy": "database", "kubernetes.io/config.hash": said}
            attacker = pod("b", annotations=annotations)
            trusted = pod("c", namespace="static", annotations=annotations)
            for of, static_in in (([victim, attacker], ["static"]), ([trusted, victim], ["static"])):
                text, refused = pods.overrides(of, ["database"], static_in)
                self.assertEqual((len(refused), tomllib.loads(text)), (1, {}), said)
            # Nobody else has it now.
            text, refused = pods.overrides([trusted, attacker], ["database"], ["static"])
            self.assertEqual(refused[0].partition(":")[0], "shop/b")
            self.assertIn(f"kubepods/**/pod{said}", tomllib.loads(text)["override"][0]["cgroups"])
        self.assertNotIn("# static/c", pods.overrides([trusted], ["database"])[0])

    def test_the_command_takes_what_pods_may_ask_for(self) -> None:
        annotations = {
            "mthp-ext/policy": "database",
            "kubernetes.io/config.hash": "8daa50c3a64c9ff60bb9eab7b44b56fd",
        }
        of = json.dumps({"items": [pod("a", annotations=annotations)]})
        for words, code, found in (
            ([], 2, ""),
            (["database"], 1, "--static-in"),
            (["small-services", "--static-in", "shop"], 1, "may not ask"),
            (["database", "--static-in", "shop"], 0, "# shop/a\n"),
        ):
            argv = [sys.executable, str(kubernetes.MANIFESTS / "pods.py"), *words]
            done = subprocess.run(argv, input=of, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(found, done.stdout + done.stderr)


_KUBECTL = """\
#!/bin/sh
# Two pods; that of a gets the file with its third look, that of b with the second.
echo "$*" >>"$0.log"
looks() { grep -c "exec pod/$1 .* --show" "$0.log"; }
case "$*" in
*" get pods "*) printf 'pod/a\\npod/b\\n' ;;
*"exec pod/a "*" --show "*) [ "$(looks a)" -lt 3 ] && cat "$0.old" || cat "$0.new" ;;
*"exec pod/b "*" --show "*) [ "$(looks b)" -lt 2 ] && echo gone >&2 && exit 1 || cat "$0.new" ;;
*" reload") echo "in force" ;;
*) exit 9 ;;
esac
"""


class ReloadTest(unittest.TestCase):
    def test_an_agent_reads_the_file_when_it_is_there(self) -> None:
        text, _ = pods.overrides([pod("a", labels={"mthp-ext/policy": "database"})], ["database"])
        own = tomllib.loads(text)["override"][0]
        base = {"cgroups": ["kubepods"], "file": "/etc/mthp_ext/config.toml", "policy": "default"}
        new = {**own, "file": "/etc/mthp_ext/config.d/pods.toml"}
        with tempfile.TemporaryDirectory() as scratch:
            kubectl = Path(scratch) / "kubectl"
            kubectl.write_text(_KUBECTL)
            kubectl.chmod(0o755)
            for name, shown in (("old", [base, {**new, "policy": "off"}]), ("new", [base, new])):
                kubectl.with_suffix(f".{name}").write_text(json.dumps({"version": 1, "shown": shown}))
            file = Path(scratch) / "pods.toml"
            file.write_text(text)
            env = {**os.environ, "PATH": f"{scratch}:{os.environ['PATH']}"}
            argv = [sys.executable, str(RELOAD), str(file), "--patience"]
            done = subprocess.run([*argv, "0"], env=env, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertEqual(done.stderr, "pod/a: kubelet has not handed the file on\npod/b: gone\n")
            log = kubectl.with_suffix(".log")
            self.assertNotIn("reload", log.read_text())
            done = subprocess.run([*argv, "18"], env=env, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout, "pod/b: in force\npod/a: in force\n")
            reloads = [line.split()[3] for line in log.read_text().splitlines() if line.endswith(" reload")]
            self.assertEqual(reloads, ["pod/b", "pod/a"])


_LINES = """\
Text, with `kubectl apply` and `kubectl -n m exec POD -- /p events`.

```console elsewhere
$ kubectl get pods -A -o json | python3 pods.py a > pods.toml
# kubectl create configmap c --dry-run=client -o yaml | kubectl apply -f - && kubectl label node NODE a/b-   # why
output `kubectl of nobody`
$ skopeo copy oci-archive:build/x.oci.tar docker://registry.example/some/image:1-old
```
"""


class LinesTest(unittest.TestCase):
    def test_what_a_page_says_to_kubectl_is_read(self) -> None:
        found = [call[1:] for line in kubectl.lines(_LINES) for call in kubectl.calls(line)]
        self.assertEqual(
            [" ".join(call) for call in found],
            [
                "get pods -A -o json",
                "create configmap c --dry-run=client -o yaml",
                "apply -f -",
                "label node NODE a/b-",
                "-n m exec POD -- /p events",
            ],
        )
        self.assertEqual([kubectl.is_local(call) for call in found], [False, True, False, False, False])

    def test_a_config_map_is_what_the_pod_has_mounted(self) -> None:
        daemon_set = good()[0]
        source = {"configMap": {"name": "p", "items": [{"key": "k", "path": "d/k"}]}}
        daemon_set["spec"]["template"]["spec"]["volumes"].append({"projected": {"sources": [source]}})

        def made(name: str = "p", namespace: str = "n", key: str = "k", text: str = "t") -> int:
            one = {"metadata": {"name": name, "namespace": namespace}, "data": {key: text}}
            return len(kubectl.amiss(one, "t", daemon_set))

        self.assertEqual(made(), 0)
        self.assertEqual([made(name="q"), made(namespace="m"), made(key="l"), made(text="u")], [1, 1, 1, 1])

    def test_the_line_for_skopeo_is_that_of_the_page_with_another_registry(self) -> None:
        words = registry.here(registry.line(_LINES), Path("/i.tar"), "2", "127.0.0.1:5")
        target = "docker://127.0.0.1:5/some/image:2"
        self.assertEqual(words, ["copy", "--dest-tls-verify=false", "oci-archive:/i.tar", target])


class ImageTest(unittest.TestCase):
    def test_an_archive_is_what_its_index_says(self) -> None:
        tree = oci.Tree({"usr/sbin/mthp_ext": (b"x", 0o755)}, {"lib": "usr/lib"}, {"tmp", "run/mthp_ext"})
        made = oci.archive(tree, "1.0~git-1~deb12", "abc", WHEN)
        self.assertEqual(made, oci.archive(tree, "1.0~git-1~deb12", "abc", WHEN))
        with tarfile.open(fileobj=io.BytesIO(made)) as archive:
            parts = {one.name: file.read() for one in archive if (file := archive.extractfile(one))}
        self.assertEqual(json.loads(parts["oci-layout"]), {"imageLayoutVersion": "1.0.0"})

        def blob(of: dict[str, Any]) -> bytes:
            kind, _, digest = str(of["digest"]).partition(":")
            data = parts[f"blobs/{kind}/{digest}"]
            self.assertEqual((hashlib.sha256(data).hexdigest(), len(data)), (digest, of["size"]))
            return data

        named = json.loads(parts["index.json"])["manifests"][0]
        self.assertEqual(named["annotations"]["org.opencontainers.image.ref.name"], "1.0-git-1-deb12")
        manifest = json.loads(blob(named))
        config, layer = json.loads(blob(manifest["config"])), gzip.decompress(blob(manifest["layers"][0]))
        self.assertEqual(config["rootfs"]["diff_ids"], [f"sha256:{hashlib.sha256(layer).hexdigest()}"])
        self.assertEqual(len(parts), 5)
        with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
            self.assertEqual(
                [(one.name, oct(one.mode), one.uid, one.mtime) for one in archive],
                [
                    (name, mode, 0, int(WHEN.timestamp()))
                    for name, mode in (
                        ("lib", "0o777"), ("run", "0o755"), ("run/mthp_ext", "0o755"), ("tmp", "0o1777"),
                        ("usr", "0o755"), ("usr/sbin", "0o755"), ("usr/sbin/mthp_ext", "0o755"),
                    )
                ],
            )  # fmt: skip
