// SPDX-License-Identifier: GPL-2.0-only
//! Overrides that cgroups have of their own: `set`, `unset`, and attributes that others have written.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod common;

use std::os::unix::fs::chown;

use common::ext::{Ext, fails, output, status_of};
use common::own::OwnFile;
use common::worker::Worker;
use common::{Group, MIB, eventually, world};
use mthp_ext::kernel::xattr;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// All get huge pages; `tiny` is there for who asks.
const OPEN: &str = "policy = 'open'
[policies.open]
rules = ['cap']
cap = '2M'
[policies.tiny]
base = 'open'
cap = '4K'
";

fn huge(group: &Group) -> bool {
    let mut worker = Worker::new(group);
    worker.fill(4 * MIB);
    worker.huge() > 0
}

fn start(root: &Group) -> (Ext, OwnFile) {
    let file = OwnFile::new("config.toml", OPEN);
    let ext = Ext::run(root, &["--config", file.path()]);
    ext.expect("configured", |line| line["event"] == "configured");
    (ext, file)
}

/// `set` or `unset` with its answer.
fn asked(group: &Group, words: &[&str]) -> Value {
    let of = ["--json", "--cgroup", group.path.to_str().unwrap()];
    let out = output(&[words, &of].concat());
    assert!(out.status.success(), "{out:?}");
    serde_json::from_slice(&out.stdout).unwrap()
}

/// What `set` says where it fails, with code 2.
fn refused(group: &Group, word: &str) -> String {
    let (code, said) = fails(&["set", word, "--cgroup", group.path.to_str().unwrap()]);
    assert_eq!(code, 2, "{said}");
    said
}

fn overridden(ext: &Ext, group: &Group) -> Value {
    ext.expect("override", |line| {
        line["event"] == "override" && line["cgroup"] == group.name()
    })
}

#[test]
#[ignore = "needs the lab's VM"]
fn what_is_set_is_in_force_until_it_is_unset() {
    world();
    let root = Group::new("own");
    let (group, beside) = (root.child("a"), root.child("b"));
    let below = group.child("x");
    let (ext, _file) = start(&root);
    assert!(huge(&below));
    let answer = asked(&group, &["set", "policy=tiny"]);
    assert_eq!(answer["value"], "policy=tiny");
    assert_eq!(answer["daemons"][0]["in_force"], true, "{answer}");
    // No waiting: that the command ended must mean that it is in force.
    assert_eq!((huge(&below), huge(&beside)), (false, true));
    assert_eq!(overridden(&ext, &group)["in_force"], true);
    let line = status_of(&below);
    assert_eq!(
        (&line["xattr"], &line["profiles"]),
        (&json!(true), &json!(["tiny"]))
    );
    let out = output(&["explain", "--json", below.path.to_str().unwrap()]);
    let explained: Value = serde_json::from_slice(&out.stdout).unwrap();
    let said = json!({"cgroup": group.name(), "value": "policy=tiny"});
    assert_eq!(explained["said"], said);
    ext.signal(Signal::SIGHUP);
    ext.expect("configured", |line| line["event"] == "configured");
    assert!(!huge(&below));
    let answer = asked(&group, &["unset"]);
    assert_eq!(
        (&answer["value"], &answer["before"]),
        (&Value::Null, &json!("policy=tiny"))
    );
    assert!(huge(&below));
    assert_eq!(status_of(&below)["xattr"], false);
}

#[test]
#[ignore = "needs the lab's VM"]
fn what_was_written_before_is_found() {
    world();
    let root = Group::new("before");
    let group = root.child("a");
    assert_eq!(asked(&group, &["set", "cap=4K"])["daemons"], json!([]));
    let (_ext, _file) = start(&root);
    assert!(!huge(&group));
    // Nobody tells of this one but its first request.
    let later = root.child("b");
    xattr::write(&later.path, "policy=tiny").unwrap();
    eventually("b has its policy", || !huge(&later));
    // Of this one neither: a reload looks at all.
    let old = root.child("c");
    assert!(huge(&old));
    eventually("c was looked at", || {
        status_of(&old)["profiles"] == json!([])
    });
    xattr::write(&old.path, "policy=tiny").unwrap();
    assert!(
        output(&["reload", "--root", root.path.to_str().unwrap()])
            .status
            .success()
    );
    assert!(!huge(&old));
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_mistake_is_left_out_and_said() {
    world();
    let root = Group::new("wrong");
    let group = root.child("a");
    let (ext, _file) = start(&root);
    assert!(refused(&group, "cap=5K").contains("5K"));
    assert_eq!(xattr::read(&group.path), None, "nothing is written");
    assert!(refused(&group, "policy=nobody").contains("there is no policy 'nobody'"));
    assert!(huge(&group));
    assert_eq!(overridden(&ext, &group)["in_force"], false);
    let out = output(&["explain", group.path.to_str().unwrap()]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(
        text.contains("user.mthp_ext of /wrong/a: policy=nobody"),
        "{text}"
    );
}

/// Root writes it here, in the name of the owner: whose the directory is counts.
#[test]
#[ignore = "needs the lab's VM"]
fn an_owner_may_lower_and_not_widen() {
    world();
    let root = Group::new("owner");
    let group = root.child("a");
    let (_ext, _file) = start(&root);
    chown(&group.path, Some(1000), None).unwrap();
    for word in ["off", "policy=tiny", "cap=none"] {
        assert!(
            refused(&group, word).contains("it may only lower"),
            "{word}"
        );
        assert!(huge(&group));
    }
    asked(&group, &["set", "cap=64K"]);
    assert!(!huge(&group));
    // What it has without its own is the base, and not what it had before.
    asked(&group, &["set", "cap=1M"]);
    assert_eq!(status_of(&group)["allowed"], "1M-max");
    chown(&group.path, Some(0), None).unwrap();
    asked(&group, &["set", "policy=off"]);
    assert!(huge(&group));
}
