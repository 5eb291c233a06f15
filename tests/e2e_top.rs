// SPDX-License-Identifier: GPL-2.0-only
//! `top` on a terminal: it draws, obeys keys, and leaves the terminal as it was, whatever ends it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Stdio};
use std::time::Instant;

use common::ext::{Ext, K64, command, fails};
use common::worker::Worker;
use common::{Group, HARMLESS, HOSTILE, MIB, PATIENCE, terminal, world};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::tcgetattr;
use nix::unistd::Pid;

/// `top` on a terminal of 80 by 24.
struct Top {
    child: Child,
    keys: File,
    /// Kept open, as that of a shell.
    slave: OwnedFd,
    shown: std::sync::mpsc::Receiver<Vec<u8>>,
    screen: vt100::Parser,
}

impl Top {
    fn start() -> Self {
        let pty = terminal();
        let end = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
        let child = command(&["top", "--interval", "200ms"])
            .stdin(end(&pty.slave))
            .stdout(end(&pty.slave))
            .stderr(end(&pty.slave))
            .spawn()
            .unwrap();
        let mut from = File::from(pty.master.try_clone().unwrap());
        let (send, shown) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut part) {
                if send.send(part[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Top {
            child,
            keys: File::from(pty.master),
            slave: pty.slave,
            shown,
            screen: vt100::Parser::new(24, 80, 0),
        }
    }

    /// Waits until the screen is so, and returns what is on it.
    fn sees(&mut self, what: &str, is: impl Fn(&vt100::Screen) -> bool) -> String {
        let start = Instant::now();
        loop {
            let contents = self.screen.screen().contents();
            if is(self.screen.screen()) {
                return contents;
            }
            let left = PATIENCE.saturating_sub(start.elapsed());
            match self.shown.recv_timeout(left) {
                Ok(part) => self.screen.process(&part),
                Err(_) => panic!("not {what}:\n{contents}"),
            }
        }
    }

    /// Waits until this is on it.
    fn shows(&mut self, text: &str) -> String {
        self.sees(text, |screen| screen.contents().contains(text))
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }
}

#[test]
#[ignore = "needs the lab's VM"]
fn it_draws_obeys_keys_and_restores_the_terminal() {
    world();
    let group = Group::new("drawn");
    group.set("memory.max", "64M");
    let _ext = Ext::run(&group, &K64);
    let mut worker = Worker::new(&group);
    worker.fill(60 * MIB);
    for (how, code) in [
        ("q", Some(0)),
        ("\x03", Some(0)),
        ("TERM", Some(0)),
        ("HUP", Some(0)),
    ] {
        let mut top = Top::start();
        let before = tcgetattr(top.slave.as_fd()).unwrap();
        top.shows("1 of 1 cgroups");
        let screen = top.shows("room: ");
        // For who reads the log.
        println!("{screen}");
        assert!(
            screen.lines().nth(2).unwrap().starts_with(&group.name()),
            "{screen}"
        );
        assert_ne!(
            tcgetattr(top.slave.as_fd()).unwrap(),
            before,
            "keys come at once"
        );
        top.press("/nothing\r");
        top.shows("0 of 1 cgroups");
        let pid = Pid::from_raw(top.child.id() as i32);
        match how {
            "TERM" => kill(pid, Signal::SIGTERM).unwrap(),
            "HUP" => kill(pid, Signal::SIGHUP).unwrap(),
            keys => top.press(keys),
        }
        top.sees("left", |screen| {
            !screen.alternate_screen() && !screen.hide_cursor()
        });
        assert_eq!(top.child.wait().unwrap().code(), code, "{how:?}");
        assert_eq!(tcgetattr(top.slave.as_fd()).unwrap(), before, "{how:?}");
    }
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_hostile_name_is_harmless_on_it() {
    world();
    let group = Group::new(HOSTILE);
    let _ext = Ext::run(&group, &["--policy", "fixed", "--cap", "64K"]);
    Worker::new(&group).fill(MIB);
    let mut top = Top::start();
    top.shows(HARMLESS);
    top.press("q");
    assert_eq!(top.child.wait().unwrap().code(), Some(0));
}

#[test]
#[ignore = "needs the lab's VM"]
fn without_a_terminal_it_names_what_to_use() {
    world();
    let (code, message) = fails(&["top"]);
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("status --watch"), "{message}");
}
