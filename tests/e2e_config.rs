// SPDX-License-Identifier: GPL-2.0-only
//! `run --config`: overrides, cgroups made later, and new configurations while requests go on.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::ext::{Ext, fails, output, status, status_of};
use common::own::{OPEN, OwnFile};
use common::worker::Worker;
use common::{Group, MIB, eventually, record, world};
use nix::sys::signal::Signal;
use serde_json::Value;

fn with(overrides: &str) -> String {
    format!("{OPEN}{overrides}")
}

/// Does a process in it get huge pages now?
fn huge(group: &Group) -> bool {
    let mut worker = Worker::new(group);
    worker.fill(4 * MIB);
    worker.huge() > 0
}

fn configured(ext: &Ext) -> Value {
    ext.expect("configured", |line| line["event"] == "configured")
}

fn start(root: &Group, file: &OwnFile) -> Ext {
    let ext = Ext::run(root, &["--config", file.path()]);
    assert_eq!(configured(&ext)["in_force"], true);
    ext
}

/// Sends SIGHUP and returns what comes of it.
fn reload(ext: &Ext) -> Value {
    ext.signal(Signal::SIGHUP);
    configured(ext)
}

#[test]
#[ignore = "needs the lab's VM"]
fn overrides_decide_and_the_last_one_wins() {
    world();
    let root = Group::new("cfg");
    let (a, b, plain) = (root.child("web-a"), root.child("web-b"), root.child("db"));
    let file = OwnFile::new(
        "config.toml",
        with(
            "[[override]]\ncgroups = 'cfg/web-*'\npolicy = 'tiny'\n\
             [[override]]\ncgroups = 'cfg/web-b'\npolicy = 'off'\n",
        ),
    );
    let _ext = start(&root, &file);
    assert_eq!((huge(&a), huge(&b), huge(&plain)), (false, true, true));
    assert_eq!(status_of(&a)["profiles"], serde_json::json!(["tiny"]));
    assert_eq!(status_of(&b)["profiles"], serde_json::json!(["off"]));
    assert_eq!(status_of(&plain)["profiles"], serde_json::json!([]));
    assert_eq!(status()["policies"][0]["policy"], "open");
}

#[test]
#[ignore = "needs the lab's VM"]
fn cgroups_made_later_are_found() {
    world();
    let root = Group::new("later");
    let file = OwnFile::new(
        "config.toml",
        with("[[override]]\ncgroups = ['later/s-*', 'later/deep/**']\npolicy = 'tiny'\n"),
    );
    let ext = start(&root, &file);
    let one = root.child("s-1");
    let deep = root.child("deep");
    let below = deep.child("x").child("y");
    let plain = root.child("t-1");
    // Its first request announces it.
    eventually("s-1 has its policy", || !huge(&one));
    eventually("deep/x/y has its policy", || !huge(&below));
    assert!(huge(&plain));
    // The parent has it too, though nobody asked there: it was on the way.
    assert_eq!(status_of(&below)["profiles"], serde_json::json!(["tiny"]));
    drop(ext);
}

