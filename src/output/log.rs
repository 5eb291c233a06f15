// SPDX-License-Identifier: GPL-2.0-only
//! What `run` prints: one line per event, as text or as JSON.

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, Local, Utc};
use schemars::JsonSchema;
use serde::Serialize;

use super::why::{self, Level};
use crate::kernel::clock::now_ms;
use crate::kernel::lacks::Missed;
use crate::model::abi::{Event, NO_LIMIT, Tunables};
use crate::model::ending::{Ending, ON_EXIT};
use crate::model::orders::Sizes;
use crate::model::reason::ByReason;
use crate::model::rule::Rule;
use crate::model::shown::shown;

/// A line of the log of `run`.  Times are CLOCK_MONOTONIC milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "lowercase")]
#[allow(missing_docs, reason = "docs/use.md describes the fields")]
pub enum Line {
    Attached {
        t_ms: u64,
        #[serde(flatten)]
        what: Source,
        root: String,
        cgroup_id: u64,
        link_id: u32,
        /// What loading the programs took, most of it the verifier's.
        load_ms: u64,
        #[serde(flatten)]
        ending: Ending,
        /// transparent_hugepage/enabled, which the policy narrows.
        thp: Option<String>,
        #[serde(skip)]
        setting: String,
    },
    Decision(Box<Decision>),
    Kept {
        t_ms: u64,
        #[serde(flatten)]
        what: Source,
        root: String,
        /// Name of the signal that ended it.
        signal: &'static str,
        /// The service manager has it, not a pin.
        handed: bool,
    },
    /// A configuration was read: it is in force, or the former one stays.
    Configured {
        t_ms: u64,
        in_force: bool,
        text: String,
    },
    /// A cgroup has another override of its own, or none any more.
    Override {
        t_ms: u64,
        cgroup: String,
        in_force: bool,
        text: String,
    },
    /// Nobody is served at an address of `--metrics` yet.
    Unserved {
        t_ms: u64,
        address: String,
        text: String,
    },
    /// The carrier of the hook lacks something that the policies in force have rules for.  Empty:
    /// no more.
    Partial {
        t_ms: u64,
        carrier: String,
        missed: Vec<Missed>,
    },
    /// The policy does not outlive the daemon, as it was to.
    Unheld {
        t_ms: u64,
        text: String,
    },
    /// Somebody has changed a setting that the policy depends on.
    Setting {
        t_ms: u64,
        file: String,
        from: String,
        to: String,
        /// No size is on: there is nothing to narrow.
        off: bool,
    },
    Detached {
        t_ms: u64,
        #[serde(flatten)]
        what: Source,
        root: String,
        why: End,
        /// Name of the signal, if one ended it.
        signal: Option<&'static str>,
        /// transparent_hugepage/enabled, which applies again.
        thp: Option<String>,
    },
}

/// What was attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Source {
    /// Name of the policy; `None`: the object takes no values, and so obeys none.
    pub policy: Option<String>,
    /// The policy's file; `None`: built in.
    pub file: Option<PathBuf>,
    /// The object's file; `None`: built in.
    pub object: Option<PathBuf>,
    /// Nothing is narrowed.
    pub dry_run: bool,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = self.object.as_ref().map(|file| file.display());
        match (&self.policy, &self.file) {
            (Some(policy), Some(file)) => write!(f, "policy {policy} ({})", file.display())?,
            (Some(policy), None) => write!(f, "policy {policy}")?,
            (None, _) => {}
        }
        match (&self.policy, object) {
            (Some(_), Some(object)) => write!(f, " by object {object}")?,
            (None, Some(object)) => write!(f, "object {object}")?,
            (_, None) => {}
        }
        f.write_str(if self.dry_run { " (dry run)" } else { "" })
    }
}

/// Why `run` ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// SIGINT, SIGTERM or SIGHUP.
    Signal,
    /// The cgroup was removed.
    RootRemoved,
    /// Somebody detached its link.
    LinkDetached,
    /// PSI was switched off, which the policy needs.
    PsiOff,
    /// Another error, whose message is on standard error.
    Error,
}

