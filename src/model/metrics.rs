// SPDX-License-Identifier: GPL-2.0-only
//! The metrics that `run --metrics` serves: one table, by which they are written and documented.

use super::abi::SIZES;
use super::reason::Reason;
use super::rule::Rule;

/// What its value does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Grows only, until what it counts is gone or begins anew.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Always 1; its labels are what it says.
    Info,
}

impl Kind {
    /// As the format calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Info => "info",
        }
    }

    /// What the name of a sample ends with.
    pub const fn suffix(self) -> &'static str {
        match self {
            Kind::Counter => "_total",
            Kind::Gauge => "",
            Kind::Info => "_info",
        }
    }
}

/// The unit of a value, which its name has in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "plain")]
pub enum Unit {
    Bytes,
    Seconds,
}

impl Unit {
    /// As the format calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Seconds => "seconds",
        }
    }
}

/// What each name begins with.
pub const PREFIX: &str = "mthp_ext";

/// Cgroups that are served at most: those that have asked the most.
pub const MOST_CGROUPS: usize = 1000;

/// Series of a cgroup at least: requests and the largest folio by reason, pressure, unmissed, and
/// both counters of one size.
pub const LEAST_SERIES: usize = 2 * Reason::ALL.len() + 2 + 2;

/// And at most: room, memory, for each reason each rule that has narrowed, and each size; 1 GiB at
/// page faults alone.
pub const MOST_SERIES: usize =
    LEAST_SERIES + Reason::ALL.len() * (Rule::ALL.len() + 2 * (SIZES - 1)) + 2;

/// One of them.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name, without prefix, unit and suffix.
    pub stem: &'static str,
    /// What its value does.
    pub kind: Kind,
    /// The unit of its value.
    pub unit: Option<Unit>,
    /// The labels of each sample.
    pub labels: &'static [&'static str],
    /// What it is.
    pub help: &'static str,
}

impl Metric {
    /// The name of its samples.
    pub fn name(&self) -> String {
        let unit = self
            .unit
            .map_or_else(String::new, |unit| format!("_{}", unit.name()));
        format!("{PREFIX}_{}{unit}{}", self.stem, self.kind.suffix())
    }
}

macro_rules! metrics {
    ($($constant:ident: $stem:literal, $kind:ident, $unit:expr, [$($label:literal),*], $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $constant: &Metric = &Metric {
                stem: $stem,
                kind: Kind::$kind,
                unit: $unit,
                labels: &[$($label),*],
                help: $help,
            };
        )*

        /// All, in the order in which they are written.
        pub const METRICS: &[&Metric] = &[$($constant),*];
    };
}

metrics! {
    BUILD: "build", Info, None, ["version", "abi"],
        "The version of the program, and of the interface to its BPF programs";
    POLICY: "policy", Info, None, ["policy", "root"],
        "The policy that is in force, and the cgroup that it is attached to";
    DRY_RUN: "dry_run", Gauge, None, [],
        "1: the policy runs dry and narrows nothing: what is narrowed and allowed is what would be";
    CONFIG_SUCCESSFUL: "config_last_reload_successful", Gauge, None, [],
        "0: the configuration that was read last was refused, and the one before it is in force";
    CONFIG_LEFT_OUT: "config_left_out", Gauge, None, [],
        "Overrides and other parts of the configuration that are left out, as each has a mistake";
    CGROUPS: "cgroups", Gauge, None, [],
        "Cgroups that have asked at least once, each of which has the metrics with that label";
    CGROUPS_LEFT_OUT: "cgroups_left_out", Gauge, None, [],
        "Cgroups that have asked and are not served, as others have asked more";
    CGROUPS_UNREAD: "cgroups_unread", Gauge, None, [],
        "Cgroups that could not be read or listed: on this page they, and those below them, are missing";
    REQUESTS: "requests", Counter, None, ["cgroup", "reason"],
        "Requests for a folio that the policy decided";
    OF_SIZE: "size_requests", Counter, None, ["cgroup", "reason", "size"],
        "The same by the largest size that was possible; absent where there was none";
    DENIED: "size_denied", Counter, None, ["cgroup", "reason", "size"],
        "Those of them to which the policy did not allow that size; in a dry run: would not have";
    NARROWED: "narrowed", Counter, None, ["cgroup", "reason", "rule"],
        "Requests from which a rule took a size away";
    ALLOWED: "allowed_largest", Gauge, Some(Unit::Bytes), ["cgroup", "reason"],
        "The largest folio that a request gets now; the size of a base page: no large ones";
    PRESSURE: "pressure", Gauge, None, ["cgroup"],
        "1: the rule pressure counts the cgroup as stalled";
    UNMISSED: "unmissed", Gauge, None, ["cgroup"],
        "1: neither stall nor a limit narrows faults, but of advised memory: next to nothing comes back of what reclaim takes";
    ROOM: "room", Gauge, Some(Unit::Bytes), ["cgroup"],
        "What is left at the level that leaves the least, a limit or the machine; absent where none counts";
    MEMORY: "memory", Gauge, Some(Unit::Bytes), ["cgroup"],
        "anon+shmem, as the rule small sees it; absent where no rule looks at it";
    SCANS: "scans", Counter, None, [],
        "Scans of the cgroups for pressure and size";
    SCAN_TIME: "scan", Counter, Some(Unit::Seconds), [],
        "Time that the scans took";
    REPORTED: "decisions_reported", Counter, None, [],
        "Changed decisions that were printed";
    SUPPRESSED: "decisions_suppressed", Counter, None, [],
        "Requests whose changed decision was not reported at once: more than one in 100 ms, or the ring buffer was full";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_legal() {
        let names: Vec<String> = METRICS.iter().map(|metric| metric.name()).collect();
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name), "{name}");
            let legal = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(name.chars().all(legal), "{name}");
        }
        assert_eq!(REQUESTS.name(), "mthp_ext_requests_total");
        assert_eq!(SCAN_TIME.name(), "mthp_ext_scan_seconds_total");
    }

    #[test]
    fn help_is_one_plain_line() {
        for metric in METRICS {
            assert!(
                !metric.help.contains(['\n', '\\', '"', '|']),
                "{}",
                metric.help
            );
            assert!(!metric.help.ends_with('.'), "{}", metric.help);
        }
    }

    /// An alert on a metric that is called otherwise by now would be silent for ever.
    #[test]
    fn alerts_and_pages_name_metrics_that_there_are() {
        let names: Vec<String> = METRICS.iter().map(|metric| metric.name()).collect();
        for (text, least) in [
            (
                include_str!("../../packaging/prometheus/mthp_ext.rules.yml"),
                3,
            ),
            (
                include_str!("../../packaging/prometheus/mthp_ext.tests.yml"),
                3,
            ),
            (include_str!("../../docs/operations.md"), 4),
        ] {
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let prefix = format!("{PREFIX}_");
            let named: Vec<&str> = words.filter(|word| word.starts_with(&prefix)).collect();
            assert!(named.len() >= least, "{named:?}");
            for name in named {
                assert!(names.iter().any(|known| known == name), "{name}");
            }
        }
    }
}
