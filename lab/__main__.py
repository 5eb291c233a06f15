# SPDX-License-Identifier: GPL-2.0-only
"""Command line of the lab: `python3 -m lab COMMAND`; the Makefile's targets call it."""

import argparse
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from lab import proc
from lab.errors import Exit, LabError, of_host
from lab.paths import BUILD, cache_path, check_build
from lab.tlb.geometry import JOINS


def _setup(_: argparse.Namespace) -> int:
    from lab import setup
    from lab.tlb import emulator, model

    setup.ensure(setup.Need.ALL, say_done=True)
    model.plugin()
    try:
        emulator.find(renew=True)
    except LabError as error:
        # All else works without it; what needs it says so again.
        print(f"setup: no TLB model: {error}", file=sys.stderr)
    return Exit.OK


def _kernel(args: argparse.Namespace) -> int:
    from lab import setup
    from lab.kernel import build, series

    setup.ensure(setup.Need.KERNEL)
    variant = build.preempted(build.DEBUG if args.debug else build.DEFAULT, args.preempt)
    kernel = build.ensure(args.update, build.with_series(variant, series.names(args.series)))
    print(f"  image    {kernel.image}\n  vmlinux  {kernel.vmlinux}\n  config   {kernel.config}")
    return Exit.OK


def _tree(patches: Path) -> Path:
    from lab.kernel import series

    return BUILD / ("kernel-tree" if patches == series.PATCHES else f"kernel-tree-{patches.name}")


def _kernel_tree(args: argparse.Namespace) -> int:
    from lab import setup
    from lab.kernel import gittree, series

    setup.ensure(setup.Need.KERNEL)
    patches = series.one(series.names(args.series))
    gittree.create(args.dir or _tree(patches), patches)
    return Exit.OK


def _kernel_patches(args: argparse.Namespace) -> int:
    from lab import setup
    from lab.kernel import gittree, series

    setup.ensure(setup.Need.KERNEL)
    patches = series.one(series.names(args.series))
    gittree.export(args.dir or _tree(patches), args.base, patches)
    return Exit.OK


def _checkpatch(args: argparse.Namespace) -> int:
    from lab import setup
    from lab.checks import checkpatch
    from lab.kernel import series

    setup.ensure(setup.Need.KERNEL)
    return checkpatch.run(series.names(args.series))


def _config_matrix(args: argparse.Namespace) -> int:
    from lab import setup
    from lab.checks import matrix
    from lab.kernel import series

    need = setup.Need.KERNEL | setup.Need.CHECKS
    setup.ensure(need | (setup.Need.PROGRAM | setup.Need.VM if args.boot else setup.Need(0)))
    return matrix.run(args.case, args.boot, series.names(args.series))


def _bisect(args: argparse.Namespace) -> int:
    from lab import setup
    from lab.checks import bisect
    from lab.kernel import series

    setup.ensure(setup.Need.KERNEL | setup.Need.PROGRAM | (setup.Need(0) if args.quick else setup.Need.VM))
    return bisect.run(args.quick, args.patch, series.names(args.series))


def _mutants(args: argparse.Namespace) -> int:
    from lab import setup
    from lab.checks.mutants import run
    from lab.kernel import series

    names = series.names(args.series)
    here = setup.Need.KERNEL | setup.Need.PROGRAM | setup.Need.VM
    setup.ensure(setup.Need.ALL if names == series.DEFAULT else here)
    return run.run(args.mutant, names)


def _same_text(_: argparse.Namespace) -> int:
    from lab import setup
    from lab.checks import sametext

    setup.ensure(setup.Need.KERNEL | setup.Need.CHECKS)
    return sametext.run()


def _sparse(args: argparse.Namespace) -> int:
    from lab import setup
    from lab.checks import sparse
    from lab.kernel import series

    setup.ensure(setup.Need.KERNEL | setup.Need.CHECKS)
    return sparse.run(series.names(args.series))


def _build(_: argparse.Namespace) -> int:
    from lab import programs, setup

    setup.ensure(setup.Need.PROGRAM)
    print(programs.mthp_ext())
    return Exit.OK


