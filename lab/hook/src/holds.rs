// SPDX-License-Identifier: GPL-2.0-only
//! How long `cgroup_mutex` is held while `mthp_ext` scans many cgroups.
//!
//! Probes at the mutex functions note each time it is taken and left. They cost instructions themselves, at every
//! mutex, so that what they show is more than what is held without them.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::ext::Ext;
use crate::groups;
use crate::plan::Plan;
use crate::samples::Samples;
use crate::scale;
use lab_guest::failure::Failure;
use lab_guest::knobs::write;
use lab_guest::results::Results;

const TRACING: &str = "/sys/kernel/tracing";
/// So often somebody else makes and removes cgroups, and so many scans there are at least.
const ROUNDS: u32 = 4;

/// Fills the tree, starts mthp_ext, and watches the mutex over some scans.
///
/// # Errors
/// Whatever step failed.
pub fn run(plan: &Plan, results: &Results) -> Result<(), Failure> {
    let top = Path::new(groups::ROOT).join("many");
    groups::make(&top)?;
    let mut there = 0;
    for &wanted in &plan.cgroups {
        scale::fill(&top, &mut there, wanted)?;
        let ext = Ext::start(&plan.mthp_ext, &[], Path::new(groups::ROOT))?;
        let before = ext.used()?;
        let probes = Probes::start()?;
        for _ in 0..ROUNDS {
            scale::mkdirs(&top, || Ok(()))?;
            thread::sleep(Duration::from_secs(1));
        }
        let holds = holds(&probes.stop()?);
        let used = ext.used()? - before;
        let pid = ext.pid();
        ext.stop()?;
        let longest = holds.iter().max_by_key(|hold| hold.ns);
        let scanning = holds.iter().filter(|hold| hold.pid() == Some(pid));
        let of_scan = scanning.clone().map(|hold| hold.ns).max();
        let samples = Samples::new(holds.iter().map(|hold| hold.ns).collect());
        results.send(&json!({
            "type": "holds",
            "cgroups": there,
            "count": samples.count(),
            "p50": samples.percentile(50),
            "p99": samples.percentile(99),
            "max": samples.percentile(100),
            "longest": longest.map(|hold| &hold.task),
            "of_scan": scanning.count(),
            "max_of_scan": of_scan,
            "used": used,
            "scans": ROUNDS,
        }))?;
    }
    Ok(())
}

/// One time that the mutex was held.
#[derive(Debug, PartialEq, Eq)]
struct Hold {
    /// `NAME-PID`; the name is `<...>` where it is not known any more.
    task: String,
    ns: u64,
}

impl Hold {
    fn pid(&self) -> Option<u32> {
        self.task.rsplit_once('-')?.1.parse().ok()
    }
}

/// Probes that are at work.
struct Probes;

impl Probes {
    fn start() -> Result<Self, Failure> {
        let mutex = address("cgroup_mutex")?;
        write(
            format!("{TRACING}/kprobe_events"),
            "r256:holds/taken mutex_lock lock=$arg1:x64\np:holds/left mutex_unlock lock=$arg1:x64\n",
        )?;
        write(format!("{TRACING}/buffer_size_kb"), "8192")?;
        write(format!("{TRACING}/trace_clock"), "mono")?;
        for event in ["taken", "left"] {
            let directory = format!("{TRACING}/events/holds/{event}");
            write(
                format!("{directory}/filter"),
                &format!("lock == {mutex:#x}"),
            )?;
            write(format!("{directory}/enable"), "1")?;
        }
        Ok(Self)
    }

    /// What was traced.
    fn stop(self) -> Result<String, Failure> {
        write(format!("{TRACING}/events/holds/enable"), "0")?;
        let path = format!("{TRACING}/trace");
        let text =
            fs::read_to_string(&path).map_err(|e| Failure::new(format!("read {path}"), e))?;
        write(path, "")?;
        write(format!("{TRACING}/kprobe_events"), "")?;
        Ok(text)
    }
}

