// SPDX-License-Identifier: GPL-2.0-only
//! The program under test.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::{Group, PATIENCE, schema};

/// A command of mthp_ext.
pub fn command(args: &[&str]) -> Command {
    let program = std::env::var_os("MTHP_EXT_BIN").expect("MTHP_EXT_BIN names the program");
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub fn output(args: &[&str]) -> Output {
    command(args).output().expect("mthp_ext runs")
}

/// Its exit code and what it said on standard error.
pub fn fails(args: &[&str]) -> (i32, String) {
    let out = output(args);
    let message = String::from_utf8(out.stderr).unwrap();
    (out.status.code().expect("an exit code"), message)
}

/// `status --json`.
pub fn status() -> Value {
    let out = output(&["status", "--json"]);
    assert!(out.status.success(), "{out:?}");
    schema::answer("status", &out.stdout)
}

/// `support --json`, whatever is missing.
pub fn support() -> Value {
    let out = output(&["support", "--json"]);
    schema::answer("support", &out.stdout)
}

/// Is it the module that carries the hook?
fn by_module() -> bool {
    support()["carrier"] != "kernel"
}

/// The line of a cgroup in `status --json`.
pub fn status_of(group: &Group) -> Value {
    let status = status();
    let lines = status["cgroups"].as_array().unwrap();
    lines
        .iter()
        .find(|l| l["cgroup"] == group.name())
        .unwrap_or(&Value::Null)
        .clone()
}

/// The link of the only policy.
pub fn link_id() -> u64 {
    status()["policies"][0]["link_id"].as_u64().unwrap()
}

/// The words of a `run` on a cgroup.
pub fn run_on<'a>(group: &'a Group, more: &[&'a str]) -> Vec<&'a str> {
    [&["run", "--root", group.path.to_str().unwrap()], more].concat()
}

/// A policy that is kept after its daemon's end, unless one is there.
pub fn keep_one(root: &Group) {
    if attached() == 0 {
        let args = ["--on-exit", "keep", "--policy", "fixed", "--cap", "64K"];
        let mut ext = Ext::run(root, &args);
        ext.signal(Signal::SIGTERM);
        assert_eq!(ext.wait(), Some(0));
    }
}

/// What `detach` has not detached, or left behind.
pub fn left_by_detach() -> Option<String> {
    let out = output(&["detach"]);
    let left = Path::new("/sys/fs/bpf/mthp_ext").exists();
    let now = attached();
    (!out.status.success() || left || now > 0)
        .then(|| format!("{now} policies, pins: {left}, {out:?}"))
}

/// Number of attached policies.
pub fn attached() -> usize {
    status()["policies"].as_array().unwrap().len()
}

/// The headroom rule alone, and early.
pub const K64: [&str; 10] = [
    "--policy",
    "headroom",
    "--room-factor",
    "64",
    "--limit-share",
    "0",
    // The guest itself is too small for 1024 and no share.
    "--count-nodes",
    "0",
    "--set",
    "count-machine=0",
];

/// Neither the time nor the stall of a test brings a scan, so that what requests see counts; and the
/// host, of which the disk takes much, is no limit.
pub const SELDOM: [&str; 6] = [
    "--window",
    "10s",
    "--threshold",
    "10s",
    "--set",
    "count-machine=0",
];

/// None of its rules wants a scan; and the host, of which the disk takes much, is no limit.
pub const NO_SCAN: [&str; 6] = [
    "--policy",
    "headroom",
    "--count-nodes",
    "0",
    "--set",
    "count-machine=0",
];

/// A running `mthp_ext run --json`.  Dropped: killed.
pub struct Ext {
    child: Child,
    lines: Receiver<Value>,
    errors: Option<JoinHandle<String>>,
    /// When the policy was in force: `CLOCK_MONOTONIC`, milliseconds.
    pub in_force_ms: u64,
    /// What loading the policy took.
    pub load_ms: u64,
}

/// What a program prints, to its end.
fn text_of(mut from: impl Read) -> String {
    let mut text = String::new();
    let _ = from.read_to_string(&mut text);
    text
}

/// Passes on each line of JSON until there are no more, or nobody wants them.
fn pass_on(from: impl Read, to: &Sender<Value>) {
    for line in BufReader::new(from).lines().map_while(Result::ok) {
        let value = schema::answer("run", line.as_bytes());
        if to.send(value).is_err() {
            break;
        }
    }
}

impl Ext {
    /// Starts the command; from here on Drop waits for it.
    fn start(mut command: Command) -> Self {
        let (send, lines) = channel();
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut ext = Ext {
            child: piped.spawn().unwrap(),
            lines,
            errors: None,
            in_force_ms: 0,
            load_ms: 0,
        };
        let (out, err) = (ext.child.stdout.take(), ext.child.stderr.take());
        std::thread::spawn(move || pass_on(out.unwrap(), &send));
        ext.errors = Some(std::thread::spawn(move || text_of(err.unwrap())));
        ext
    }

    /// Starts it on a cgroup and waits until it is attached.
    pub fn run(root: &Group, args: &[&str]) -> Self {
        Self::run_as(root, args, |_| {})
    }

    /// The same, its command changed before it starts.
    pub fn run_as(root: &Group, args: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let mut command = command(&[&run_on(root, args)[..], &["--json"]].concat());
        change(&mut command);
        let mut ext = Ext::start(command);
        match ext.next(PATIENCE) {
            Some(first) => {
                assert_eq!(first["event"], "attached");
                ext.in_force_ms = first["t_ms"].as_u64().unwrap();
                ext.load_ms = first["load_ms"].as_u64().unwrap();
            }
            None => panic!("it does not attach: {}", ext.errors()),
        }
        ext
    }

    /// The next line, if one comes in time.
    pub fn next(&self, timeout: Duration) -> Option<Value> {
        self.lines.recv_timeout(timeout).ok()
    }

    /// The next line that is as wanted; others are passed over.
    pub fn expect(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        let mut seen = Vec::new();
        while let Some(line) = self.next(PATIENCE.saturating_sub(start.elapsed())) {
            if is(&line) {
                return line;
            }
            seen.push(line.to_string());
        }
        panic!("no line says: {what}; there were: {seen:#?}");
    }

    /// The next decision about a cgroup with this cause.
    pub fn decision(&self, group: &Group, why: &str) -> Value {
        self.expect(&format!("{} {why}", group.name()), |line| {
            line["event"] == "decision" && line["cgroup"] == group.name() && line["why"] == why
        })
    }

    /// Lines that come within a time.
    pub fn during(&self, time: Duration) -> Vec<Value> {
        let end = Instant::now() + time;
        let mut lines = Vec::new();
        while let Some(line) = self.next(end.saturating_duration_since(Instant::now())) {
            lines.push(line);
        }
        lines
    }

    /// The same without what a module lacks, which is said whatever happens.
    pub fn happens(&self, time: Duration) -> Vec<Value> {
        let mut lines = self.during(time);
        if by_module() {
            lines.retain(|line| line["event"] != "partial");
        }
        lines
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Waits for its end: exit code, or `None` if a signal ended it.
    pub fn wait(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(start.elapsed() < PATIENCE, "mthp_ext does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What it said on standard error until its end.
    pub fn errors(&mut self) -> String {
        let _ = self.child.kill();
        self.errors
            .take()
            .map(|thread| thread.join().unwrap())
            .unwrap_or_default()
    }

    /// A number from its /proc/PID/status: `voluntary_ctxt_switches` is how often
    /// it has gone to sleep, `RssAnon` how many KiB of memory it keeps.
    pub fn proc_status(&self, key: &str) -> u64 {
        super::read(format!("/proc/{}/status", self.child.id()))
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
            .and_then(|value| value.trim().trim_end_matches(" kB").parse().ok())
            .unwrap()
    }
}

impl Drop for Ext {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
