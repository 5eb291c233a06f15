// SPDX-License-Identifier: GPL-2.0-only
//! A policy that outlives its daemon: kept, obeyed while its scans are fresh, taken over by the
//! next one without a gap, and gone when asked.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod common;

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::Signal;
use serde_json::Value;

use common::ext::{Ext, attached, command, fails, link_id, output, run_on, status, status_of};
use common::inject::{self, Call};
use common::own::{self, OwnFile};
use common::worker::{Busy, Worker, bound};
use common::{Group, MIB, Swap, eventually, world};

const BPFFS: &str = "/sys/fs/bpf";
const PINS: &str = "/sys/fs/bpf/mthp_ext";

const KEEP: [&str; 2] = ["--on-exit", "keep"];

/// Base pages only, without a scan.
const CLOSED: [&str; 6] = ["--on-exit", "keep", "--policy", "headroom", "--cap", "4K"];

/// The same with scans, more often than anybody needs.
const SCANNED: [&str; 8] = [
    "--on-exit",
    "keep",
    "--cap",
    "4K",
    "--window",
    "100ms",
    "--threshold",
    "10ms",
];

/// As long as those scans may be away: no restart is that long.
const OLDEST: Duration = Duration::from_secs(5);

/// 16 windows.
const WINDOWS: Duration = Duration::from_millis(1600);

fn killed(mut ext: Ext) {
    ext.signal(Signal::SIGKILL);
    assert_eq!(ext.wait(), None);
}

/// A policy that is kept and that nobody runs.
fn kept(name: &str) -> Group {
    world();
    let group = Group::new(name);
    killed(Ext::run(&group, &CLOSED));
    group
}

fn policy() -> Value {
    status()["policies"][0].clone()
}

