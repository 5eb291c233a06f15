// SPDX-License-Identifier: GPL-2.0-only
//! Overrides that cgroups have of their own: `set`, `unset`, and what a daemon makes of them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod common;

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use common::caps;
use common::ext::{self, Ext, output, status_of};
use common::own::{OwnFile, tiny};
use common::worker::Worker;
use common::{Group, MIB, eventually, world};
use rustix::fs::{XattrFlags, setxattr};
use serde_json::{Value, json};

fn huge(group: &Group) -> bool {
    let mut worker = Worker::new(group);
    worker.fill(4 * MIB);
    worker.huge() > 0
}

/// A command: its exit code, and all that it says.
fn said(args: &[&str]) -> (i32, String) {
    let out = output(args);
    let text = [out.stdout, out.stderr].concat();
    (out.status.code().unwrap(), String::from_utf8(text).unwrap())
}

/// `set` of a cgroup.
fn set(group: &Group, value: &str) -> (i32, String) {
    said(&["set", "--cgroup", &group.name(), value])
}

fn unset(group: &Group) {
    let (code, text) = said(&["unset", "--cgroup", &group.name()]);
    assert_eq!(code, 0, "{text}");
}

/// Writes it as another program does, which tells no daemon.
fn write(group: &Group, value: &str) {
    setxattr(
        &group.path,
        "user.mthp_ext",
        value.as_bytes(),
        XattrFlags::empty(),
    )
    .unwrap();
}

/// The next line about an override of this cgroup: whether it is in force, and its words.
fn line(ext: &Ext, group: &Group) -> (bool, String) {
    let line = ext.expect("override", |line| {
        line["event"] == "override" && line["cgroup"] == group.name()
    });
    let text = line["text"].as_str().unwrap().to_owned();
    (line["in_force"].as_bool().unwrap(), text)
}