/// A cgroup may use other orders than before.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Decision {
    t_ms: u64,
    cgroup: String,
    from: String,
    to: String,
    /// The first of `rules`, or `none` when no rule narrows any more.
    why: &'static str,
    /// The rules that decide, one for each reason at most.
    rules: Vec<Rule>,
    /// Each of them in words, with its numbers.
    reasons: Vec<String>,
    /// Allowed orders: bit n is order n.
    orders: ByReason<u64>,
    stall_ms: u64,
    elapsed_ms: u64,
    /// Next to nothing comes back of what reclaim takes, and the machine has room.
    unmissed: bool,
    memory_bytes: Option<u64>,
    /// What is left at `level`; null while large folios have their share everywhere.
    room_bytes: Option<u64>,
    /// The level that leaves the least: a cgroup's limit, or the machine.
    level: Option<Level>,
    /// Changes that the rate limit suppressed since the last line of this cgroup.
    suppressed: u64,
}

impl Line {
    /// From what the kernel reported.
    pub fn decision(
        event: &Event,
        cgroup: String,
        level: Option<Level>,
        tunables: &Tunables,
        sizes: &Sizes,
    ) -> Self {
        let now = &event.now;
        let orders = why::orders(now);
        let rules = why::rules(now);
        Line::Decision(Box::new(Decision {
            t_ms: event.t_ns / 1_000_000,
            cgroup,
            from: sizes.decision_name(&ByReason(event.from)),
            to: sizes.decision_name(&orders),
            why: why::first(&rules),
            rules,
            reasons: why::reasons(now, level.as_ref(), tunables),
            orders: sizes.real(&orders),
            stall_ms: now.stall_ns / 1_000_000,
            elapsed_ms: now.elapsed_ns / 1_000_000,
            unmissed: now.unmissed != 0,
            memory_bytes: (now.memory_known != 0).then_some(now.memory_bytes),
            room_bytes: (now.room_bytes != NO_LIMIT).then_some(now.room_bytes),
            level,
            suppressed: event.suppressed,
        }))
    }

    fn text(&self) -> String {
        match self {
            Line::Attached {
                what,
                root,
                cgroup_id,
                link_id,
                ending,
                setting,
                ..
            } => {
                let end = match ending.said {
                    true => format!("; {ON_EXIT} is {ending}"),
                    false => String::new(),
                };
                format!(
                    "{what} attached to {root} (cgroup {cgroup_id}, link {link_id}); {setting}{end}"
                )
            }
            Line::Kept {
                what,
                root,
                signal,
                handed: true,
                ..
            } => format!(
                "{what} of {root} is with the service manager ({signal}): a restart goes on with it, a stop \
                 ends it"
            ),
            Line::Kept {
                what, root, signal, ..
            } => format!("{what} stays attached to {root} ({signal}); mthp_ext detach ends it"),
            Line::Detached {
                what,
                root,
                why,
                signal,
                thp,
                ..
            } => {
                let cause = match why {
                    End::Signal => signal.unwrap_or("signal"),
                    End::RootRemoved => "the cgroup was removed",
                    End::LinkDetached => "somebody detached its link",
                    End::PsiOff => "PSI was switched off",
                    End::Error => "error",
                };
                let setting = thp.as_ref().map_or_else(String::new, |word| {
                    format!("; transparent_hugepage/enabled applies again: {word}")
                });
                format!("{what} detached from {root} ({cause}){setting}")
            }
            Line::Configured { text, .. }
            | Line::Override { text, .. }
            | Line::Unserved { text, .. }
            | Line::Unheld { text, .. } => text.clone(),
            Line::Partial {
                carrier, missed, ..
            } if missed.is_empty() => {
                format!("all of the policy is in force on this carrier ({carrier})")
            }
            Line::Partial {
                carrier, missed, ..
            } => {
                let missed: Vec<String> = missed.iter().map(Missed::to_string).collect();
                format!(
                    "not all of the policy is in force on this carrier ({carrier}): {}",
                    missed.join("; ")
                )
            }
            Line::Setting {
                file,
                from,
                to,
                off,
                ..
            } => {
                let note = if *off { ": nothing to narrow" } else { "" };
                format!("{file} was changed from {from} to {to}{note}")
            }
            Line::Decision(d) => {
                let why = match d.reasons.as_slice() {
                    [] => "no rule narrows".to_owned(),
                    reasons => reasons.join("; "),
                };
                format!("{}: {} -> {} ({why})", d.cgroup, d.from, d.to)
            }
        }
    }

