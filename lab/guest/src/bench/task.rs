// SPDX-License-Identifier: GPL-2.0-only
//! A process of the workload: started in its cgroup, its output passed on line by line, killed with all its children.

use std::fs::File;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::prctl::set_thp_disable;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, pipe2};
use serde_json::json;

use super::POLL;
use super::cell::TaskSpec;
use crate::clock::seed_redis_benchmark;
use crate::stop::Stop;
use crate::words::Words;
use lab_guest::failure::Failure;
use lab_guest::knobs::CGROUP;
use lab_guest::results::{Results, now_ms};

/// Guest time that a server has until it is ready.
const PATIENCE_MS: u64 = 60_000;
/// Lines that are passed on. The host refuses a run of which lines are missing.
const LINES: usize = 200_000;

/// A started process.
pub struct Task {
    name: String,
    program: String,
    child: Child,
    group: Pid,
    started_ms: u64,
    ended: Option<(u64, ExitStatus)>,
    words: Words,
}

impl Task {
    /// Starts the process in its cgroup, from its first instruction, and waits until it is ready.
    pub fn start(spec: &TaskSpec, results: &Arc<Results>) -> Result<Self, Failure> {
        let failed = |e: std::io::Error| Failure::new(format!("start {}", spec.name), e);
        let Some((program, args)) = spec.argv.split_first() else {
            return Err(Failure::other(format!("start {}", spec.name), "no argv"));
        };
        let mut command = Command::new(program);
        command.args(args).envs(&spec.env).stdin(Stdio::null());
        if let Some(name) = &spec.arg0 {
            command.arg0(name);
        }
        // Or every other task would hold it open.
        let (read, write) = pipe2(OFlag::O_CLOEXEC).map_err(|e| failed(e.into()))?;
        command.stdout(write.try_clone().map_err(failed)?);
        command.stderr(write);
        let procs = spec
            .group
            .as_ref()
            .map(|name| Path::new(CGROUP).join(name).join("cgroup.procs"));
        let seed = spec.seed.map(i64::from);
        let thp_off = spec.thp_off;
        // SAFETY: between fork and exec only system calls happen: a write to a file, prctl, setting the clock.
        unsafe {
            command.process_group(0).pre_exec(move || {
                if let Some(procs) = &procs {
                    std::fs::write(procs, "0")?;
                }
                if thp_off {
                    set_thp_disable(true)?;
                }
                seed.map_or(Ok(()), seed_redis_benchmark)
            });
        }
        let started_ms = now_ms();
        let child = command.spawn().map_err(failed)?;
        // It holds copies of the pipe's end that would keep the reader waiting for ever.
        drop(command);
        let group = i32::try_from(child.id())
            .map(Pid::from_raw)
            .map_err(|_| Failure::other(format!("start {}", spec.name), "its pid does not fit"))?;
        // Of a quiet task, too, the last line is kept: it may say why the task failed.
        let words = if spec.quiet {
            Words::follow(File::from(read), |_| {})
        } else {
            Words::follow(
                File::from(read),
                pass_on(spec.name.clone(), Arc::clone(results), LINES),
            )
        };
        let mut task = Self {
            name: spec.name.clone(),
            program: spec.program(),
            child,
            group,
            started_ms,
            ended: None,
            words,
        };
        if let Some(socket) = &spec.ready {
            task.wait_ready(socket)?;
        }
        Ok(task)
    }

