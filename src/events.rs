// SPDX-License-Identifier: GPL-2.0-only
//! What `run` prints: one line per event, as text or as JSON.

use std::io::{self, Write};

use serde::Serialize;

use crate::abi::{self, ByReason, Stall, Tunables};
use crate::cgroup::Limit;
use crate::decide;
use crate::orders::Sizes;
use crate::reasons::Numbers;

/// A line of the log of `run`.  Times are CLOCK_MONOTONIC milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
#[allow(missing_docs, reason = "docs/use.md describes the fields")]
pub enum Line {
    Attached {
        t_ms: u64,
        policy: &'static str,
        root: String,
        cgroup_id: u64,
        link_id: u32,
        /// What loading the programs took, most of it the verifier's.
        load_ms: u64,
        /// transparent_hugepage/enabled, which the policy narrows.
        thp: Option<String>,
        #[serde(skip)]
        setting: String,
    },
    Decision(Box<Decision>),
    Detached {
        t_ms: u64,
        policy: &'static str,
        root: String,
        why: End,
        /// Name of the signal, if one ended it.
        signal: Option<&'static str>,
        /// transparent_hugepage/enabled, which applies again.
        thp: Option<String>,
    },
}

/// Why `run` ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// SIGINT, SIGTERM or SIGHUP.
    Signal,
    /// The cgroup was removed.
    RootRemoved,
    /// Its message is on standard error.
    Error,
}

/// A cgroup may use other orders than before.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    t_ms: u64,
    cgroup: String,
    from: String,
    to: String,
    /// The first of `rules`, or `none` when no rule narrows any more.
    why: &'static str,
    /// All rules that narrow `to`.
    rules: Vec<&'static str>,
    /// Each of them in words, with its numbers.
    reasons: Vec<String>,
    /// Allowed orders: bit n is order n.
    orders: ByReason<u64>,
    stall_ms: u64,
    elapsed_ms: u64,
    /// Calm windows that the pressure verdict needs to fall.
    hold_windows: u32,
    memory_bytes: Option<u64>,
    headroom_bytes: Option<u64>,
    /// The limit that `headroom_bytes` is measured to, as of the time of printing.
    limit: Option<Limit>,
    /// What the host could still give out; null while large folios have their share.
    host_bytes: Option<u64>,
    /// Changes that the rate limit suppressed since the last line of this cgroup.
    suppressed: u64,
}

impl Line {
    /// From what the kernel reported; `limit` is the nearest one of the cgroup now.
    pub fn decision(
        event: &abi::Event,
        cgroup: String,
        limit: Option<Limit>,
        tunables: &Tunables,
        sizes: &Sizes,
    ) -> Self {
        let memory_bytes = (event.memory_known != 0).then_some(event.memory_bytes);
        let headroom_bytes =
            (event.headroom_bytes != abi::NO_LIMIT).then_some(event.headroom_bytes);
        let host_bytes = (event.host_bytes != abi::NO_LIMIT).then_some(event.host_bytes);
        let numbers = Numbers {
            tunables,
            stall: Stall {
                stall_ns: event.stall_ns,
                elapsed_ns: event.elapsed_ns,
                hold: event.hold,
                ..Stall::default()
            },
            memory_bytes,
            headroom_bytes,
            host_bytes,
            limit: limit.as_ref(),
        };
        Line::Decision(Box::new(Decision {
            t_ms: event.t_ns / 1_000_000,
            cgroup,
            from: sizes.decision_name(&event.from),
            to: sizes.decision_name(&event.to),
            why: decide::why(event.rules),
            rules: decide::rule_names(event.rules),
            reasons: numbers.reasons(event.rules),
            orders: sizes.real(&event.to),
            stall_ms: event.stall_ns / 1_000_000,
            elapsed_ms: event.elapsed_ns / 1_000_000,
            hold_windows: event.hold,
            memory_bytes,
            headroom_bytes,
            limit,
            host_bytes,
            suppressed: event.suppressed,
        }))
    }