def _test(args: argparse.Namespace) -> int:
    from lab.checks import main

    if args.name and (args.only or args.preempt):
        raise LabError(Exit.USAGE, "name programs, or give --only and --preempt; not both")
    return main.named(args.name) if args.name else main.test(args.only, args.preempt)


def _docs(args: argparse.Namespace) -> int:
    from lab.checks import main

    return main.docs(args.page)


def _figures(args: argparse.Namespace) -> int:
    from lab.checks import figures

    return figures.main(args.page)


def _systemd(_: argparse.Namespace) -> int:
    from lab.checks import systemd

    return systemd.main()


def _module(args: argparse.Namespace) -> int:
    from lab.checks import module

    kernels = tuple(args.kernel or module.KERNELS)
    if args.mutants is not None:
        return module.mutants(kernels, tuple(args.mutants))
    if args.soak:
        return module.soak(kernels, args.soak)
    return module.run(kernels, tuple(args.only or module.TESTS))


def _test_pud(args: argparse.Namespace) -> int:
    from lab.checks import pud

    return pud.main(args.test, args.debug)


def _test_pud_policy(args: argparse.Namespace) -> int:
    from lab.checks import pud

    return pud.policy(args.test)


def _bench_pud(_: argparse.Namespace) -> int:
    from lab.checks import pudbench

    return pudbench.main()


def _deb(_: argparse.Namespace) -> int:
    from lab.deb import build

    return build.main()


def _kernel_deb(args: argparse.Namespace) -> int:
    from lab.deb import kernel

    return kernel.main(args.flavour)


def _test_kernel_deb(_: argparse.Namespace) -> int:
    from lab.checks import kerneldeb

    return kerneldeb.main()


def _oci(_: argparse.Namespace) -> int:
    from lab.deb import oci

    return oci.main()


def _test_kubernetes(_: argparse.Namespace) -> int:
    from lab.checks import kubernetes

    return kubernetes.main()


def _test_prometheus(_: argparse.Namespace) -> int:
    from lab.checks import prometheus

    return prometheus.main()


def _test_deb(_: argparse.Namespace) -> int:
    from lab.checks import deb

    return deb.main()


def _test_dkms(_: argparse.Namespace) -> int:
    from lab.checks import dkms

    return dkms.main()


def _test_machine(args: argparse.Namespace) -> int:
    from lab.checks import installed

    return installed.main(*([(args.kernel,)] if args.kernel else []))


def _lint(_: argparse.Namespace) -> int:
    from lab.checks import main

    return main.lint()


def _demo(args: argparse.Namespace) -> int:
    from lab.demo.main import main

    return main([*(["--scale", args.scale] if args.scale else []), *args.rest])


def _bench(args: argparse.Namespace) -> int:
    from lab.bench.main import main

    return main(args.rest)


def _publish(args: argparse.Namespace) -> int:
    from lab.checks import publish

    return publish.main(args.name, args.date)


def _bench_hook(_: argparse.Namespace) -> int:
    from lab.cost.main import main

    return main()


def _bench_tlb(args: argparse.Namespace) -> int:
    from lab.bench import benchtlb

    return benchtlb.main(args.file, args.memory, args.coalesce)


def _walks(args: argparse.Namespace) -> int:
    from lab.tlb import coverage

    return coverage.main(args.file)


def _bench_khugepaged(_: argparse.Namespace) -> int:
    from lab.checks import khugepaged

    return khugepaged.main()


def _vm(args: argparse.Namespace) -> int:
    from lab import setup, vm
    from lab.kernel import build
    from lab.vm import accel

    setup.ensure(setup.Need.VM)
    kernel = args.kernel or build.ensure().image
    mode = vm.Mode(args.mode) if args.mode else accel.of_image(kernel)[0]
    job = vm.Job(
        kernel=kernel,
        argv=args.argv,
        programs=args.program,
        memory_mib=args.memory,
        cpus=1 if mode is vm.Mode.ICOUNT else args.cpus,
        mode=mode,
        timeout_s=args.timeout,
        append=args.append,
        name="by-hand",
    )
    outcome = vm.run(job)
    sys.stdout.write(outcome.output.read_text(errors="replace"))
    print(f"lab: {outcome.verdict} after {outcome.seconds:.1f} s", outcome.reason, file=sys.stderr)
    return outcome.verdict.exit_code