/// Names of the pins of the one policy.
fn pins() -> Vec<String> {
    let place = std::fs::read_dir(PINS).unwrap().next().unwrap().unwrap();
    let pins = std::fs::read_dir(place.path()).unwrap();
    let mut names: Vec<String> = pins
        .map(|pin| pin.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn detach() -> Value {
    let out = output(&["detach", "--json"]);
    assert!(out.status.success(), "{out:?}");
    common::schema::answer("detach", &out.stdout)
}

/// Nothing is attached and nothing is pinned.
fn nothing_left() {
    assert_eq!(attached(), 0);
    assert!(!Path::new(PINS).exists());
}

/// What is kept can go, and nothing stays behind.
fn goes() {
    detach();
    nothing_left();
}

#[test]
#[ignore = "needs the lab's VM"]
fn the_configuration_says_what_becomes_of_it() {
    world();
    let group = Group::new("said");
    let file = OwnFile::new("config.toml", format!("on-exit = 'keep'\n{}", own::OPEN));
    let config = ["--config", file.path()];
    killed(Ext::run(&group, &config));
    assert_eq!(policy()["pinned"], true);
    let link = link_id();
    // The next one goes on with it, and ends it: the command line comes first.
    let detach = [&config[..], &["--on-exit", "detach"]].concat();
    let mut ext = Ext::run(&group, &detach);
    assert_eq!(link_id(), link);
    ext.signal(Signal::SIGTERM);
    assert_eq!(ext.wait(), Some(0));
    nothing_left();
    // A unit's hand-over takes second place, and needs no service manager then.
    let unit = [&config[..], &["--on-exit", "hand-over"]].concat();
    let ext = Ext::run(&group, &unit);
    file.write(own::OPEN);
    ext.signal(Signal::SIGHUP);
    let refused = ext.expect("refused", |line| line["in_force"] == false);
    let text = refused["text"].as_str().unwrap();
    assert!(
        text.contains("another on-exit, hand-over (--on-exit) instead of keep ("),
        "{text}"
    );
    killed(ext);
    assert_eq!(policy()["pinned"], true);
    self::detach();
    nothing_left();
    // What the command line has said stays said: another word of the file changes nothing.
    let ext = Ext::run(&group, &detach);
    file.write(format!("on-exit = 'keep'\n{}", own::OPEN));
    ext.signal(Signal::SIGHUP);
    ext.expect("taken over", |line| line["in_force"] == true);
    drop(ext);
    nothing_left();
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_dry_run_is_not_kept() {
    world();
    let group = Group::new("dry");
    let file = OwnFile::new("config.toml", format!("on-exit = 'keep'\n{}", own::OPEN));
    let dry = ["--config", file.path(), "--dry-run"];
    for _ in 0..2 {
        killed(Ext::run(&group, &dry));
        nothing_left();
    }
}

#[test]
#[ignore = "needs the lab's VM"]
fn killed_it_stays_until_it_is_detached() {
    let group = kept("kept");
    assert!(bound(&group));
    let policy = policy();
    assert_eq!(policy["pinned"], true, "{policy}");
    assert_eq!(policy["readable"], true, "{policy}");
    // Nothing of it ages.
    assert_eq!(policy["heartbeat"], Value::Null);
    assert_eq!(status_of(&group)["why"], "cap");
    let done = detach();
    assert_eq!(done["detached"][0]["root"], group.name(), "{done}");
    assert_eq!(done["detached"][0]["link_id"], policy["link_id"]);
    assert!(!bound(&group));
    nothing_left();
    assert_eq!(detach()["detached"], serde_json::json!([]));
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_signal_keeps_it_and_says_so() {
    world();
    let group = Group::new("told");
    let mut ext = Ext::run(&group, &CLOSED);
    ext.signal(Signal::SIGTERM);
    assert_eq!(ext.wait(), Some(0));
    let last = ext.expect("kept", |l| l["event"] == "kept");
    assert_eq!(last["signal"], "SIGTERM", "{last}");
    assert_eq!(last["handed"], false, "{last}");
    assert!(bound(&group));
    let text = String::from_utf8(output(&["status"]).stdout).unwrap();
    assert!(text.contains("\n  kept when its daemon ends\n"), "{text}");
    goes();
}

#[test]
#[ignore = "needs the lab's VM"]
fn without_scans_it_narrows_for_a_time_and_then_nothing() {
    world();
    let group = Group::new("aging");
    killed(Ext::run(&group, &SCANNED));
    std::thread::sleep(WINDOWS);
    assert!(bound(&group), "a restart may take longer");
    assert_eq!(policy()["heartbeat"]["beats"], true);
    std::thread::sleep(OLDEST - WINDOWS);
    eventually("it passes everything", || !bound(&group));
    let policy = policy();
    assert_eq!(policy["heartbeat"]["beats"], false, "{policy}");
    assert_eq!(policy["heartbeat"]["oldest_ms"], 5000, "{policy}");
    let line = status_of(&group);
    assert_eq!(
        (&line["allowed"], &line["why"]),
        (&"all".into(), &"none".into()),
        "{line}"
    );
    let text = String::from_utf8(output(&["status"]).stdout).unwrap();
    assert!(
        text.contains("over 5s: what has the rule pressure passes everything"),
        "{text}"
    );
    // The next one brings it back to life.
    let next = Ext::run(&group, &SCANNED);
    assert!(bound(&group));
    drop(next);
    goes();
}

/// As under the unit, whose watchdog is slower than this.
#[test]
#[ignore = "needs the lab's VM"]
fn a_daemon_that_is_stopped_brings_it_back_to_life() {
    world();
    let group = Group::new("stopped");
    let ext = Ext::run(&group, &SCANNED);
    ext.signal(Signal::SIGSTOP);
    assert!(bound(&group), "with the verdicts of the last scan");
    std::thread::sleep(OLDEST);
    eventually("it passes everything", || !bound(&group));
    ext.signal(Signal::SIGCONT);
    eventually("it scans again", || bound(&group));
    drop(ext);
    goes();
}

/// With a configuration the programs have all rules, and so a heartbeat: a policy that needs none
/// of what scans say goes on without it.
#[test]
#[ignore = "needs the lab's VM"]
fn what_no_scan_decides_does_not_age() {
    world();
    let group = Group::new("ageless");
    let (tiny, pressed) = (group.child("tiny"), group.child("pressed"));
    let of_pressed = "[policies.pressed]\nbase = 'default'\ncap = '4K'
[[override]]\ncgroups = 'ageless/pressed'\npolicy = 'pressed'\n";
    let file = OwnFile::new("config.toml", own::tiny("ageless/tiny") + of_pressed);
    killed(Ext::run(
        &group,
        &[&KEEP[..], &["--config", file.path()]].concat(),
    ));
    assert!(bound(&tiny) && bound(&pressed));
    // 16 windows.
    std::thread::sleep(Duration::from_secs(17));
    assert!(!bound(&pressed) && bound(&tiny));
    assert_eq!(status_of(&pressed)["why"], "none");
    assert_eq!(status_of(&tiny)["why"], "cap");
    goes();
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_daemon_that_runs_keeps_it_alive() {
    world();
    let group = Group::new("scanned");
    let ext = Ext::run(&group, &SCANNED);
    std::thread::sleep(OLDEST + Duration::from_secs(2));
    assert!(bound(&group));
    drop(ext);
    goes();
}

#[test]
#[ignore = "needs the lab's VM"]
fn the_next_one_takes_over_without_a_gap() {
    world();
    for args in [&CLOSED[..], &SCANNED] {
        let group = Group::new("taken-over");
        let mut ext = Ext::run(&group, args);
        let link = link_id();
        // Region after region: how many, and what of them is huge.
        let faults = Busy::with((Worker::new(&group), 0, 0), |(worker, regions, huge)| {
            worker.fill(4 * MIB);
            *huge += worker.huge();
            *regions += 1;
        });
        for round in 0..4 {
            killed(ext);
            ext = Ext::run(&group, args);
            assert_eq!(link_id(), link, "{args:?}, round {round}");
        }
        let (_, regions, huge) = faults.stop();
        assert!(regions > 8, "{regions} regions are too few to see a gap");
        assert_eq!(
            huge, 0,
            "{args:?}: bytes that nobody narrowed, in {regions} regions"
        );
        drop(ext);
        detach();
        nothing_left();
    }
}

/// Makes the program tell when a call of bpf(2) is about to be made, and when it has been.
fn around(call: &Call, number: u32, made: &mut bool) -> Option<&'static str> {
    let is = call.number == libc::SYS_bpf && call.args[0] == u64::from(number);
    let after = std::mem::replace(made, is);
    match (after, is) {
        (true, _) => Some("after"),
        (false, true) => Some("before"),
        _ => None,
    }
}

/// It stands still at each of its calls, so whatever is in force between two can be seen.
#[test]
#[ignore = "needs the lab's VM"]
fn cgroups_have_their_own_policy_before_it_takes_over() {
    world();
    let group = Group::new("own");
    let (tiny, plain) = (group.child("tiny"), group.child("plain"));
    let file = OwnFile::new("config.toml", own::tiny("own/tiny"));
    let run = run_on(&group, &[&KEEP[..], &["--config", file.path()]].concat());
    // A start, and one that takes over.
    for call in [libbpf_sys::BPF_LINK_CREATE, libbpf_sys::BPF_LINK_UPDATE] {
        let (mut made, mut seen) = (false, Vec::new());
        let ended = inject::run(command(&run), |it| {
            if let Some(when) = around(it, call, &mut made) {
                seen.push((when, bound(&plain), bound(&tiny)));
            }
            None
        });
        assert_eq!((ended.code, ended.served), (Some(0), true), "{ended:?}");
        let before = ("before", false, call == libbpf_sys::BPF_LINK_UPDATE);
        assert_eq!(seen, [before, ("after", false, true)]);
    }
    goes();
}

/// Loading takes seconds on a busy host: a policy is not old because of that.
#[test]
#[ignore = "needs the lab's VM"]
fn its_heart_beats_from_when_it_is_in_force() {
    const LOADING: Duration = Duration::from_secs(2);
    world();
    let group = Group::new("slow");
    let (mut slept, mut made, mut age_ms) = (false, false, None);
    let ended = inject::run(command(&run_on(&group, &SCANNED)), |it| {
        let loads =
            it.number == libc::SYS_bpf && it.args[0] == u64::from(libbpf_sys::BPF_PROG_LOAD);
        if loads && !std::mem::replace(&mut slept, true) {
            std::thread::sleep(LOADING);
        }
        if around(it, libbpf_sys::BPF_LINK_CREATE, &mut made) == Some("after") {
            age_ms = policy()["heartbeat"]["age_ms"].as_u64();
        }
        None
    });
    assert_eq!((ended.code, slept), (Some(0), true), "{ended:?}");
    let age_ms = age_ms.expect("it has a heartbeat");
    assert!(u128::from(age_ms) < LOADING.as_millis(), "{age_ms} ms");
    goes();
}

/// What was found out about each cgroup is not found out again: a verdict takes a window.
#[test]
#[ignore = "needs the lab's VM"]
fn verdicts_are_taken_over() {
    world();
    let _swap = Swap::on();
    let file = OwnFile::new(
        "config.toml",
        "policy = 'pressed'\n[policies.pressed]\nbase = 'default'\nwindow = '10s'\nmin-memory = '0'\n",
    );
    for args in [
        &["--window", "10s", "--min-memory", "0"][..],
        &["--config", file.path()],
    ] {
        let args = [&KEEP, args].concat();
        let group = Group::new("pressed");
        let ext = Ext::run(&group, &args);
        group.set("memory.high", "16M");
        let mut worker = Worker::new(&group);
        worker.fill(64 * MIB);
        // The verdict may end with the next window: it reads on, and stalls, until all is seen.
        let reader = Busy::with(worker, Worker::read);
        // Not by the line of a decision: room may have narrowed as much before.
        eventually("it is pressed", || status_of(&group)["pressure"] == true);
        let before = status_of(&group);
        killed(ext);
        let ext = Ext::run(&group, &args);
        let after = status_of(&group);
        assert_eq!(after["pressure"], true, "{args:?}\n{before}\n{after}");
        assert!(
            after["requests"]["fault"].as_u64() >= before["requests"]["fault"].as_u64(),
            "{args:?}\n{before}\n{after}"
        );
        drop((ext, reader.stop()));
        detach();
        nothing_left();
    }
}

#[test]
#[ignore = "needs the lab's VM"]
fn another_policy_may_take_over_and_not_keep() {
    let group = kept("replaced");
    let link = link_id();
    let mut ext = Ext::run(&group, &["--policy", "headroom"]);
    assert_eq!(link_id(), link);
    assert_eq!(policy()["pinned"], false);
    assert!(!bound(&group));
    ext.signal(Signal::SIGTERM);
    assert_eq!(ext.wait(), Some(0));
    nothing_left();
}

#[test]
#[ignore = "needs the lab's VM"]
fn one_that_runs_is_neither_taken_over_nor_detached() {
    world();
    let group = Group::new("running");
    let path = group.path.to_str().unwrap();
    let ext = Ext::run(&group, &CLOSED);
    for args in [run_on(&group, &[]), run_on(&group, &KEEP)] {
        let (code, message) = fails(&args);
        assert_eq!(code, 8, "{message}");
        assert!(
            message.contains("attached to this cgroup already"),
            "{message}"
        );
    }
    let name = group.name();
    for args in [
        &["detach"][..],
        &["detach", "--root", path],
        &["detach", "--root", &name],
    ] {
        let (code, message) = fails(args);
        assert_eq!(code, 8, "{message}");
        assert!(message.contains("Stop it first"), "{message}");
    }
    assert!(bound(&group));
    drop(ext);
    goes();
}

#[test]
#[ignore = "needs the lab's VM"]
fn the_removal_of_the_root_leaves_no_pin() {
    world();
    let group = Group::new("removed");
    let mut ext = Ext::run(&group, &CLOSED);
    group.remove();
    assert_eq!(ext.wait(), Some(9));
    nothing_left();
    // Removed while nobody runs it, its pins are of no use and go with the others.
    let group = kept("removed");
    group.remove();
    assert!(Path::new(PINS).exists());
    assert_eq!(detach()["detached"], serde_json::json!([]));
    nothing_left();
    // Or with the next start, of whichever cgroup.
    let group = kept("removed");
    group.remove();
    let (group, _kept) = (Group::new("other"), kept("kept"));
    let next = Ext::run(&group, &["--policy", "headroom"]);
    let pins: Vec<_> = std::fs::read_dir(PINS).unwrap().collect();
    assert_eq!(pins.len(), 1, "{pins:?}");
    assert_eq!(attached(), 2);
    drop(next);
    goes();
}

/// Whoever has the lock has the place: what his number is depends on who asks.
#[test]
#[ignore = "needs the lab's VM"]
fn a_place_is_his_who_has_it_locked() {
    let group = kept("locked");
    let run = run_on(&group, &KEEP);
    let link = link_id();
    let place = std::fs::read_dir(PINS).unwrap().next().unwrap().unwrap();
    let place = File::open(place.path()).unwrap();
    let lock = Flock::lock(place, FlockArg::LockExclusiveNonblock).unwrap();
    for args in [&run[..], &["detach"]] {
        let (code, message) = fails(args);
        assert_eq!(code, 8, "{message}");
    }
    assert_eq!(link_id(), link);
    drop(lock);
    // Somebody was killed before he had pinned anything; he is swept away.
    let early = Path::new(PINS).join("4711");
    std::fs::create_dir(&early).unwrap();
    let ext = Ext::run(&group, &CLOSED);
    assert_eq!((link_id(), early.exists()), (link, false));
    assert_eq!(fails(&run).0, 8);
    drop(ext);
    goes();
}

#[test]
#[ignore = "needs the lab's VM"]
fn what_fails_to_start_leaves_the_old_one_in_force() {
    let group = kept("stays");
    let link = link_id();
    let (code, message) = fails(&run_on(&group, &["--policy", "none"]));
    assert_eq!(code, 2, "{message}");
    assert_eq!(link_id(), link);
    assert!(bound(&group));
    goes();
}

/// What can fail does so before the link has other programs.
#[test]
#[ignore = "needs the lab's VM"]
fn pins_that_cannot_be_made_leave_the_old_one_as_it_is() {
    let group = kept("unpinned");
    let (link, pins) = (link_id(), pins());
    let run = run_on(&group, &[&KEEP[..], &["--policy", "headroom"]].concat());
    // Of link, explaining program and storage, each.
    for at in 1..=3 {
        let mut made = 0;
        let ended = inject::run(command(&run), |it| {
            let is = it.number == libc::SYS_bpf && it.args[0] == u64::from(libbpf_sys::BPF_OBJ_PIN);
            made += u32::from(is);
            (is && made == at).then_some(Errno::ENOMEM)
        });
        assert_eq!((ended.code, made), (Some(1), at), "{ended:?}");
        assert!(ended.said.contains("pinning the policy"), "{ended:?}");
        assert_eq!((link_id(), self::pins()), (link, pins.clone()), "pin {at}");
        assert_eq!(policy()["readable"], true, "pin {at}");
        assert!(bound(&group), "it is what it was, after pin {at}");
    }
    goes();
}

/// From then on the policy matters more than its pins.
#[test]
#[ignore = "needs the lab's VM"]
fn a_pin_that_cannot_be_renamed_is_said() {
    let group = kept("stuck");
    let link = link_id();
    let run = run_on(&group, &[&KEEP[..], &["--policy", "headroom"]].concat());
    let mut failed = 0;
    let ended = inject::run(command(&run), |it| {
        let new = |file: String| file.starts_with(PINS) && file.ends_with("/explain-new");
        let fails = it.renames().is_some_and(new);
        failed += u32::from(fails);
        fails.then_some(Errno::EPERM)
    });
    assert_eq!((ended.code, ended.served), (Some(0), true), "{ended:?}");
    assert_eq!(failed, 1);
    assert!(ended.said.contains("pinning the policy"), "{ended:?}");
    assert!(ended.said.contains("is in force"), "{ended:?}");
    assert_eq!((link_id(), bound(&group)), (link, false));
    // The one after it has its pins.
    killed(Ext::run(&group, &CLOSED));
    assert_eq!(
        (link_id(), policy()["readable"].clone()),
        (link, true.into())
    );
    assert!(
        pins().iter().all(|pin| !pin.ends_with("-new")),
        "{:?}",
        pins()
    );
    assert!(bound(&group));
    goes();
}

/// A pin too many goes at the end.
#[test]
#[ignore = "needs the lab's VM"]
fn a_pin_that_cannot_be_removed_is_said_and_tried_again() {
    let group = kept("sticky");
    let mut tries = 0;
    let run = run_on(&group, &["--policy", "headroom"]);
    let ended = inject::run(command(&run), |it| {
        let pin = it.removes().is_some_and(|file| file.starts_with(PINS));
        tries += u32::from(pin);
        (pin && tries == 1).then_some(Errno::EPERM)
    });
    assert_eq!((ended.code, ended.served), (Some(0), true), "{ended:?}");
    assert!(tries > 1, "{ended:?}");
    assert!(ended.said.contains("until they are gone"), "{ended:?}");
    nothing_left();
}

#[test]
#[ignore = "needs the lab's VM"]
fn without_a_bpf_file_system_nothing_is_kept() {
    world();
    umount2(BPFFS, MntFlags::empty()).unwrap();
    let group = Group::new("nowhere");
    let (code, message) = fails(&run_on(&group, &KEEP));
    let free = Ext::run(&group, &["--policy", "headroom"]);
    let pinned = policy()["pinned"].clone();
    drop(free);
    let none: Option<&str> = None;
    mount(Some("bpf"), BPFFS, Some("bpf"), MsFlags::empty(), none).unwrap();
    assert_eq!(code, 16, "{message}");
    assert!(message.contains("mount -t bpf"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert_eq!(pinned, false, "all else works without");
    eventually("it has ended", || attached() == 0);
}