    /// When it happened.
    fn t_ms(&self) -> u64 {
        match self {
            Line::Attached { t_ms, .. }
            | Line::Configured { t_ms, .. }
            | Line::Override { t_ms, .. }
            | Line::Unserved { t_ms, .. }
            | Line::Unheld { t_ms, .. }
            | Line::Partial { t_ms, .. }
            | Line::Setting { t_ms, .. }
            | Line::Kept { t_ms, .. }
            | Line::Detached { t_ms, .. } => *t_ms,
            Line::Decision(decision) => decision.t_ms,
        }
    }
}

/// The version of what [`record`] makes: another one when names or meanings change.
pub const VERSION: u64 = 1;

/// What [`record`] makes, for its schema.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "only its form is used")]
pub struct Recorded {
    /// 1: what these keys mean.
    version: u64,
    /// Of the daemon's lines: a gap is what was lost.
    number: u64,
    /// Time of day.
    unix_ms: u64,
    /// Cgroup of the daemon's policy.
    root: String,
    /// The line in words.
    text: String,
    #[serde(flatten)]
    line: Line,
}

/// A line as `events` reads it: that of `run --json`, with the same in words, a number that grows
/// by one, and the time of day.
pub fn record(line: &Line, root: &str, number: u64) -> String {
    // The clock of events is another one: how long ago it was is the same by both.
    let ago = Duration::from_millis(now_ms().saturating_sub(line.t_ms()));
    let time = SystemTime::now().checked_sub(ago);
    let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let unix_ms = since.map_or(0, |since| since.as_millis());
    let of_all = serde_json::json!({
        "version": VERSION,
        "number": number,
        "unix_ms": u64::try_from(unix_ms).unwrap_or_default(),
        "root": root,
        "text": shown(line.text().as_bytes()),
    });
    // Keys of text, and values that are finite: it cannot fail.
    let mut record = serde_json::to_value(line).unwrap_or_default();
    if let (Some(record), serde_json::Value::Object(of_all)) = (record.as_object_mut(), of_all) {
        record.extend(of_all);
    }
    format!("{record}\n")
}

/// A line in words, as it is printed.
pub fn stamped(t_ms: u64, text: &str) -> String {
    let (seconds, ms) = (t_ms / 1000, t_ms % 1000);
    format!("[{seconds:>5}.{ms:03}] {}", shown(text.as_bytes()))
}

/// The same with the time of day, in the zone of who reads it: a decision stands beside what others
/// have logged then.
pub fn dated(at: DateTime<Utc>, text: &str) -> String {
    let at = at.with_timezone(&Local).format("%F %T%.3f%:z");
    format!("{at} {}", shown(text.as_bytes()))
}

/// Prints lines as they come, each flushed.
pub struct Log<W> {
    out: W,
    json: bool,
}

impl<W: Write> Log<W> {
    /// Prints to `out`, as JSON lines or as text.
    pub fn new(out: W, json: bool) -> Self {
        Log { out, json }
    }

    /// Prints one line.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn print(&mut self, line: &Line) -> io::Result<()> {
        if self.json {
            serde_json::to_writer(&mut self.out, line)?;
            writeln!(self.out)?;
        } else {
            writeln!(self.out, "{}", stamped(line.t_ms(), &line.text()))?;
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests;