#[test]
#[ignore = "needs the lab's VM"]
fn set_is_in_force_when_it_ends_and_outlives_a_reload() {
    world();
    let root = Group::new("said");
    let (a, other) = (root.child("a"), root.child("other"));
    let file = OwnFile::new("config.toml", tiny("*/narrow"));
    let ext = Ext::run(&root, &["--config", file.path()]);
    assert!(huge(&a));
    let (code, text) = set(&a, "policy=tiny");
    assert_eq!(code, 0, "{text}");
    let in_force = "/said/a: policy tiny, as its user.mthp_ext says (policy=tiny)";
    assert!(text.contains(in_force), "{text}");
    assert_eq!((huge(&a), huge(&other)), (false, true));
    assert_eq!(line(&ext, &a), (true, in_force.to_owned()));

    // Whence it comes shows.
    let status = status_of(&a);
    let shown = (&status["profiles"], &status["xattr"]);
    assert_eq!(shown, (&json!(["tiny"]), &json!(true)));
    assert_eq!(status_of(&other)["xattr"], false);
    let (_, text) = said(&["status"]);
    assert!(text.contains("by policy tiny (user.mthp_ext)"), "{text}");
    let (_, text) = said(&["explain", "/said/a"]);
    let origin = "user.mthp_ext of /said/a: policy=tiny";
    assert!(text.contains(origin), "{text}");
    let (_, text) = said(&["config", "--show", file.path()]);
    let origin = "/said/a (user.mthp_ext: policy=tiny)";
    assert!(text.contains(origin), "{text}");

    let (code, text) = said(&["reload"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("(1 of them by user.mthp_ext)"), "{text}");
    assert!(!huge(&a));

    // A process in the cgroup needs no path, as ExecStartPre= of a unit.
    let program = std::env::var("MTHP_EXT_BIN").unwrap();
    let procs = other.path.join("cgroup.procs");
    let script = format!(
        "echo $$ > {} && exec {program} set cap=4K --json",
        procs.display()
    );
    let out = Command::new("/bin/sh").args(["-c", &script]).output();
    let out = out.unwrap();
    assert!(out.status.success(), "{out:?}");
    let done: Value = common::schema::answer("set", &out.stdout);
    assert_eq!(
        (&done["cgroup"], &done["before"]),
        (&json!("/said/other"), &Value::Null)
    );
    assert_eq!(done["daemons"][0]["in_force"], true, "{done}");
    assert!(!huge(&other));

    for group in [&a, &other] {
        unset(group);
        assert!(huge(group));
    }
    let (_, text) = line(&ext, &other);
    assert!(text.ends_with("(cap=4K)"), "{text}");
    let gone = "/said/other: its user.mthp_ext is gone: policy open";
    assert_eq!(line(&ext, &other), (true, gone.to_owned()));
    assert_eq!(status_of(&a)["xattr"], false);
}

#[test]
#[ignore = "needs the lab's VM"]
fn it_is_found_at_the_start_and_on_cgroups_made_later() {
    world();
    let root = Group::new("found");
    let before = root.child("before");
    let (code, text) = set(&before, "cap=4K");
    assert!(code == 0 && text.contains("no daemon answers"), "{text}");
    let file = OwnFile::new("config.toml", tiny("*/narrow"));
    let ext = Ext::run(&root, &["--config", file.path()]);
    assert!(line(&ext, &before).0);
    assert!(!huge(&before));
    let later = root.child("later");
    write(&later, "policy=tiny");
    // Its first request announces it.
    eventually("later has what it says", || !huge(&later));
    // And what it says does for those below.
    let below = later.child("below");
    eventually("so has what is below", || !huge(&below));
    // The next one by the name says nothing.
    below.remove();
    later.remove();
    let again = root.child("later");
    eventually("the next one is free", || huge(&again));
}

/// Of one that cannot be read nothing is made up: not that it is in force, nor that there is none.
#[test]
#[ignore = "needs the lab's VM"]
fn what_the_daemon_may_not_read_is_not_in_force() {
    world();
    let root = Group::new("closed");
    let (a, other) = (root.child("a"), root.child("other"));
    let file = OwnFile::new("config.toml", tiny("*/narrow"));
    // As the unit, without the right to look past permissions.
    let ext = Ext::run_as(&root, &["--config", file.path()], |command| {
        caps::only(command, &caps::of_the_unit());
    });
    assert_eq!(set(&a, "policy=tiny").0, 0);
    assert!(line(&ext, &a).0);
    assert_eq!((huge(&a), huge(&other)), (false, true));
    for group in [&a, &other] {
        chown(&group.path, Some(1000), Some(1000)).unwrap();
        set_permissions(&group.path, Permissions::from_mode(0o700)).unwrap();
    }
    let below = other.child_without_memory("below");
    // What was in force stays, also when all are looked at.
    for (group, words) in [
        (&a, "what was in force stays"),
        (&other, "nothing of it is in force"),
    ] {
        let (code, text) = set(group, "cap=16K");
        assert_eq!(code, 4, "{text}");
        assert!(text.contains("cannot be read (Permission denied"), "{text}");
        assert!(line(&ext, group).1.ends_with(words));
    }
    // Nor can what is below one be looked at.
    let (code, text) = set(&below, "cap=16K");
    assert_eq!(code, 4, "{text}");
    assert!(text.contains("Permission denied"), "{text}");
    assert_eq!(said(&["reload"]).0, 0);
    assert_eq!((huge(&a), huge(&other)), (false, true));
    // Another cgroup by this name has nothing of it, once the daemon has looked.
    a.remove();
    let again = root.child("a");
    set_permissions(&again.path, Permissions::from_mode(0o700)).unwrap();
    chown(&again.path, Some(1000), Some(1000)).unwrap();
    huge(&again);
    let (in_force, text) = line(&ext, &again);
    assert!(!in_force && text.contains("cannot be read"), "{text}");
    assert!(huge(&again));
    set_permissions(&other.path, Permissions::from_mode(0o755)).unwrap();
    let (code, text) = set(&other, "cap=16K");
    assert_eq!(code, 0, "{text}");
    assert!(!huge(&other));
    // Of each it was said once.
    let unread = ext.during(Duration::from_secs(2));
    let unread = unread.iter().filter(|line| {
        let text = line["text"].as_str().unwrap_or_default();
        text.contains("cannot be read")
    });
    assert_eq!(unread.count(), 0);
}

/// A new configuration that takes the last place takes it from what cgroups have of their own.
#[test]
#[ignore = "needs the lab's VM"]
fn one_that_gives_way_and_cannot_be_read_again_is_said() {
    world();
    let root = Group::new("full");
    let a = root.child("a");
    // With the root's and that of the cgroup: 64, which is all.
    let text = |factor: usize| {
        let one = |i: usize| {
            let factor = if i == 1 { factor } else { i };
            format!(
                "[policies.p{i}]\nrules = ['room']\nroom-factor = {factor}\n\
                 [[override]]\ncgroups = 'full/p{i}'\npolicy = 'p{i}'\n"
            )
        };
        let all: String = (1..=62).map(one).collect();
        format!("policy = 'headroom'\n{all}")
    };
    let file = OwnFile::new("config.toml", text(1));
    let ext = Ext::run_as(&root, &["--config", file.path()], |command| {
        caps::only(command, &caps::of_the_unit());
    });
    let (code, said_so) = set(&a, "cap=4K");
    assert_eq!(code, 0, "{said_so}");
    assert!(line(&ext, &a).0);
    assert!(!huge(&a));
    chown(&a.path, Some(1000), Some(1000)).unwrap();
    set_permissions(&a.path, Permissions::from_mode(0o700)).unwrap();
    assert_eq!(said(&["reload"]).0, 0);
    assert!(line(&ext, &a).1.ends_with("what was in force stays"));
    assert!(!huge(&a));
    std::fs::write(file.path(), text(500)).unwrap();
    let (code, said_so) = said(&["reload"]);
    assert_eq!(code, 0, "{said_so}");
    assert!(huge(&a));
    let (in_force, words) = line(&ext, &a);
    assert!(
        !in_force && words.ends_with("nothing of it is in force"),
        "{words}"
    );
}

#[test]
#[ignore = "needs the lab's VM"]
fn another_owner_than_root_may_only_lower() {
    world();
    let root = Group::new("owned");
    let (free, narrow) = (root.child("free"), root.child("narrow"));
    for group in [&free, &narrow] {
        chown(&group.path, Some(1000), Some(1000)).unwrap();
    }
    let file = OwnFile::new("config.toml", tiny("*/narrow"));
    let ext = Ext::run(&root, &["--config", file.path()]);
    let (code, text) = set(&free, "cap=4K");
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("which may only lower: uid 1000 owns it"),
        "{text}"
    );
    assert!(!huge(&free));
    for value in ["off", "policy=open", "cap=2M"] {
        let (code, text) = set(&narrow, value);
        assert_eq!(code, 2, "{text}");
        assert!(text.contains("it may only lower what is allowed"), "{text}");
        assert!(!line(&ext, &narrow).0);
        assert!(!huge(&narrow), "{value}");
    }
    // Asked for by that owner himself.  The daemon does not answer him, and heeds it no more when it looks.
    let own = ["set", "--cgroup", "/owned/narrow", "policy=open"];
    let out = ext::command(&own).uid(1000).gid(1000).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    assert_eq!(said(&["reload"]).0, 0);
    let (in_force, words) = line(&ext, &narrow);
    assert!(
        !in_force && words.contains("it may only lower what is allowed"),
        "{words}"
    );
    assert!(!huge(&narrow));
    // The same of root's.
    chown(&narrow.path, Some(0), Some(0)).unwrap();
    assert_eq!(set(&narrow, "cap=2M").0, 0);
    assert!(huge(&narrow));
}