/// Address of a symbol of the kernel.
fn address(symbol: &str) -> Result<u64, Failure> {
    let path = "/proc/kallsyms";
    let text = fs::read_to_string(path).map_err(|e| Failure::new(format!("read {path}"), e))?;
    text.lines()
        .find_map(|line| {
            let (address, rest) = line.split_once(' ')?;
            let name = rest.split_whitespace().nth(1)?;
            (name == symbol).then(|| u64::from_str_radix(address, 16).ok())?
        })
        .filter(|&address| address != 0)
        .ok_or_else(|| Failure::other(format!("find {symbol}"), "the kernel does not list it"))
}

/// Pairs each `taken` with the task's next `left`. A line of the trace is
/// `TASK-PID [CPU] FLAGS SECONDS.MICROSECONDS: EVENT: ...`.
fn holds(trace: &str) -> Vec<Hold> {
    let mut taken: HashMap<String, u64> = HashMap::new();
    let mut found = Vec::new();
    for line in trace.lines().filter(|line| !line.starts_with('#')) {
        let Some((head, rest)) = line.split_once(" [") else {
            continue;
        };
        let task = head.trim().to_owned();
        let mut words = rest.split_whitespace().skip(2);
        let (Some(time), Some(event)) = (words.next(), words.next()) else {
            continue;
        };
        let Some(at) = nanoseconds(time.trim_end_matches(':')) else {
            continue;
        };
        if event == "taken:" {
            taken.insert(task, at);
        } else if let Some(since) = taken.remove(&task) {
            found.push(Hold {
                task,
                ns: at.saturating_sub(since),
            });
        }
    }
    found
}

/// `12.345678` in nanoseconds.
fn nanoseconds(time: &str) -> Option<u64> {
    let (seconds, micros) = time.split_once('.')?;
    let seconds: u64 = seconds.parse().ok()?;
    let micros: u64 = micros.parse().ok()?;
    Some(seconds * 1_000_000_000 + micros * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_are_pairs_of_one_task() {
        let trace = "\
# tracer: nop
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
        lab-hook-71      [001] ..... 12.000100: taken: (cgroup_kn_lock_live+0x3a/0x70 <- mutex_lock) lock=0xffffffff82a3
        mthp_ext-80      [000] ..... 12.000150: left: (mutex_unlock+0x4/0x20) lock=0xffffffff82a3
        lab-hook-71      [001] ..... 12.000350: left: (mutex_unlock+0x4/0x20) lock=0xffffffff82a3
  kworker/3:1-45      [003] ..... 12.999999: taken: (x <- mutex_lock) lock=0xffffffff82a3
  kworker/3:1-45      [002] ..... 13.000001: left: (mutex_unlock+0x4/0x20) lock=0xffffffff82a3
        lab-hook-71      [001] ..... 14.000000: taken: (x <- mutex_lock) lock=0xffffffff82a3
";
        let hold = |task: &str, ns| Hold {
            task: task.to_owned(),
            ns,
        };
        assert_eq!(
            holds(trace),
            [hold("lab-hook-71", 250_000), hold("kworker/3:1-45", 2_000)]
        );
    }

    #[test]
    fn a_task_is_known_by_its_pid() {
        let pid = |task: &str| {
            Hold {
                task: task.to_owned(),
                ns: 1,
            }
            .pid()
        };
        assert_eq!(pid("mthp_ext-80"), Some(80));
        assert_eq!(pid("<...>-80"), Some(80));
        assert_eq!(pid("a-b c-81"), Some(81));
        assert_eq!(pid("kworker"), None);
    }

    #[test]
    fn lines_of_another_form_are_left_out() {
        assert!(holds("\n[LOST 3 EVENTS]\nCPU:1 [LOST 3 EVENTS]\nx [001] ..\n").is_empty());
    }
}
