// SPDX-License-Identifier: GPL-2.0-only
//! What a kernel for debugging is asked when the job is over. Its answers go to the kernel log, where the host looks
//! for complaints anyway.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::thread::sleep;
use std::time::Duration;

use super::job::Job;

const LOCKDEP: &str = "/proc/lockdep_stats";
const KMEMLEAK: &str = "/sys/kernel/debug/kmemleak";

/// kmemleak does not tell of objects younger than five seconds.
const AGE: Duration = Duration::from_secs(6);

/// Lines of a report of leaks that are passed on: each leak has about twenty.
const REPORT_LINES: usize = 200;

/// Asks whatever checkers there are; a kernel without them says nothing. Looking for leaks takes many seconds under
/// emulation, so a job asks for it with LAB_LEAKS=1.
pub fn ask(job: &Job) {
    if let Ok(stats) = fs::read_to_string(LOCKDEP) {
        // It can switch itself off: it has run out of classes, or there was a first splat.
        if lockdep_is_on(&stats) {
            log("<6>lab-guest: lockdep is on");
        } else {
            log("<4>WARNING: lab-guest: lockdep is off, and saw nothing from then on");
        }
    }
    if job.environment().contains_key("LAB_LEAKS") {
        match leaks() {
            Ok(report) if report.is_empty() => log("<6>lab-guest: no leaks"),
            Ok(report) => {
                log("<4>WARNING: lab-guest: kmemleak reports leaks");
                for line in report.lines().take(REPORT_LINES) {
                    log(&format!("<4>lab-guest: {line}"));
                }
            }
            Err(cause) => log(&format!(
                "<4>WARNING: lab-guest: looking for leaks: {KMEMLEAK}: {cause}"
            )),
        }
    }
}

fn lockdep_is_on(stats: &str) -> bool {
    stats
        .lines()
        .filter_map(|line| line.trim().strip_prefix("debug_locks:"))
        .any(|value| value.trim() == "1")
}

/// kmemleak's report after two scans: it takes a second look before it calls something a leak.
fn leaks() -> io::Result<String> {
    for _ in 0..2 {
        sleep(AGE);
        fs::write(KMEMLEAK, "scan")?;
    }
    fs::read_to_string(KMEMLEAK)
}

fn log(line: &str) {
    let written = OpenOptions::new()
        .write(true)
        .open("/dev/kmsg")
        .and_then(|mut kmsg| kmsg.write_all(line.as_bytes()));
    if let Err(cause) = written {
        eprintln!("lab-guest init: /dev/kmsg: {cause}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lockdep_is_on_only_if_it_says_so() {
        assert!(lockdep_is_on(
            " lock-classes: 1 [max: 8192]\n debug_locks:    1\n"
        ));
        assert!(!lockdep_is_on(
            " debug_locks:                             0\n"
        ));
        assert!(!lockdep_is_on(" lock-classes: 1\n"));
    }
}