#[test]
#[ignore = "needs the lab's VM"]
fn one_bad_override_is_left_out_and_named() {
    world();
    let root = Group::new("bad");
    let (a, b) = (root.child("a"), root.child("b"));
    let file = OwnFile::new(
        "config.toml",
        with(
            "[[override]]\ncgroups = 'bad/a'\npolicy = 'nobody'\n\
             [[override]]\ncgroups = 'bad/b'\npolicy = 'tiny'\n",
        ),
    );
    let ext = Ext::run(&root, &["--config", file.path()]);
    let said = configured(&ext)["text"].as_str().unwrap().to_owned();
    let place = format!("left out: {}:8: there is no policy 'nobody'", file.path());
    assert!(said.contains(&place), "{said}");
    assert_eq!((huge(&a), huge(&b)), (true, false));
    let out = output(&["check-config", file.path()]);
    assert_eq!(out.status.code(), Some(2));
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains(&format!("{}:8: ", file.path())), "{text}");
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_reload_leaves_no_moment_without_policy() {
    world();
    let root = Group::new("hup");
    let (a, b) = (root.child("a"), root.child("b"));
    let of = |name: &str| format!("[[override]]\ncgroups = 'hup/{name}'\npolicy = 'tiny'\n");
    let always = with(&of("always"));
    let file = OwnFile::new("config.toml", format!("{always}{}", of("a")));
    let bound = root.child("always");
    let ext = start(&root, &file);
    let link = status()["policies"][0]["link_id"].clone();
    assert_eq!((huge(&a), huge(&b)), (false, true));

    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Whatever is configured meanwhile, this one has the same.
        let faults = scope.spawn(|| {
            let mut rounds = 0;
            while !stop.load(Ordering::Relaxed) {
                assert!(!huge(&bound), "after {rounds} rounds");
                rounds += 1;
            }
            rounds
        });
        for _ in 0..5 {
            file.write(format!("{always}{}", of("b")));
            assert_eq!(reload(&ext)["in_force"], true);
            assert_eq!((huge(&a), huge(&b)), (true, false));
            file.write(format!("{always}{}", of("a")));
            assert_eq!(reload(&ext)["in_force"], true);
            assert_eq!((huge(&a), huge(&b)), (false, true));
        }
        // A bad one leaves the old one in force, and says why.
        file.write("policy = 'nobody'\n");
        let line = reload(&ext);
        assert_eq!(line["in_force"], false);
        let said = line["text"].as_str().unwrap();
        assert!(said.contains(":1: there is no policy 'nobody'"), "{said}");
        assert_eq!((huge(&a), huge(&b)), (false, true));
        // The root's policy changes, too, and with it all that follow.
        file.write(always.replace("'open'\n[", "'tiny'\n["));
        assert_eq!(reload(&ext)["in_force"], true);
        assert_eq!((huge(&a), huge(&b)), (false, false));
        file.write(&always);
        assert_eq!(reload(&ext)["in_force"], true);
        assert_eq!((huge(&a), huge(&b)), (true, true));
        stop.store(true, Ordering::Relaxed);
        assert!(faults.join().unwrap() > 3);
    });
    assert_eq!(status()["policies"][0]["link_id"], link);
}

/// `mthp_ext reload`: exit code, and what it says.
fn asked(more: &[&str]) -> (i32, String) {
    let out = output(&[&["reload"], more].concat());
    let said = [out.stdout, out.stderr].concat();
    (out.status.code().unwrap(), String::from_utf8(said).unwrap())
}

