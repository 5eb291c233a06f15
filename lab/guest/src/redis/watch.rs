// SPDX-License-Identifier: GPL-2.0-only
//! What the server's cgroup looks like over time.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::knobs::stall_in;
use crate::results::{Results, now_ms};
use crate::sampler::meminfo;

/// Not memory.stat: reading it brings the kernel's statistics of the cgroup up to date, and reclaim, which
/// decides by them, then behaves better than unobserved. `always` under memory.max is killed without such
/// readers and survives with one. The guest's own counters of anonymous memory cost nothing of the kind, and
/// nearly all of it is the server's.
pub fn sample(path: &Path, results: &Results) -> std::io::Result<()> {
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
