// SPDX-License-Identifier: GPL-2.0-only
//! What the guest and its cgroups look like over time, and their totals at the end.

use std::fs;
use std::io;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::sampler::meminfo;
use lab_guest::failure::Failure;
use lab_guest::knobs::{Group, keyed, read, stall_in};
use lab_guest::results::now_ms;

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// Counters of /proc/vmstat whose change over the measured time is reported.
const VMSTAT: [&str; 20] = [
    "pswpin",
    "pswpout",
    "pgfault",
    "pgmajfault",
    "allocstall_normal",
    "allocstall_movable",
    "compact_stall",
    "thp_fault_alloc",
    "thp_fault_fallback",
    "thp_collapse_alloc",
    "thp_split_page",
    "thp_underused_split_page",
    "thp_bpf_split",
    "thp_swpout",
    "thp_swpout_fallback",
    "zswpin",
    "zswpout",
    "zswpwb",
    "workingset_refault_file",
    "oom_kill",
];

/// Lines of memory.stat that are reported at the end, in bytes or events.
const STAT: [&str; 10] = [
    "anon",
    "anon_thp",
    "file",
    "shmem",
    "kernel",
    "pgfault",
    "pgmajfault",
    "pswpin",
    "pswpout",
    "zswpout",
];

/// The sizes of anonymous folios that the kernel counts.
pub struct Sizes(Vec<(u64, PathBuf)>);

impl Sizes {
    /// Finds them in sysfs.
    pub fn find() -> Result<Self, Failure> {
        let mut sizes = Vec::new();
        let list = fs::read_dir(THP).map_err(|e| Failure::new(format!("list {THP}"), e))?;
        for entry in list.flatten() {
            let name = entry.file_name();
            let Some(kib) = name.to_str().and_then(|name| {
                name.strip_prefix("hugepages-")?
                    .strip_suffix("kB")?
                    .parse()
                    .ok()
            }) else {
                continue;
            };
            let count = entry.path().join("stats/nr_anon");
            if count.exists() {
                sizes.push((kib, count));
            }
        }
        sizes.sort();
        Ok(Self(sizes))
    }

    /// KiB of a folio -> how many there are.
    fn read(&self) -> io::Result<Map<String, Value>> {
        let mut counts = Map::new();
        for (kib, path) in &self.0 {
            let count: u64 = fs::read_to_string(path)?.trim().parse().unwrap_or(0);
            counts.insert(kib.to_string(), json!(count));
        }
        Ok(counts)
    }
}

/// One sample. None of these files brings the cgroups' memory statistics up to date, as memory.stat would:
/// reclaim decides by them, and behaves better with a reader than unobserved.
pub fn sample(groups: &[(String, Group)], sizes: &Sizes) -> io::Result<Value> {
    let guest = fs::read_to_string("/proc/meminfo")?;
    let mut all = Map::new();
    for (name, group) in groups {
        let pressure = fs::read_to_string(group.path.join("memory.pressure"))?;
        let current = fs::read_to_string(group.path.join("memory.current"))?;
        all.insert(
            name.clone(),
            json!([
                current.trim().parse::<u64>().unwrap_or(0),
                stall_in(&pressure, "some"),
                stall_in(&pressure, "full"),
            ]),
        );
    }
    Ok(json!({
        "type": "sample",
        "t_ms": now_ms(),
        "free": meminfo(&guest, "MemFree:"),
        "anon": meminfo(&guest, "AnonPages:"),
        "folios": sizes.read()?,
        "groups": all,
    }))
}

/// Totals of /proc/vmstat.
pub fn vmstat() -> Result<Vec<(&'static str, u64)>, Failure> {
    let text = read("/proc/vmstat")?;
    Ok(VMSTAT.map(|name| (name, keyed(&text, name))).to_vec())
}

/// Of these totals the processes killed for lack of memory since the guest booted.
pub fn oom_kills(totals: &[(&str, u64)]) -> u64 {
    totals
        .iter()
        .find(|(name, _)| *name == "oom_kill")
        .map_or(0, |(_, count)| *count)
}

/// Totals of a cgroup that only grow.
pub struct Totals {
    some: u64,
    full: u64,
    user: u64,
    system: u64,
}

impl Totals {
    /// As they are now.
    pub fn read(group: &Group) -> Result<Self, Failure> {
        let cpu = read(group.path.join("cpu.stat"))?;
        Ok(Self {
            some: group.stall("some")?,
            full: group.stall("full")?,
            user: keyed(&cpu, "user_usec"),
            system: keyed(&cpu, "system_usec"),
        })
    }
}

/// The record of a cgroup at the end of the measured time; only now memory.stat does no harm.
pub fn group_end(name: &str, group: &Group, before: &Totals) -> Result<Value, Failure> {
    let now = Totals::read(group)?;
    let stat = read(group.path.join("memory.stat"))?;
    let events = read(group.path.join("memory.events"))?;
    let stat: Map<String, Value> = STAT
        .iter()
        .map(|&key| (key.to_owned(), json!(keyed(&stat, key))))
        .collect();
    Ok(json!({
        "type": "group",
        "group": name,
        "current": group.number("memory.current")?,
        "peak": group.number("memory.peak")?,
        "swap": group.number("memory.swap.current")?,
        "oom_kills": keyed(&events, "oom_kill"),
        "high_events": keyed(&events, "high"),
        "psi_some_us": now.some - before.some,
        "psi_full_us": now.full - before.full,
        "user_us": now.user - before.user,
        "system_us": now.system - before.system,
        "stat": stat,
    }))
}
