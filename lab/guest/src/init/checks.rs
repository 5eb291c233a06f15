// SPDX-License-Identifier: GPL-2.0-only
//! What a kernel for debugging is asked when the job is over. Its answers go to the kernel log, where the host looks
//! for complaints anyway.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::thread::sleep;
use std::time::Duration;

use super::job::Job;

const LOCKDEP: &str = "/proc/lockdep_stats";
const LOCKS: &str = "/proc/lockdep";
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
    if let Some(wanted) = job.environment().get("LAB_LOCKS") {
        match fs::read_to_string(LOCKS) {
            Ok(text) => {
                let after = locks_after(&text);
                for chain in wanted.split("; ") {
                    match missing(&after, chain) {
                        None => log(&format!("<6>lab-guest: lockdep saw {chain}")),
                        Some(link) => log(&format!(
                            "<4>WARNING: lab-guest: lockdep did not see {link} of {chain}"
                        )),
                    }
                }
            }
            Err(cause) => log(&format!("<4>WARNING: lab-guest: {LOCKS}: {cause}")),
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

/// Class of locks -> classes that were taken while one of it was held, with no other lock in between. Classes of one
/// name, which the kernel tells apart by "#2" or "/1", count as one.
fn locks_after(text: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    fn class(name: &str) -> &str {
        name.split(['#', '/']).next().unwrap_or(name).trim()
    }
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut held = "";
    for line in text.lines() {
        if let Some((_, name)) = line
            .strip_prefix(" -> [")
            .and_then(|rest| rest.split_once("] "))
        {
            found.entry(held).or_default().insert(class(name));
        } else if let Some((_, name)) = line.split_once(": ") {
            // "KEY FD: 1 BD: 1 +.+.: NAME": numbers follow the colons before the last one.
            held = class(name.rsplit(": ").next().unwrap_or(name));
        }
    }
    found
}

/// The first link of "a > b > c" that the kernel does not know, directly or over others; none if it knows all.
fn missing(after: &BTreeMap<&str, BTreeSet<&str>>, chain: &str) -> Option<String> {
    let names: Vec<&str> = chain.split(" > ").collect();
    names
        .windows(2)
        .find(|pair| !reaches(after, pair[0], pair[1]))
        .map(|pair| pair.join(" > "))
}

fn reaches(after: &BTreeMap<&str, BTreeSet<&str>>, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut left = vec![from];
    while let Some(one) = left.pop() {
        for &next in after.get(one).into_iter().flatten() {
            if next == to {
                return true;
            }
            if seen.insert(next) {
                left.push(next);
            }
        }
    }
    false
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

    const CLASSES: &str = "all lock classes:
00000000a1 OPS:     120 FD:   34 BD:    2 +.+.: &st_ops->links_mutex
 -> [00000000b1] (work_completion)(&(&x)->work)
 -> [00000000b2] middle/1

00000000b2 FD:    9 BD:    3 ++++: middle#3
 -> [00000000c1] cpu_hotplug_lock

00000000c1 FD:    8 BD:    4 ++++: cpu_hotplug_lock
 -> [00000000d1] jump_label_mutex
 -> [00000000c1] cpu_hotplug_lock

00000000d1 FD:    1 BD:    5 +.+.: jump_label_mutex

";

    #[test]
    fn locks_are_found_over_others() {
        let after = locks_after(CLASSES);
        let chain = "&st_ops->links_mutex > cpu_hotplug_lock > jump_label_mutex";
        assert_eq!(missing(&after, chain), None);
        assert_eq!(
            missing(&after, "cpu_hotplug_lock > middle").as_deref(),
            Some("cpu_hotplug_lock > middle")
        );
        assert_eq!(
            missing(&after, "middle > jump_label_mutex > nothing").as_deref(),
            Some("jump_label_mutex > nothing")
        );
        assert!(missing(&locks_after(""), "a > b").is_some());
    }
}
