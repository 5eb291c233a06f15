// SPDX-License-Identifier: GPL-2.0-only
//! What the cgroup looks like over time.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::json;

use super::Failure;
use super::host::{keyed, stall_in};
use crate::results::{Results, now_ms};

/// A thread that reads the cgroup's files at a fixed interval.
pub struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<std::io::Result<()>>,
}

impl Sampler {
    /// Starts sampling the cgroup at `path`, once every `interval` of guest time.
    pub fn start(path: PathBuf, interval: Duration, results: &Arc<Results>) -> Self {
        let (stop, stopped) = channel();
        let results = Arc::clone(results);
        let thread = std::thread::spawn(move || {
            loop {
                sample(&path, &results)?;
                match stopped.recv_timeout(interval) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return sample(&path, &results),
                }
            }
        });
        Self { stop, thread }
    }

    /// Takes a last sample and ends.
    pub fn stop(self) -> Result<(), Failure> {
        // The thread may have ended with an error of its own, which join reports.
        let _ = self.stop.send(());
        match self.thread.join() {
            Ok(ended) => ended.map_err(|e| Failure::new("sample the cgroup", e)),
            Err(_) => Err(Failure::other("sample the cgroup", "the sampler panicked")),
        }
    }
}

fn sample(path: &std::path::Path, results: &Results) -> std::io::Result<()> {
    let pressure = fs::read_to_string(path.join("memory.pressure"))?;
    let current = fs::read_to_string(path.join("memory.current"))?;
    let stat = fs::read_to_string(path.join("memory.stat"))?;
    results.send(&json!({
        "type": "sample",
        "t_ms": now_ms(),
        "psi_some_us": stall_in(&pressure, "some"),
        "psi_full_us": stall_in(&pressure, "full"),
        "current": current.trim().parse::<u64>().unwrap_or(0),
        "anon": keyed(&stat, "anon"),
        "anon_thp": keyed(&stat, "anon_thp"),
    }))
}
