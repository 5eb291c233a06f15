// SPDX-License-Identifier: GPL-2.0-only
//! `explain`: what it says of a cgroup, that its words come true, and what it says where there is
//! nothing to explain.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod common;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use common::ext::{Ext, K64, command, fails, output, status};
use common::worker::{MADV_DONTNEED, Worker};
use common::{Group, MIB, eventually, world};
use serde_json::Value;

/// `explain --json` of a cgroup.
fn explain(name: &str) -> Value {
    let out = output(&["explain", name, "--json"]);
    assert!(out.status.success(), "{out:?}");
    common::schema::answer("explain", &out.stdout)
}

/// What the rule room waits for.
fn until(answer: &Value) -> Value {
    let changes = &answer["policies"][0]["decides"]["changes"];
    assert_eq!(changes[0]["rule"], "room", "{answer}");
    changes[0]["until"].clone()
}

#[test]
#[ignore = "needs the lab's VM"]
fn what_it_says_comes_true() {
    world();
    let group = Group::new("explained");
    group.set("memory.max", "256M");
    let _ext = Ext::run(&group, &K64);
    let mut worker = Worker::new(&group);
    worker.fill(250 * MIB);
    let before = explain(&group.name());
    assert_eq!(before["cgroup"], group.name());
    let fault = &before["policies"][0]["decides"]["decisions"]["fault"];
    assert_eq!(fault["rule"], "room", "{before}");
    assert!(fault["requests"].as_u64() > Some(0), "{before}");
    let limit = until(&before)["limit_bytes"].as_u64().unwrap();
    // A little less is not enough: what is in use may have moved by a few pages.
    group.set("memory.max", &(limit - 2 * MIB).to_string());
    let short = explain(&group.name());
    assert_ne!(short["allowed"], "all", "{short}");
    group.set("memory.max", &(limit + 2 * MIB).to_string());
    let after = explain(&group.name());
    assert_eq!(after["allowed"], "all", "{before} {after}");
    assert_eq!(
        after["policies"][0]["decides"]["changes"],
        Value::Array(Vec::new())
    );
}

/// Since when its page faults get what they get, and what that is.
fn since(group: &Group) -> (Option<u64>, Value) {
    let answer = explain(&group.name());
    let fault = &answer["policies"][0]["decides"]["decisions"]["fault"];
    (fault["since_ms"].as_u64(), fault["rule"].clone())
}

/// Which rule narrows what is decided for `reason`; null: none.
fn rule(group: &Group, reason: &str) -> Value {
    let answer = explain(&group.name());
    answer["policies"][0]["decides"]["decisions"][reason]["rule"].clone()
}

/// No scan looks at a cgroup at rest; what it gave back then is not its memory for the answer, nor
/// for the fault that comes.
#[test]
#[ignore = "needs the lab's VM"]
fn what_was_given_back_at_rest_is_gone() {
    world();
    let group = Group::new("shrunk");
    let small = ["--window", "1s", "--min-memory", "32M"];
    let _ext = Ext::run(&group, &[&small[..], &["--limit-share", "0"]].concat());
    let mut worker = Worker::new(&group);
    worker.fill(64 * MIB);
    eventually("it is large", || rule(&group, "fault") != "small");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(worker.advise(MADV_DONTNEED), 0);
    assert_eq!(rule(&group, "fault"), "small");
    worker.fill(2 * MIB);
    assert_eq!(worker.huge(), 0);
}

/// Reclaim has nothing split of a cgroup that nobody has met yet.
#[test]
#[ignore = "needs the lab's VM"]
fn a_cgroup_not_met_yet_keeps_what_it_has() {
    world();
    let group = Group::new("unmet");
    let child = group.child("child");
    child.set("memory.max", "2M");
    let ext = Ext::run(&group, &["--policy", "headroom"]);
    assert_eq!(rule(&child, "fault"), "room");
    assert_eq!(rule(&child, "reclaim"), Value::Null);
    drop(ext);
    child.set("memory.max", "max");
    // The first scan alone has met those that are there.
    let _ext = Ext::run(&group, &["--window", "10s"]);
    let young = group.child("young");
    assert_eq!(rule(&young, "fault"), Value::Null, "nobody lives there");
    let _worker = Worker::new(&young);
    assert_eq!(rule(&young, "fault"), "small");
}

