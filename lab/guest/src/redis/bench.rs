// SPDX-License-Identifier: GPL-2.0-only
//! redis-server and redis-benchmark, and what they say.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::cell::Cell;
use crate::clock::seed_redis_benchmark;
use crate::failure::Failure;
use crate::knobs::{Group, read};
use crate::results::{Results, now_ms};
use crate::stop::Stop;
use crate::words::{self, Words};

const SOCKET: &str = "/run/redis.sock";
const LOG: &str = "/run/redis.log";
const PROGRAM: &str = "redis-server";
/// Guest time that the server has to listen, and to answer INFO after the run.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the ends of the two processes are looked for.
const POLL: Duration = Duration::from_millis(5);

/// The server, in its cgroup from its first instruction.
pub struct Server {
    child: Child,
}

impl Server {
    /// Starts the server and waits until it listens.
    pub fn start(group: &Group, cell: &Cell) -> Result<Self, Failure> {
        let procs = group.path.join("cgroup.procs");
        let what = "start redis-server";
        let log = std::fs::File::create(LOG).map_err(|e| Failure::new(format!("make {LOG}"), e))?;
        // What it says before it has a log goes to stderr.
        let early = log.try_clone().map_err(|e| Failure::new(what, e))?;
        let mut command = Command::new(&cell.server);
        // Redis switches THP off for itself unless told not to.
        command.args([
            "--port",
            "0",
            "--unixsocket",
            SOCKET,
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        command
            .args(["--disable-thp", "no", "--daemonize", "no"])
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(early);
        // Some installations have the server under the name of a tool; it goes by argv[0].
        command.arg0("redis-server");
        // SAFETY: write() to a file is all that happens between fork and exec.
        unsafe {
            command.pre_exec(move || std::fs::write(&procs, "0"));
        }
        let child = command.spawn().map_err(|e| Failure::new(what, e))?;
        let mut server = Self { child };
        let begin = now_ms();
        while UnixStream::connect(SOCKET).is_err() {
            if let Some(status) = server.status()? {
                return Err(Failure::ended(what, status, PROGRAM, &last_words()));
            }
            if now_ms() - begin > millis(PATIENCE) {
                let why = format!("it does not listen after {} s", PATIENCE.as_secs());
                return Err(Failure::of(what, why, PROGRAM, &last_words()));
            }
            std::thread::sleep(POLL);
        }
        Ok(server)
    }

    /// How it ended, if it has.
    fn status(&mut self) -> Result<Option<ExitStatus>, Failure> {
        self.child
            .try_wait()
            .map_err(|e| Failure::new("wait for redis-server", e))
    }

    fn is_dead(&mut self) -> Result<bool, Failure> {
        Ok(self.status()?.is_some())
    }

    /// SET commands that the server counted; `hint` if it is gone or does not answer.
    pub fn served(&self, hint: u64) -> u64 {
        info_set_calls().unwrap_or(hint)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Gone already, or about to be: there is nobody left to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server's last message; empty if it said nothing.
pub fn last_words() -> String {
    words::last_in(&read(LOG).unwrap_or_default()).to_owned()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn info_set_calls() -> Option<u64> {
    let mut stream = UnixStream::connect(SOCKET).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(b"INFO commandstats\r\nQUIT\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    set_calls_in(&text)
}

fn set_calls_in(info: &str) -> Option<u64> {
    let line = info.lines().find(|line| line.starts_with("cmdstat_set:"))?;
    line.split_once("calls=")?.1.split(',').next()?.parse().ok()
}

/// How a run of the benchmark ended.
pub struct Bench {
    /// What it measured, if it came to its end: rps and latencies in ms.
    pub summary: Option<BTreeMap<String, f64>>,
    /// It was stopped, at the deadline or because the host asked.
    pub bounded: bool,
    /// The host asked.
    pub by_host: bool,
    /// When the server died, on the guest's clock.
    pub server_died_ms: Option<u64>,
    /// Requests served, by the benchmark's own rate.
    pub served_hint: u64,
}

/// Runs the proposal's command and watches both processes.
pub fn run(
    cell: &Cell,
    server: &mut Server,
    stop: &Stop,
    results: &Arc<Results>,
) -> Result<Bench, Failure> {
    let mut command = Command::new(&cell.benchmark);
    command.args(["-s", SOCKET, "-t", "set"]);
    for (option, value) in [
        ("-r", cell.keys),
        ("-n", cell.requests),
        ("-d", cell.value_bytes),
        ("-c", cell.clients),
        ("-P", cell.pipeline),
    ] {
        command.args([option, &value.to_string()]);
    }
    let seed = i64::from(cell.seed);
    // SAFETY: two system calls are all that happens between fork and exec.
    unsafe {
        command.pre_exec(move || seed_redis_benchmark(seed));
    }
    let begin = now_ms();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| Failure::new("start redis-benchmark", e))?;
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(Failure::other(
            "start redis-benchmark",
            "its output is not piped",
        ));
    };
    let reader = {
        let results = Arc::clone(results);
        std::thread::spawn(move || read_output(stdout, begin, &results))
    };

    let complaints = Words::follow(stderr, |line| eprintln!("{line}"));
    let (mut bounded, mut by_host) = (false, false);
    let mut server_died_ms = None;
    let status = loop {
        if let Some(status) = child
            .try_wait()
            .map_err(|e| Failure::new("wait for redis-benchmark", e))?
        {
            // A killed server ends the benchmark, so it may be found dead only now.
            if server_died_ms.is_none() && server.is_dead()? {
                server_died_ms = Some(now_ms());
            }
            break status;
        }
        if server_died_ms.is_none() && server.is_dead()? {
            server_died_ms = Some(now_ms());
        }
        if !bounded && (stop.asked() || now_ms() - begin > cell.deadline_ms) {
            (bounded, by_host) = (true, stop.asked());
            child
                .kill()
                .map_err(|e| Failure::new("stop redis-benchmark", e))?;
        }
        std::thread::sleep(POLL);
    };
    let Ok((text, overall, last_ms)) = reader.join() else {
        return Err(Failure::other(
            "read redis-benchmark's output",
            "the reader panicked",
        ));
    };
    let summary = summary_in(&text);
    if summary.is_none() && !bounded && server_died_ms.is_none() {
        complaints.finish();
        let complaint = complaints.last();
        let said = if complaint.is_empty() {
            words::last_in(&text)
        } else {
            &complaint
        };
        return Err(Failure::ended(
            "run redis-benchmark",
            status,
            "redis-benchmark",
            said,
        ));
    }
    let served_hint = match summary {
        Some(_) => cell.requests,
        // rate * time, both as printed
        None => (overall * last_ms as f64 / 1000.0) as u64,
    };
    Ok(Bench {
        summary,
        bounded,
        by_host,
        server_died_ms,
        served_hint,
    })
}

/// All of the benchmark's output but its progress, the last overall rate, and when that was, ms after the start.
fn read_output(stdout: impl Read, begin: u64, results: &Results) -> (String, f64, u64) {
    let (mut text, mut overall, mut last) = (String::new(), 0.0, 0);
    words::lines(stdout, |line| {
        if let Some((now, all)) = progress_in(line) {
            (overall, last) = (all, now_ms() - begin);
            let record = json!({"type": "progress", "t_ms": now_ms(), "rps": now, "overall": all});
            if let Err(e) = results.send(&record) {
                eprintln!("lab-guest redis: write progress: {e}");
            }
        } else {
            text.push_str(line);
            text.push('\n');
        }
    });
    (text, overall, last)
}

/// "SET: rps=1234.0 (overall: 1200.5) avg_msec=..." as (now, overall).
fn progress_in(line: &str) -> Option<(f64, f64)> {
    let rest = line.split_once("rps=")?.1;
    let now = rest.split_whitespace().next()?.parse().ok()?;
    let overall = rest
        .split_once("(overall: ")?
        .1
        .split(')')
        .next()?
        .parse()
        .ok()?;
    Some((now, overall))
}

/// The summary at the end of the benchmark's report; None if it did not come that far.
fn summary_in(text: &str) -> Option<BTreeMap<String, f64>> {
    let rps = text
        .split_once("throughput summary:")?
        .1
        .split_whitespace()
        .next()?
        .parse()
        .ok()?;
    let mut rows = text
        .split_once("latency summary (msec):")?
        .1
        .lines()
        .skip(1);
    let names = rows.next()?.split_whitespace();
    let values: Vec<f64> = rows
        .next()?
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    let mut summary: BTreeMap<String, f64> =
        names.map(|name| format!("{name}_ms")).zip(values).collect();
    summary.insert("rps".to_owned(), rps);
    ["avg_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms"]
        .iter()
        .all(|name| summary.contains_key(*name))
        .then_some(summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "====== SET ======\n  10 requests completed in 0.10 seconds\n\nSummary:\n  \
        throughput summary: 83647.01 requests per second\n  latency summary (msec):\n          \
        avg       min       p50       p95       p99       max\n        \
        3.565     0.592     3.271     5.711     7.087    11.199\n";

    #[test]
    fn whole_report() {
        let summary = summary_in(REPORT).unwrap();
        assert_eq!(summary["rps"], 83647.01);
        assert_eq!(summary["p99_ms"], 7.087);
        assert_eq!(summary["max_ms"], 11.199);
    }

    #[test]
    fn report_cut_anywhere_is_no_report() {
        for end in 0..REPORT.len() - "    11.199\n".len() {
            assert!(summary_in(&REPORT[..end]).is_none(), "{end}");
        }
    }

    #[test]
    fn progress_line() {
        let line = "SET: rps=51234.5 (overall: 50100.2) avg_msec=5.1 (overall: 5.2)";
        assert_eq!(progress_in(line), Some((51234.5, 50100.2)));
        assert_eq!(progress_in("SET: rps=5"), None);
        assert_eq!(progress_in("  10 requests completed"), None);
    }

    #[test]
    fn calls_of_set() {
        let info =
            "cmdstat_config|get:calls=2,usec=1\r\ncmdstat_set:calls=126,usec=9,usec_per_call=1\r\n";
        assert_eq!(set_calls_in(info), Some(126));
        assert_eq!(set_calls_in("cmdstat_get:calls=1,usec=2"), None);
    }
}