#[test]
#[ignore = "needs the lab's VM"]
fn who_asks_for_a_reload_hears_what_came_of_it() {
    world();
    assert_eq!(asked(&[]).0, 17, "nobody runs");
    let root = Group::new("asked");
    let a = root.child("a");
    let file = OwnFile::new("config.toml", OPEN);
    let ext = start(&root, &file);
    assert!(huge(&a));
    // In force when the command ends, not some time later.
    for (overrides, is_huge) in [
        (
            "[[override]]\ncgroups = 'asked/a'\npolicy = 'tiny'\n",
            false,
        ),
        ("", true),
    ] {
        file.write(with(overrides));
        let (code, said) = asked(&[]);
        assert_eq!(code, 0, "{said}");
        assert!(said.contains(" in force: "), "{said}");
        assert_eq!(huge(&a), is_huge, "{said}");
        assert_eq!(configured(&ext)["in_force"], true, "the log says it, too");
    }
    file.write("policy = 'nobody'\n");
    let (code, said) = asked(&[]);
    assert_eq!(code, 2, "{said}");
    for part in ["the former one stays", ":1: there is no policy 'nobody'"] {
        assert!(said.contains(part), "{said}");
    }
    let out = output(&["reload", "--json"]);
    let verdict: Value = common::schema::answer("reload", &out.stdout);
    assert_eq!(verdict["in_force"], false, "{verdict}");
    assert!(huge(&a));

    // Of two, one must be named; one without a configuration says so and stays.
    let other = Group::new("other");
    let mut plain = Ext::run(&other, &["--policy", "headroom"]);
    let path_of = |group: &Group| group.path.to_str().unwrap().to_owned();
    let (code, said) = asked(&[]);
    assert!(code == 2 && said.contains("2 daemons"), "{said}");
    let (code, said) = asked(&["--root", &path_of(&other)]);
    assert!(code == 2 && said.contains("no configuration"), "{said}");
    file.write(OPEN);
    assert_eq!(asked(&["--root", &path_of(&root)]).0, 0);
    // By the word that `status` has for it, as the message says.
    let named: Vec<String> = status()["policies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["root"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(named.len(), 2, "{named:?}");
    for word in &named {
        let (code, said) = asked(&["--root", word]);
        let wanted = if *word == other.name() { 2 } else { 0 };
        assert_eq!(code, wanted, "{word}: {said}");
    }
    let (code, said) = asked(&["--root", "/"]);
    assert_eq!(code, 17, "nobody runs on the whole host: {said}");
    // Or its process, as the unit does.
    let (code, said) = asked(&["--pid", &ext.pid().to_string()]);
    assert!(code == 0 && said.contains(" in force: "), "{said}");
    let (code, said) = asked(&["--pid", &plain.pid().to_string()]);
    assert!(code == 2 && said.contains("no configuration"), "{said}");
    let (code, said) = asked(&["--pid", "1"]);
    assert!(code == 17 && said.contains("process 1 "), "{said}");
    plain.signal(Signal::SIGKILL);
    plain.wait();
    assert_eq!(asked(&["--root", &path_of(&other)]).0, 17);
    // What that left is not taken for a daemon, nor in the way of the next one.
    assert_eq!(asked(&[]).0, 0);
    let _next = Ext::run(&other, &["--policy", "headroom"]);
    assert_eq!(asked(&["--root", &path_of(&other)]).0, 2);
}

#[test]
#[ignore = "needs the lab's VM"]
fn what_does_not_go_with_a_configuration_is_refused() {
    world();
    let file = OwnFile::new("config.toml", OPEN);
    let path = file.path();
    for more in [["--policy", "default"], ["--cap", "64K"]] {
        let (code, message) = fails(&[&["run", "--config", path], &more[..]].concat());
        assert_eq!(code, 2, "{message}");
    }
    file.write("magic = 1\n");
    let (code, message) = fails(&["run", "--config", path]);
    assert_eq!(code, 2, "{message}");
    assert!(message.contains(&format!("{path}:1: 'magic'")), "{message}");
}

/// What the daemon spends on cgroups that come, with many there already.
#[test]
#[ignore = "needs the lab's VM"]
fn a_thousand_cgroups_cost_little() {
    world();
    let root = Group::new("many");
    let groups: Vec<Group> = (0..1000)
        .map(|i| root.child_without_memory(&format!("g{i}")))
        .collect();
    let file = OwnFile::new(
        "config.toml",
        with("[[override]]\ncgroups = 'many/g*7'\npolicy = 'tiny'\n"),
    );
    let begun = Instant::now();
    let ext = start(&root, &file);
    let start_ms = begun.elapsed().as_millis();
    let slept = || ext.proc_status("voluntary_ctxt_switches");
    std::thread::sleep(Duration::from_secs(2));
    let before = slept();
    std::thread::sleep(Duration::from_secs(3));
    let quiet = slept() - before;
    let begun = Instant::now();
    assert_eq!(reload(&ext)["in_force"], true);
    let reload_ms = begun.elapsed().as_millis();
    record(&serde_json::json!({
        "name": "config_cost", "cgroups": 1000, "start_ms": start_ms, "load_ms": ext.load_ms,
        "reload_ms": reload_ms, "wakeups_in_3_s": quiet,
    }));
    println!(
        "1000 cgroups: start {start_ms} ms (load {}), reload {reload_ms} ms, {quiet} wake-ups in 3 s",
        ext.load_ms
    );
    assert!(quiet < 30, "{quiet} wake-ups while nothing happens");
    assert!(!huge(&groups[17]) && huge(&groups[18]));
}