    fn text(&self) -> String {
        match self {
            Line::Attached {
                policy,
                root,
                cgroup_id,
                link_id,
                setting,
                ..
            } => format!(
                "policy {policy} attached to {root} (cgroup {cgroup_id}, link {link_id}); {setting}"
            ),
            Line::Detached {
                policy,
                root,
                why,
                signal,
                thp,
                ..
            } => {
                let cause = match why {
                    End::Signal => signal.unwrap_or("signal"),
                    End::RootRemoved => "the cgroup was removed",
                    End::Error => "error",
                };
                let setting = thp.as_ref().map_or_else(String::new, |word| {
                    format!("; transparent_hugepage/enabled applies again: {word}")
                });
                format!("policy {policy} detached from {root} ({cause}){setting}")
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
            Line::Attached { t_ms, .. } | Line::Detached { t_ms, .. } => *t_ms,
            Line::Decision(decision) => decision.t_ms,
        }
    }
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
            let t = line.t_ms();
            writeln!(
                self.out,
                "[{:>5}.{:03}] {}",
                t / 1000,
                t % 1000,
                line.text()
            )?;
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Reason;

    const X86: Sizes = Sizes {
        orders: 0x3fc,
        page_shift: 12,
    };

    fn event() -> abi::Event {
        abi::Event {
            t_ns: 12_345_678_901,
            cgroup_id: 5,
            from: ByReason::each(!1),
            to: ByReason::new(|reason| match reason {
                Reason::Collapse => !1,
                _ => 0,
            }),
            stall_ns: 230_000_000,
            elapsed_ns: 1_000_000_000,
            memory_bytes: 96 << 20,
            headroom_bytes: 1 << 20,
            host_bytes: abi::NO_LIMIT,
            suppressed: 3,
            rules: 0b1001,
            memory_known: 1,
            hold: 4,
            pad: 0,
        }
    }

    fn decision(event: &abi::Event, cgroup: &str) -> Line {
        let limit = Limit {
            cgroup: "/redis".to_owned(),
            file: "memory.max",
            bytes: 64 << 20,
            used_bytes: 63 << 20,
            left_bytes: 1 << 20,
        };
        let limit = (event.headroom_bytes != abi::NO_LIMIT).then_some(limit);
        Line::decision(event, cgroup.to_owned(), limit, decide::defaults(), &X86)
    }

    fn detached(why: End, signal: Option<&'static str>, thp: Option<&str>) -> Line {
        Line::Detached {
            t_ms: 1,
            policy: "adaptive",
            root: "/redis".to_owned(),
            why,
            signal,
            thp: thp.map(str::to_owned),
        }
    }

    fn printed(line: &Line, json: bool) -> String {
        let mut out = Vec::new();
        Log::new(&mut out, json).print(line).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_decision_says_what_and_why() {
        let line = decision(&event(), "/redis");
        assert_eq!(
            printed(&line, false),
            "[   12.345] /redis: all -> 4K (pressure: 230ms of full stall in 1s \
             (threshold 100ms in 1s), ends after 4 calm windows; \
             headroom: 1M left below memory.max 64M of /redis (63M in use), \
             a folio may take 1/1024)\n"
        );
    }

    #[test]
    fn a_decision_as_json() {
        let line = decision(&event(), "/redis");
        let value: serde_json::Value = serde_json::from_str(&printed(&line, true)).unwrap();
        assert_eq!(value["event"], "decision");
        assert_eq!(value["t_ms"], 12_345);
        assert_eq!(value["cgroup"], "/redis");
        assert_eq!(
            (&value["from"], &value["to"]),
            (&"all".into(), &"4K".into())
        );
        assert_eq!(value["why"], "pressure");
        assert_eq!(value["rules"], serde_json::json!(["pressure", "headroom"]));
        assert_eq!(value["orders"]["fault"], 0);
        assert_eq!(value["orders"]["collapse"], 0x3fc);
        assert_eq!(value["memory_bytes"], 96 << 20);
        assert_eq!(value["suppressed"], 3);
        assert_eq!(value["hold_windows"], 4);
        let limit = serde_json::json!({
            "cgroup": "/redis", "file": "memory.max", "bytes": 64 << 20, "used_bytes": 63 << 20,
        });
        assert_eq!(value["limit"], limit);
    }

    #[test]
    fn what_is_unknown_is_null() {
        let event = abi::Event {
            headroom_bytes: abi::NO_LIMIT,
            memory_known: 0,
            to: ByReason::each(!1),
            rules: 0,
            ..event()
        };
        let line = decision(&event, "/");
        let value: serde_json::Value = serde_json::from_str(&printed(&line, true)).unwrap();
        assert_eq!(value["headroom_bytes"], serde_json::Value::Null);
        assert_eq!(value["memory_bytes"], serde_json::Value::Null);
        assert_eq!(value["why"], "none");
        assert_eq!(value["limit"], serde_json::Value::Null);
        assert!(printed(&line, false).ends_with("/: all -> all (no rule narrows)\n"));
    }

    #[test]
    fn the_first_and_the_last_line_name_the_setting() {
        let attached = Line::Attached {
            t_ms: 1,
            policy: "adaptive",
            root: "/redis".to_owned(),
            cgroup_id: 5,
            link_id: 3,
            load_ms: 200,
            thp: Some("always".to_owned()),
            setting: "transparent_hugepage/enabled is always".to_owned(),
        };
        assert_eq!(
            printed(&attached, false),
            "[    0.001] policy adaptive attached to /redis (cgroup 5, link 3); \
             transparent_hugepage/enabled is always\n"
        );
        assert_eq!(
            printed(
                &detached(End::Signal, Some("SIGINT"), Some("always")),
                false
            ),
            "[    0.001] policy adaptive detached from /redis (SIGINT); \
             transparent_hugepage/enabled applies again: always\n"
        );
        let removed = printed(&detached(End::RootRemoved, None, None), false);
        assert!(removed.ends_with("from /redis (the cgroup was removed)\n"));
        let json = printed(&detached(End::RootRemoved, None, None), true);
        assert!(json.contains("\"why\":\"root-removed\""), "{json}");
    }

    #[test]
    fn every_line_is_one_line() {
        for line in [
            detached(End::Error, None, Some("never")),
            decision(&event(), "/a b"),
        ] {
            for json in [false, true] {
                assert_eq!(printed(&line, json).matches('\n').count(), 1);
            }
        }
    }
}