def _soak(args: argparse.Namespace) -> int:
    from lab.checks import pud, soak
    from lab.kernel import series

    names = series.names(args.series)
    if names == ("pud",):
        if args.preempt:
            raise LabError(Exit.USAGE, "the soak of the series pud has one model of preemption, the usual one")
        return pud.soak(args.minutes, args.seed, args.debug)
    series.default(names, "the soak")
    return soak.main(args.minutes, args.seed, args.preempt)


def _debug_mutants(args: argparse.Namespace) -> int:
    from lab.checks import debugmutants

    return debugmutants.main(args.name)


def _clean_root(args: argparse.Namespace) -> int:
    from lab.checks import cleanroot

    suite = args.suite or cleanroot.other_suite()
    return cleanroot.main(suite, args.target or [cleanroot.SHORT], args.user, args.lend_kernel)


def _clean(_: argparse.Namespace) -> int:
    if BUILD.exists():
        shutil.rmtree(BUILD)
    print(f"removed {BUILD}; fetched sources and built kernels stay in {cache_path()}")
    return Exit.OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, call: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(call=call)
        return sub

    def also(
        sub: argparse.ArgumentParser,
        option: str,
        variable: str,
        text: str,
        read: Callable[[str], object] = str,
        default: object = None,
    ) -> None:
        """An option that is a variable of make, too."""
        given = os.environ.get(variable) or None
        text += f" (also: {variable}={f'; default: {default}' if default else ''})"
        # argparse reads a default that is a string as it reads an argument.
        sub.add_argument(option, type=read, default=default if given is None else given, help=text.replace("%", "%%"))

    def switch(sub: argparse.ArgumentParser, option: str, variable: str, text: str) -> None:
        given = os.environ.get(variable) == "1"
        sub.add_argument(option, action="store_true", default=given, help=f"{text} (also: {variable}=1)")

    def preempt(sub: argparse.ArgumentParser) -> None:
        also(sub, "--preempt", "PREEMPT", "the model of preemption of the kernel: full, rt; without: lazy", default="")

    def series(sub: argparse.ArgumentParser) -> None:
        text = "of kernel/series/, those to apply, in this order"
        also(sub, "--series", "SERIES", text, default="mthp")

    add("setup", _setup, "install what the other commands need")
    kernel = add("kernel", _kernel, "fetch, verify, patch and build the kernel")
    switch(kernel, "--update", "UPDATE", "look for a newer base first")
    switch(kernel, "--debug", "DEBUG", "the one with KASAN, lockdep and their like")
    preempt(kernel)
    series(kernel)
    tree = add("kernel-tree", _kernel_tree, "make a git tree with one commit per patch")
    also(tree, "--dir", "DIR", "where; without: build/kernel-tree, with the name of another series", Path)
    series(tree)
    patches = add("kernel-patches", _kernel_patches, "write the tree's commits back to kernel/series/")
    also(patches, "--dir", "DIR", "the tree; without: as for kernel-tree", Path)
    series(patches)
    also(patches, "--base", "BASE", "commit the series starts above, for a tree that kernel-tree did not make")
    series(add("checkpatch", _checkpatch, "run checkpatch.pl --strict over the series"))
    matrix = add("config-matrix", _config_matrix, "compile what the series touches with options off, and elsewhere")
    switch(matrix, "--boot", "BOOT", "boot the kernel without PSI, too, and run selftests in it (series mthp alone)")
    series(matrix)
    matrix.add_argument("case", nargs="*", help="only these (and the reference they are compared with)")
    bisect = add("bisect", _bisect, "build and boot the series patch by patch")
    switch(bisect, "--quick", "QUICK", "compile only what the series touches, and boot nothing")
    series(bisect)
    bisect.add_argument("patch", nargs="*", type=int, help="only these numbers of the series")
    mutants = add("mutants", _mutants, "break each rule of the contract once; a named test must notice")
    series(mutants)
    mutants.add_argument("mutant", nargs="*", help="only these")
    add("same-text", _same_text, "compare the code without ANON_PUD_THP with that of the base, for x86-64 and arm64")
    series(add("sparse", _sparse, "run sparse over what the series touches"))
    add("build", _build, "build the mthp_ext binary")
    test = add("test", _test, "run all checks")
    test.add_argument(
        "--only",
        action="append",
        metavar="PART",
        help="run only lint, host, vm, sample, kernel, soak or debug (may repeat)",
    )
    test.add_argument("name", nargs="*", help="only these programs in guests, such as e2e_keep or mthp_psi")
    preempt(test)
    add("lint", _lint, "run the linters")
    docs = add("docs", _docs, "run the commands of pages for users as the pages show them")
    docs.add_argument("page", nargs="+", help="such as docs/use.md")
    figures = add("figures", _figures, "compare the figures on pages with the results they are taken from")
    figures.add_argument("page", nargs="*", help="default: all that hold figures")
    demo = add("demo", _demo, "compare always, never, the proposal and mthp_ext on Redis")
    demo.add_argument("--scale", help="how large (see docs/internals/lab.md)")
    demo.add_argument("rest", nargs="*", help="passed on to the demo (after --)")
    bench = add("bench", _bench, "the benchmark suite: every static setting and every policy, judged by regret")
    bench.add_argument("rest", nargs="*", help="passed on to the suite (after --)")
    published = add("publish", _publish, "copy whole results of bench and demo to results/DATE")
    also(published, "--date", "DATE", "of the directory; without: of the run")
    published.add_argument("name", nargs="*", help="bench, demo (default: both)")
    add("bench-hook", _bench_hook, "count the instructions that the hook costs")
    add("bench-khugepaged", _bench_khugepaged, "khugepaged's scan here and on a stock kernel from before")
    one = add("bench-tlb", _bench_tlb, "page-table walks of a program of yours under each huge page setting")
    one.add_argument(
        "file", type=lambda word: Path(word).absolute(), nargs="?", help="a program, or a directory with one named run"
    )
    one.add_argument("--memory", type=int, default=2048, help="MiB of the guest (default: %(default)s)")
    text = "contiguous base pages that share an entry: 16K as on Zen, 64K as Arm's contpte (default: %(default)s)"
    one.add_argument("--coalesce", choices=list(JOINS), default="off", help=text)
    counted = add("walks", _walks, "the TLB model at several coverages, beside what a processor counted")
    counted.add_argument("file", type=Path, nargs="?", help="written by lab/tlb/hardware.py on a real machine")
    soak = add(
        "soak",
        _soak,
        "run everything at once on the kernel for debugging; the series pud without --debug: on that of test-pud",
    )
    switch(soak, "--debug", "DEBUG", "the series pud on its kernel with KASAN and lockdep; mthp always has its own")
    also(soak, "--minutes", "MINUTES", "of guest time", float, 30.0)
    also(soak, "--seed", "SEED", "start of the random numbers; without: the time", int)
    preempt(soak)
    series(soak)
    mutants = add("debug-mutants", _debug_mutants, "break the kernel for debugging, and see whether it notices")
    mutants.add_argument("name", nargs="*", help="only these (default: all of kernel/mutants/debug/)")
    one = add("vm", _vm, "run a command in a guest")
    one.add_argument("--kernel", type=Path, help="image (default: the one `make kernel` builds)")
    one.add_argument("--mode", choices=["kvm", "tcg", "single", "icount"], help="default: the fastest that works")
    one.add_argument(
        "--program",
        type=lambda word: Path(word).absolute(),
        action="append",
        default=[],
        help="host binary to take along",
    )
    one.add_argument("--memory", type=int, default=1024, help="MiB (default: %(default)s)")
    one.add_argument("--cpus", type=int, default=2, help="default: %(default)s")
    one.add_argument("--timeout", type=float, default=300, help="seconds (default: %(default)s)")
    one.add_argument("--append", default="", help="added to the kernel command line")
    one.add_argument("argv", nargs="+", help="command, after --")
    add("deb", _deb, "build the Debian package for the release of this machine")
    one = add("kernel-deb", _kernel_deb, "Debian packages of a kernel to boot: the series on Debian's configuration")
    also(one, "--flavour", "FLAVOUR", "cloud-amd64 (virtual machines) or amd64", default="cloud-amd64")
    add("test-kernel-deb", _test_kernel_deb, "boot those packages from a disk, through its own boot loader")
    add("test-systemd", _systemd, "the unit under systemd in a guest")
    one = add("test-pud", _test_pud, "the series pud: its kernel, and its selftest in a guest with two nodes")
    switch(one, "--debug", "DEBUG", "on a kernel with KASAN, lockdep and their like")
    one.add_argument("test", nargs="*", help="only these tests of the selftest (default: all)")
    add("bench-pud", _bench_pud, "1 GiB pages beside smaller ones: first touch, reads and writes of 4 GiB")
    one = add("test-pud-policy", _test_pud_policy, "what policies say about 1 GiB, on a kernel with both series")
    one.add_argument("test", nargs="*", help="only tests with this in their name (default: all)")
    from lab.kernel import stockbuild

    one = add("test-module", _module, "the module for stock kernels, and end-to-end tests on it")
    one.add_argument("--kernel", action="append", choices=stockbuild.NAMES, help="default: each")
    one.add_argument(
        "--only",
        action="append",
        metavar="TEST",
        help="contract, refused, signed, cost, stress, or an end-to-end test program; without: all for the module",
    )
    one.add_argument("--mutants", nargs="*", metavar="NAME", help="break the module instead; without names: each rule")
    one.add_argument(
        "--soak", type=int, default=0, metavar="ROUNDS", help="everything at once on two processors instead"
    )
    add("oci", _oci, "an image of the Debian package, as an OCI archive")
    add("test-kubernetes", _test_kubernetes, "manifests by schema and rules; the image under containerd in a guest")
    add("test-prometheus", _test_prometheus, "dashboard and rules in a real Prometheus, on pages recorded in a guest")
    add("test-deb", _test_deb, "the Debian package: reproducible, lintian, installed to purged in a guest")
    add("test-dkms", _test_dkms, "the module's package under DKMS: two kernels, upgraded, removed, purged")
    one = add("test-machine", _test_machine, "a Debian 13 with its own kernel: both packages installed, Redis served")
    one.add_argument("--kernel", choices=stockbuild.NAMES, help="default: each")
    root = add("clean-root", _clean_root, "run make targets in a clean Debian root, as a newcomer would")
    also(root, "--suite", "SUITE", "trixie or bookworm; without: the one that this host is not of")
    switch(root, "--user", "AS_USER", "as an ordinary user with sudo instead of root")
    root.add_argument("--lend-kernel", action="store_true", help="test-short there takes this host's finished kernel")
    root.add_argument("target", nargs="*", help="default: test-short")
    add("clean", _clean, "remove build/")
    return parser


