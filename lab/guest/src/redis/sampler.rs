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
use super::host::stall_in;
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

/// Not memory.stat: reading it brings the kernel's statistics of the cgroup up to date, and reclaim, which
/// decides by them, then behaves better than unobserved. `always` under memory.max is killed without such
/// readers and survives with one. The guest's own counters of anonymous memory cost nothing of the kind, and
/// nearly all of it is the server's.
fn sample(path: &std::path::Path, results: &Results) -> std::io::Result<()> {
    let pressure = fs::read_to_string(path.join("memory.pressure"))?;
    let current = fs::read_to_string(path.join("memory.current"))?;
    let guest = fs::read_to_string("/proc/meminfo")?;
    results.send(&json!({
        "type": "sample",
        "t_ms": now_ms(),
        "psi_some_us": stall_in(&pressure, "some"),
        "psi_full_us": stall_in(&pressure, "full"),
        "current": current.trim().parse::<u64>().unwrap_or(0),
        "anon": meminfo(&guest, "AnonPages:"),
        "anon_thp": meminfo(&guest, "AnonHugePages:"),
    }))
}

/// Bytes of a line of /proc/meminfo, which counts in kB; 0 if there is no such line.
fn meminfo(text: &str, name: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.strip_prefix(name))
        .find_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kilobytes| kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::meminfo;

    #[test]
    fn meminfo_in_bytes() {
        let text = "MemTotal:  8 kB\nAnonPages:       12 kB\nAnonHugePages:  4 kB\n";
        assert_eq!(meminfo(text, "AnonPages:"), 12 << 10);
        assert_eq!(meminfo(text, "AnonHugePages:"), 4 << 10);
        assert_eq!(meminfo(text, "SwapTotal:"), 0);
    }
}
