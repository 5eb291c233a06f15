// SPDX-License-Identifier: GPL-2.0-only
//! What `run` prints: one line per event, as text or as JSON.

use std::io::{self, Write};

use serde::Serialize;

use crate::abi::{self, NR_REASONS};
use crate::decide;
use crate::orders::Sizes;
use crate::units::{show_duration, show_size};

/// Allowed orders per reason, as masks: bit n is order n.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names of the reasons")]
pub struct Orders {
    pub fault: u64,
    pub swapin: u64,
    pub khugepaged: u64,
    pub collapse: u64,
}

impl From<[u64; NR_REASONS]> for Orders {
    fn from([fault, swapin, khugepaged, collapse]: [u64; NR_REASONS]) -> Self {
        Orders {
            fault,
            swapin,
            khugepaged,
            collapse,
        }
    }
}

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
    },
    Decision {
        t_ms: u64,
        cgroup: String,
        from: String,
        to: String,
        /// The first of `rules`, or `none` when nothing narrows any more.
        why: &'static str,
        /// All rules that narrow `to`.
        rules: Vec<&'static str>,
        orders: Orders,
        stall_ms: u64,
        elapsed_ms: u64,
        /// Calm windows that the pressure verdict needs to fall.
        hold_windows: u32,
        memory_bytes: Option<u64>,
        headroom_bytes: Option<u64>,
        /// What the host could still give out; none while large folios have their share.
        host_bytes: Option<u64>,
        /// Changes that the rate limit kept back since the last line of this cgroup.
        muted: u64,
    },
    Detached {
        t_ms: u64,
        why: &'static str,
    },
}

impl Line {
    /// From what the kernel reported.
    pub fn decision(event: &abi::Event, cgroup: String, sizes: &Sizes) -> Self {
        Line::Decision {
            t_ms: event.t_ns / 1_000_000,
            cgroup,
            from: sizes.decision_name(&event.from),
            to: sizes.decision_name(&event.to),
            why: decide::why(event.rules),
            rules: decide::rule_names(event.rules),
            orders: sizes.real(&event.to).into(),
            stall_ms: event.stall_ns / 1_000_000,
            elapsed_ms: event.elapsed_ns / 1_000_000,
            hold_windows: event.hold,
            memory_bytes: (event.memory_known != 0).then_some(event.memory_bytes),
            headroom_bytes: (event.headroom_bytes != abi::NO_LIMIT).then_some(event.headroom_bytes),
            host_bytes: (event.host_bytes != abi::NO_LIMIT).then_some(event.host_bytes),
            muted: event.muted,
        }
    }

    fn text(&self) -> String {
        match self {
            Line::Attached {
                policy,
                root,
                cgroup_id,
                link_id,
                ..
            } => {
                format!("policy {policy} attached to {root} (cgroup {cgroup_id}, link {link_id})")
            }
            Line::Detached { why, .. } => format!("detached: {why}"),
            Line::Decision {
                cgroup,
                from,
                to,
                rules,
                stall_ms,
                elapsed_ms,
                hold_windows,
                memory_bytes,
                headroom_bytes,
                host_bytes,
                ..
            } => {
                let facts: Vec<String> = rules
                    .iter()
                    .map(|rule| match (*rule, memory_bytes, headroom_bytes) {
                        ("host", _, _) => format!(
                            "host: {} available",
                            show_size(host_bytes.unwrap_or_default())
                        ),
                        ("pressure", _, _) => format!(
                            "pressure: {} of stall in {}{}",
                            show_duration(stall_ms * 1_000_000),
                            show_duration(elapsed_ms * 1_000_000),
                            match hold_windows {
                                0 | 1 => String::new(),
                                more => format!(", held for {more} calm windows"),
                            }
                        ),
                        ("small", Some(bytes), _) => {
                            format!("small: {} of anon+shmem", show_size(*bytes))
                        }
                        ("headroom", _, Some(bytes)) => {
                            format!("headroom: {} to the nearest limit", show_size(*bytes))
                        }
                        (other, _, _) => other.to_owned(),
                    })
                    .collect();
                let facts = if facts.is_empty() {
                    "nothing narrows".to_owned()
                } else {
                    facts.join("; ")
                };
                format!("{cgroup}: {from} -> {to} ({facts})")
            }
        }
    }

    /// When it happened.
    fn t_ms(&self) -> u64 {
        match self {
            Line::Attached { t_ms, .. }
            | Line::Decision { t_ms, .. }
            | Line::Detached { t_ms, .. } => *t_ms,
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

    const X86: Sizes = Sizes {
        orders: 0x3fc,
        page_shift: 12,
    };

    fn event() -> abi::Event {
        abi::Event {
            t_ns: 12_345_678_901,
            cgroup_id: 5,
            from: [!1; 4],
            to: [0, 0, 0, !1],
            stall_ns: 230_000_000,
            elapsed_ns: 1_000_000_000,
            memory_bytes: 96 << 20,
            headroom_bytes: 1 << 20,
            host_bytes: abi::NO_LIMIT,
            muted: 3,
            rules: 0b1001,
            memory_known: 1,
            hold: 4,
            pad: 0,
        }
    }

    fn printed(line: &Line, json: bool) -> String {
        let mut out = Vec::new();
        Log::new(&mut out, json).print(line).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_decision_says_what_and_why() {
        let line = Line::decision(&event(), "/redis".to_owned(), &X86);
        assert_eq!(
            printed(&line, false),
            "[   12.345] /redis: all -> 4K (pressure: 230ms of stall in 1s, \
             held for 4 calm windows; \
             headroom: 1M to the nearest limit)\n"
        );
    }

    #[test]
    fn a_decision_as_json() {
        let line = Line::decision(&event(), "/redis".to_owned(), &X86);
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
        assert_eq!(value["muted"], 3);
        assert_eq!(value["hold_windows"], 4);
    }

    #[test]
    fn what_is_unknown_is_null() {
        let event = abi::Event {
            headroom_bytes: abi::NO_LIMIT,
            memory_known: 0,
            to: [!1; 4],
            rules: 0,
            ..event()
        };
        let line = Line::decision(&event, "/".to_owned(), &X86);
        let value: serde_json::Value = serde_json::from_str(&printed(&line, true)).unwrap();
        assert_eq!(value["headroom_bytes"], serde_json::Value::Null);
        assert_eq!(value["memory_bytes"], serde_json::Value::Null);
        assert_eq!(value["why"], "none");
        assert!(printed(&line, false).ends_with("/: all -> all (nothing narrows)\n"));
    }

    #[test]
    fn every_line_is_one_line() {
        for line in [
            Line::Detached {
                t_ms: 1,
                why: "signal",
            },
            Line::decision(&event(), "/a b".to_owned(), &X86),
        ] {
            for json in [false, true] {
                assert_eq!(printed(&line, json).matches('\n').count(), 1);
            }
        }
    }
}