/// The owner of a delegated cgroup may write it, and may not ask the daemon of root: what he hears is
/// that, and not that nobody is there.  It comes into force with the next look at all.
#[test]
#[ignore = "needs the lab's VM"]
fn the_owner_of_a_delegated_cgroup_may_not_ask() {
    world();
    let root = Group::new("delegated");
    let (a, other) = (root.child("a"), root.child("other"));
    chown(&a.path, Some(1000), Some(1000)).unwrap();
    let as_owner = |args: &[&str]| {
        let out = ext::command(args).uid(1000).gid(1000).output().unwrap();
        let text = String::from_utf8([out.stdout.clone(), out.stderr].concat()).unwrap();
        (out.status.code().unwrap(), text, out.stdout)
    };
    // 60 windows are half a minute.
    let text = "policy = 'open'
[policies.open]
rules = ['pressure', 'cap']
window = '500ms'
cap = '2M'
";
    let file = OwnFile::new("config.toml", text);
    let ext = Ext::run(&root, &["--config", file.path()]);
    assert!(huge(&a));
    let args = ["set", "--cgroup", "/delegated/a", "cap=4K"];
    let (code, text, _) = as_owner(&args);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("/delegated/a: user.mthp_ext is cap=4K\n"),
        "{text}"
    );
    let words = "only root may ask it (Permission denied (os error 13)); one that has a configuration \
                 looks again within 60 of its windows";
    assert!(
        text.contains(words) && !text.contains("no daemon"),
        "{text}"
    );
    let (in_force, text) = line(&ext, &a);
    assert!(in_force && text.contains("may only lower"), "{text}");
    assert!(!huge(&a));
    // That of another he may not write, which is an error of its own.
    let (code, text, _) = as_owner(&["set", "--cgroup", "/delegated/other", "cap=4K"]);
    assert_eq!(code, 4, "{text}");
    assert!(huge(&other));
    let (code, text, out) = as_owner(&["unset", "--cgroup", "/delegated/a", "--json"]);
    assert_eq!(code, 0, "{text}");
    let done: Value = common::schema::answer("unset", &out);
    assert_eq!(done["daemons"], json!([]), "{done}");
    assert_eq!(done["unanswered"].as_array().unwrap().len(), 1, "{done}");
    // Root is answered at once.
    let (code, text) = said(&["unset", "--cgroup", "/delegated/a"]);
    assert_eq!(code, 0, "{text}");
    assert!(huge(&a));
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_mistake_is_left_out_and_said() {
    world();
    let root = Group::new("wrong");
    let a = root.child("a");
    let file = OwnFile::new("config.toml", tiny("*/narrow"));
    let mut ext = Ext::run(&root, &["--config", file.path()]);
    // What is no override is not even written.
    let (code, text) = set(&a, "cap=5K");
    assert!(code == 2 && text.contains("the size '5K'"), "{text}");
    let (_, text) = said(&["explain", "/wrong/a"]);
    assert!(!text.contains("user.mthp_ext"), "{text}");
    let (code, text) = set(&a, "policy=nobody");
    let why = "is left out: there is no policy 'nobody'";
    assert!(code == 2 && text.contains(why), "{text}");
    let (in_force, text) = line(&ext, &a);
    assert!(!in_force && text.contains(why), "{text}");
    assert!(huge(&a));
    // A daemon that starts with it does so, and says the same.
    ext.signal(nix::sys::signal::Signal::SIGTERM);
    ext.wait();
    let ext = Ext::run(&root, &["--config", file.path()]);
    assert!(line(&ext, &a).1.contains(why));
    assert!(huge(&a));
    // One without a configuration cannot have it.
    drop(ext);
    let _plain = Ext::run(&root, &["--policy", "headroom"]);
    let (code, text) = set(&a, "off");
    assert!(code == 2 && text.contains("has no configuration"), "{text}");
}
