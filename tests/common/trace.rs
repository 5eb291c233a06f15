// SPDX-License-Identifier: GPL-2.0-only
//! What khugepaged does, pass by pass, by its tracepoints.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Once;

use super::{MIB, THP, eventually, read, write};

const TRACING: &str = "/sys/kernel/tracing";
const EVENTS: &str = "/sys/kernel/tracing/events/huge_memory";

/// Sets what khugepaged scans before it sleeps.
pub fn pages_to_scan(pages: u64) {
    write(
        format!("{THP}/khugepaged/pages_to_scan"),
        &pages.to_string(),
    );
}

/// Lets khugepaged sleep until a test makes it scan.  With nobody registered
/// it would begin with the first that comes, in the middle of a test's
/// preparations: this process is, from now on.
pub fn settle() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        Box::leak(vec![1u8; usize::try_from(6 * MIB).unwrap()].into_boxed_slice());
        pass();
    });
}

/// Lets khugepaged work until it sleeps again: once `pages_to_scan`.
pub fn pass() {
    let thread = khugepaged();
    // Whatever is written wakes it at once.
    write(format!("{THP}/khugepaged/scan_sleep_millisecs"), "3600000");
    eventually("khugepaged sleeps again", || {
        let stat = read(format!("/proc/{thread}/stat"));
        let state = stat.rsplit_once(") ").unwrap().1;
        state.starts_with('S')
    });
}

/// Full scans since boot.
pub fn full_scans() -> u64 {
    read(format!("{THP}/khugepaged/full_scans"))
        .trim()
        .parse()
        .unwrap()
}

/// Passes until the scan under way is finished.
pub fn finish_scan() -> u64 {
    let before = full_scans();
    (1..=200)
        .find(|_| {
            pass();
            full_scans() > before
        })
        .expect("200 passes are enough for a full scan")
}

/// CPU time that khugepaged used since boot.  Where a guest's time is counted in
/// instructions, these are nanoseconds.
pub fn cpu_ns() -> u64 {
    let sched = read(format!("/proc/{}/sched", khugepaged()));
    let line = sched
        .lines()
        .find_map(|line| line.strip_prefix("se.sum_exec_runtime"))
        .expect("the scheduler shows how long a task ran");
    // Milliseconds with six decimals.
    let value = line.trim_start_matches([' ', ':']).trim();
    value.replace('.', "").parse().unwrap()
}

fn khugepaged() -> u32 {
    let is = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "khugepaged\n")
    };
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .find(is)
        .expect("khugepaged runs")
}

/// Does this kernel account for the progress of a scan?
pub fn has_progress() -> bool {
    Path::new(EVENTS).join("mm_khugepaged_scan").exists()
}

/// What was done to one mm.
#[derive(Debug, Default)]
pub struct Scan {
    /// Name of the mm, an address that means nothing.
    pub mm: String,
    /// Status -> ranges of 2 MiB scanned with that result.
    pub ranges: BTreeMap<String, u64>,
    /// What was counted against `pages_to_scan`; 0 where the kernel has no
    /// event for it.
    pub progress: u64,
    /// Status -> attempts at a collapse, of any size.
    pub attempts: BTreeMap<String, u64>,
}

impl Scan {
    /// Ranges with this result.
    pub fn ranges(&self, status: &str) -> u64 {
        self.ranges.get(status).copied().unwrap_or_default()
    }

    /// All of them.
    pub fn all_ranges(&self) -> u64 {
        self.ranges.values().sum()
    }

    /// Attempts with this result.
    pub fn attempts(&self, status: &str) -> u64 {
        self.attempts.get(status).copied().unwrap_or_default()
    }
}

/// A recording of khugepaged's events, from `start` on.
pub struct Trace;

impl Trace {
    /// Starts with an empty buffer.
    pub fn start() -> Self {
        write(format!("{TRACING}/trace"), "");
        write(format!("{TRACING}/buffer_size_kb"), "4096");
        for event in [
            "mm_khugepaged_scan_pmd",
            "mm_collapse_huge_page",
            "mm_khugepaged_scan",
        ] {
            let enable = Path::new(EVENTS).join(event).join("enable");
            if enable.exists() {
                write(enable, "1");
            }
        }
        Trace
    }

    /// What came so far, an entry for each mm in the order of its first scan.
    pub fn scans(&self) -> Vec<Scan> {
        let text = read(format!("{TRACING}/trace"));
        let mut scans: Vec<Scan> = Vec::new();
        for line in text.lines().filter(|line| line.contains(" mm=")) {
            let (head, rest) = line.split_once(": mm=").unwrap();
            let event = head.rsplit(' ').next().unwrap();
            let mm = rest.split(',').next().unwrap();
            let field = |key: &str| {
                let value = rest.split(", ").find_map(|part| part.strip_prefix(key));
                value.map(str::to_owned)
            };
            // An mm without anything to collapse is scanned, too.
            let known = scans.iter().position(|scan| scan.mm == mm);
            let at = known.unwrap_or_else(|| {
                scans.push(Scan {
                    mm: mm.to_owned(),
                    ..Scan::default()
                });
                scans.len() - 1
            });
            let scan = &mut scans[at];
            match event {
                "mm_khugepaged_scan_pmd" => {
                    *scan.ranges.entry(field("status=").unwrap()).or_default() += 1;
                }
                "mm_collapse_huge_page" => {
                    *scan.attempts.entry(field("status=").unwrap()).or_default() += 1;
                }
                _ => scan.progress += field("progress=").unwrap().parse::<u64>().unwrap(),
            }
        }
        scans
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = fs::write(format!("{EVENTS}/enable"), "0");
        let _ = fs::write(format!("{TRACING}/trace"), "");
    }
}