_PROC = Path("/proc/self")


def _check_host() -> None:
    """What every command needs and no package brings."""
    if not _PROC.exists():
        raise LabError(
            Exit.HOST, "/proc is not mounted, and compilers and QEMU need it; as root: mount -t proc proc /proc"
        )
    check_build()
    temporary = Path(os.environ.get("TMPDIR") or "/tmp")
    if not (temporary.is_dir() and os.access(temporary, os.W_OK | os.X_OK)):
        # Compilers give up there; nothing large is put there.
        os.environ["TMPDIR"] = str(BUILD / "tmp")
        (BUILD / "tmp").mkdir(exist_ok=True)
        print(f"lab: {temporary} cannot be used for temporary files; {BUILD / 'tmp'} is", file=sys.stderr)


def main() -> int:
    """Runs one command; its exit code is documented in docs/internals/lab.md."""
    proc.stop_on_signals()
    args = _parser().parse_args()
    try:
        if args.call is not _clean:
            _check_host()
        return int(args.call(args))
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("lab: interrupted", file=sys.stderr)
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output went away.
        return Exit.INTERRUPTED
    except OSError as error:
        # What the host refuses, not what the lab does wrong: that keeps its trace.
        refused = of_host(error)
        if refused.code is Exit.HOST:
            raise
        print(f"lab: {refused}", file=sys.stderr)
        return refused.code
    finally:
        proc.stop_all()


if __name__ == "__main__":
    sys.exit(main())
