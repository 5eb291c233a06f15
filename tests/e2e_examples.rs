// SPDX-License-Identifier: GPL-2.0-only
//! The example policies of the series (tools/mm/bpf_mthp), built by their own Makefile: each
//! loads, does what its README says, and is gone with its loader.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use common::worker::{MADV_HUGEPAGE, Worker, mostly_huge};
use common::{Group, MIB, Setting, Swap, eventually, keyed, max_ptes_none, world};

/// A running loader.  Dropped: killed.
struct Example {
    child: Child,
}

fn command(args: &[&str]) -> Command {
    let program = std::env::var_os("MTHP_POLICY_BIN").expect("MTHP_POLICY_BIN names the loader");
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Example {
    /// Attaches a policy to a cgroup; returns when it is attached.
    fn run(group: &Group, args: &[&str]) -> Self {
        let path = group.path.to_str().unwrap();
        let mut child = command(&[args, &[path]].concat()).spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let mut example = Example { child };
        let attached = line == format!("attached to {path}\n");
        assert!(attached, "{line:?}: {}", example.errors());
        example
    }

    fn errors(&mut self) -> String {
        let mut text = String::new();
        let mut from = self.child.stderr.take().unwrap();
        from.read_to_string(&mut text).unwrap();
        text
    }

    fn end(&mut self, signal: Signal) -> Option<i32> {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes in huge pages of a new process in `group` that fills as much.
fn huge_of(group: &Group, bytes: u64) -> u64 {
    let mut worker = Worker::new(group);
    worker.fill(bytes);
    worker.huge()
}

#[test]
#[ignore = "needs the lab's VM"]
fn headroom_takes_huge_pages_away_near_a_limit() {
    world();
    let group = Group::new("near");
    let _example = Example::run(&group, &["headroom", "-k", "16"]);
    assert_eq!(huge_of(&group, 8 * MIB), 8 * MIB, "no limit");
    // 2 MiB fit 16 times into 64 MiB, less what is used, but not into 24.
    group.set("memory.max", "64M");
    assert_eq!(huge_of(&group, 8 * MIB), 8 * MIB, "far from the limit");
    group.set("memory.max", "24M");
    assert_eq!(huge_of(&group, 8 * MIB), 0, "near the limit");
    let mut advised = Worker::new(&group);
    advised.map(4 * MIB);
    assert_eq!(advised.advise(MADV_HUGEPAGE), 0);
    advised.touch(4 * MIB);
    assert_eq!(advised.huge(), 4 * MIB, "advised memory is left alone");
}

#[test]
#[ignore = "needs the lab's VM"]
fn headroom_regards_the_limits_of_ancestors() {
    world();
    let group = Group::new("above");
    let example = Example::run(&group, &["headroom", "-k", "16"]);
    let child = group.child("child");
    group.set("memory.high", "24M");
    assert_eq!(huge_of(&child, 8 * MIB), 0);
    let leaf = child.child_without_memory("leaf");
    assert_eq!(huge_of(&leaf, 8 * MIB), 0, "charged to its parent");
    drop(example);
    assert_eq!(huge_of(&child, 8 * MIB), 8 * MIB, "the policy is gone");
}

#[test]
#[ignore = "needs the lab's VM"]
fn small_means_page_faults_of_small_cgroups() {
    world();
    max_ptes_none(511);
    let group = Group::new("small");
    let mut example = Example::run(&group, &["small", "-w", "200", "-t", "200"]);
    let mut worker = Worker::new(&group);
    worker.fill(8 * MIB);
    assert_eq!(worker.huge(), 0, "less than 16 MiB");
    {
        let _awake = Setting::khugepaged_awake();
        eventually("khugepaged collapses it", || worker.huge() == 8 * MIB);
    }
    worker.fill(128 * MIB);
    mostly_huge(&mut worker, 128 * MIB);
    drop(worker);
    assert_eq!(example.end(Signal::SIGINT), Some(0));
    assert_eq!(huge_of(&group, 8 * MIB), 8 * MIB, "the policy is gone");
}

#[test]
#[ignore = "needs the lab's VM"]
fn small_sees_stall() {
    world();
    let group = Group::new("stalls");
    let _example = Example::run(&group, &["small", "-w", "200", "-t", "1"]);
    let mut probe = Worker::new(&group);
    probe.fill(128 * MIB);
    mostly_huge(&mut probe, 128 * MIB);
    // What it touches beyond memory.high makes it wait, and nobody else is there to run.
    group.set("memory.high", "32M");
    let mut waits = Worker::new(&group);
    waits.map(64 * MIB);
    waits.touch_start(64 * MIB);
    eventually("it stalls", || group.full_stall_us() > 500_000);
    eventually("huge pages end", || huge_at_once(&group) == 0);
}

#[test]
#[ignore = "needs the lab's VM"]
fn small_takes_back_what_stalls() {
    world();
    let _swap = Swap::on();
    let group = Group::new("late");
    let mut worker = Worker::new(&group);
    worker.fill(96 * MIB);
    mostly_huge(&mut worker, 96 * MIB);
    let splits = || keyed(&group.get("memory.stat"), "thp_bpf_split");
    let take = |worker: &mut Worker| {
        group.reclaim(8 * MIB);
        assert!(worker.touch_sparsely(16384), "it was killed");
    };
    let calm = Example::run(&group, &["small", "-w", "200", "-t", "200"]);
    take(&mut worker);
    assert_eq!(splits(), 0, "nobody stalls for all of a window");
    drop(calm);
    // Any stall is too much, and who is over its limit stalls.
    group.set("memory.high", "80M");
    let _example = Example::run(&group, &["small", "-w", "200", "-t", "1"]);
    eventually("what is in use is split", || {
        take(&mut worker);
        splits() > 0
    });
}

/// Bytes in huge pages after the first page of 2 MiB was touched.
fn huge_at_once(group: &Group) -> u64 {
    let mut worker = Worker::new(group);
    worker.map(2 * MIB);
    worker.touch(4096);
    worker.huge()
}

#[test]
#[ignore = "needs the lab's VM"]
fn it_ends_with_its_cgroup() {
    world();
    for policy in ["headroom", "small"] {
        let group = Group::new("removed");
        let mut example = Example::run(&group, &[policy]);
        group.remove();
        assert_eq!(example.child.wait().unwrap().code(), Some(0), "{policy}");
        assert!(example.errors().ends_with("removed was removed\n"));
    }
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_second_policy_is_refused() {
    world();
    let group = Group::new("taken");
    let _first = Example::run(&group, &["headroom"]);
    let out = command(&["small", group.path.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1));
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("File exists"), "{said}");
    assert_eq!(
        command(&["large", "/"]).output().unwrap().status.code(),
        Some(2)
    );
}