#[test]
#[ignore = "needs the lab's VM"]
fn it_says_since_when_a_decision_holds() {
    world();
    let group = Group::new("since");
    group.set("memory.max", "256M");
    let _ext = Ext::run(&group, &K64);
    let mut worker = Worker::new(&group);
    worker.fill(8 * MIB);
    let (first, _) = since(&group);
    worker.fill(232 * MIB);
    let mut found = None;
    eventually("a narrowed decision was found", || {
        worker.fill(MIB / 4);
        let (at, rule) = since(&group);
        found = at.filter(|_| rule == "room");
        found.is_some()
    });
    assert!(found > first, "{found:?} {first:?}");
    // Asking changes nothing.
    assert_eq!(since(&group).0, found);
    group.set("memory.max", "max");
    let mut back = None;
    eventually("it was found that all is allowed", || {
        worker.fill(MIB / 4);
        let (at, rule) = since(&group);
        back = at.filter(|_| rule == Value::Null);
        back.is_some()
    });
    assert!(back > found, "{back:?} {found:?}");
}

#[test]
#[ignore = "needs the lab's VM"]
fn policies_above_are_on_the_path_and_those_below_are_not() {
    world();
    let group = Group::new("path");
    let child = group.child("inner");
    let beside = group.child("beside");
    let _above = Ext::run(&group, &K64);
    let _below = Ext::run(&beside, &K64);
    let answer = explain(&child.name());
    let policies = answer["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 1, "{answer}");
    assert_eq!(policies[0]["root"], group.name());
    assert_eq!(
        explain(&beside.name())["policies"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    // By the last part of its path, as a unit, and by its directory.
    for name in ["beside", beside.path.to_str().unwrap()] {
        assert_eq!(explain(name)["cgroup"], beside.name());
    }
}

#[test]
#[ignore = "needs the lab's VM"]
fn where_there_is_nothing_to_explain_it_says_so() {
    world();
    let group = Group::new("free");
    for (name, code, part) in [
        (group.name().as_str(), 15, "no policy binds"),
        ("/none/such", 3, "nothing by this path"),
        ("nobody", 3, "no unit this name"),
        ("/tmp", 3, "another file system"),
    ] {
        let (is, message) = fails(&["explain", name]);
        assert_eq!(is, code, "{message}");
        assert!(
            message.contains(part) && message.lines().count() == 1,
            "{message}"
        );
    }
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_hostile_name_is_harmless_in_every_answer() {
    world();
    let group = Group::new("hostile");
    // The kernel refuses line feeds, and nothing else.
    let name = OsStr::from_bytes(b"a\x1b[2J\"\xff");
    let path = group.path.join(name);
    std::fs::create_dir(&path).unwrap();
    let shown = format!("{}/a\\x1b[2J\"\\xff", group.name());
    let _ext = Ext::run(&group, &K64);
    let lines = status();
    let found = lines["cgroups"].as_array().unwrap();
    assert!(
        found.iter().any(|line| line["cgroup"] == shown.as_str()),
        "{lines}"
    );
    let mut explain = command(&["explain"]);
    for out in [
        explain.arg(&path).output().unwrap(),
        output(&["status", "--tree"]),
    ] {
        assert!(out.status.success(), "{out:?}");
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(text.contains("a\\x1b[2J"), "{text}");
        assert!(
            !text.chars().any(|c| c.is_control() && c != '\n'),
            "{text:?}"
        );
    }
    std::fs::remove_dir(&path).unwrap();
}

#[test]
#[ignore = "needs the lab's VM"]
fn watching_prints_one_answer_after_the_other() {
    use std::io::{BufRead, BufReader};
    world();
    let group = Group::new("watched");
    let _ext = Ext::run(&group, &K64);
    let mut watch = command(&["status", "--json", "--watch", "100ms"]);
    let mut child = watch.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let answers: Vec<String> = lines
        .map_while(Result::ok)
        .filter(|l| !l.is_empty())
        .take(3)
        .collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(answers.len(), 3);
    for answer in answers {
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["policies"][0]["root"], group.name());
    }
}