    fn wait_ready(&mut self, socket: &str) -> Result<(), Failure> {
        while !listens(socket) {
            let what = format!("start {}", self.name);
            if self.has_ended()? {
                self.words.finish();
                if let Some((_, status)) = self.ended {
                    let said = self.words.last();
                    return Err(Failure::ended(what, status, &self.program, &said));
                }
            }
            if now_ms() - self.started_ms > PATIENCE_MS {
                let why = format!(
                    "it does not listen on {socket} after {} s",
                    PATIENCE_MS / 1000
                );
                return Err(Failure::of(what, why, &self.program, &self.words.last()));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Whether the process has ended by now.
    pub fn has_ended(&mut self) -> Result<bool, Failure> {
        if self.ended.is_none() {
            let status = self
                .child
                .try_wait()
                .map_err(|e| Failure::new(format!("wait for {}", self.name), e))?;
            self.ended = status.map(|status| (now_ms(), status));
        }
        Ok(self.ended.is_some())
    }

    /// Waits for the end, until the clock shows `until_ms` or the host asks to stop; whether it came.
    pub fn wait(&mut self, until_ms: u64, stop: &Stop) -> Result<bool, Failure> {
        while !self.has_ended()? {
            if now_ms() > until_ms || stop.asked() {
                return Ok(false);
            }
            std::thread::sleep(POLL);
        }
        Ok(true)
    }

    /// Kills what is left of the process and its children, and reports to the host how it ended: by itself with a
    /// code, or by a signal; `stopped` if that was ours.
    pub fn finish(mut self, results: &Results) -> Result<(), Failure> {
        let stopped = !self.has_ended()?;
        match killpg(self.group, Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(e) => return Err(Failure::new(format!("stop {}", self.name), e)),
        }
        let (ended_ms, status) = match self.ended {
            Some(end) => end,
            None => {
                let status = self
                    .child
                    .wait()
                    .map_err(|e| Failure::new(format!("wait for {}", self.name), e))?;
                (now_ms(), status)
            }
        };
        self.words.finish();
        let record = json!({
            "type": "task",
            "task": self.name,
            "started_ms": self.started_ms,
            "ended_ms": ended_ms,
            "code": status.code(),
            "signal": status.signal(),
            "stopped": stopped,
            "said": self.words.last(),
            "pid": self.group.as_raw(),
        });
        results.send(&record)
    }
}

/// Whether a Unix socket (a path) or a TCP port (host:port) takes connections.
fn listens(socket: &str) -> bool {
    if socket.starts_with('/') {
        UnixStream::connect(socket).is_ok()
    } else {
        TcpStream::connect(socket).is_ok()
    }
}

/// Sends each line of a task's output with its time. After `most` lines one record says that the rest is missing.
fn pass_on(name: String, results: Arc<Results>, most: usize) -> impl FnMut(&str) + Send + 'static {
    let mut lines = 0;
    move |text| {
        if lines <= most {
            let record = if lines < most {
                json!({"type": "out", "task": name, "t_ms": now_ms(), "text": text})
            } else {
                json!({"type": "cut", "task": name, "t_ms": now_ms(), "lines": most})
            };
            if let Err(e) = results.send(&record) {
                eprintln!("lab-guest bench: write output of {name}: {e}");
            }
            lines += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words;
    use serde_json::Value;

    /// The records of what a task printed.
    fn passed_on(case: &str, printed: &str, most: usize) -> Vec<Value> {
        let path =
            std::env::temp_dir().join(format!("lab-guest-task-{case}-{}", std::process::id()));
        std::fs::write(&path, "").unwrap();
        let results = Arc::new(Results::to(&path).unwrap());
        words::lines(printed.as_bytes(), pass_on("load".into(), results, most));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn each_line_becomes_a_record() {
        let records = passed_on("lines", "a 1\ra 2\n", LINES);
        let texts: Vec<_> = records
            .iter()
            .map(|record| record["text"].as_str().unwrap())
            .collect();
        assert_eq!(texts, ["a 1", "a 2"]);
        assert!(records.iter().all(|record| record["task"] == "load"));
    }

    #[test]
    fn missing_lines_are_reported_once() {
        let types = |printed, most| -> Vec<String> {
            passed_on("cut", printed, most)
                .iter()
                .map(|record| record["type"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(types("1\n2\n3\n4\n", 2), ["out", "out", "cut"]);
        assert_eq!(types("1\n2\n", 2), ["out", "out"]);
    }
}
