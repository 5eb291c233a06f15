// SPDX-License-Identifier: GPL-2.0-only
//! The constants of a loaded policy, as `status` shows them.

use std::io::{self, Write};

use serde::Serialize;

use crate::abi;
use crate::caps::Caps;
use crate::reasons;
use crate::units::{percent, show_duration, show_size};

/// The constants a policy was loaded with.
#[derive(Debug, Serialize)]
pub struct Settings {
    pressure: &'static str,
    threshold_ms: u64,
    calm_share_percent: u64,
    pressure_order: u32,
    window_ms: u64,
    max_hold_windows: u32,
    min_memory_bytes: u64,
    sparse_waste_bytes: u64,
    sparse_share_percent: u32,
    headroom_factor: u64,
    host_factor: u64,
    limit_share_percent: u32,
    count_cache: bool,
    sample_every_requests: u32,
    max_order: Caps,
    bind_khugepaged: bool,
    narrow_advised: bool,
    narrow_collapse: bool,
}

impl From<&abi::Tunables> for Settings {
    fn from(t: &abi::Tunables) -> Self {
        Settings {
            pressure: reasons::kind(t),
            threshold_ms: t.threshold_ns / 1_000_000,
            calm_share_percent: (t.calm_ns * 100).div_ceil(t.threshold_ns.max(1)),
            pressure_order: t.pressure_order,
            window_ms: t.window_ns / 1_000_000,
            max_hold_windows: t.max_hold,
            min_memory_bytes: t.min_memory,
            sparse_waste_bytes: t.sparse_bytes,
            sparse_share_percent: percent(t.sparse_share),
            headroom_factor: t.headroom_factor,
            host_factor: t.host_factor,
            limit_share_percent: percent(t.limit_share),
            count_cache: t.count_cache != 0,
            sample_every_requests: t.sample_mask.saturating_add(1),
            max_order: t.max_order.into(),
            bind_khugepaged: t.bind_khugepaged != 0,
            narrow_advised: t.narrow_advised != 0,
            narrow_collapse: t.narrow_collapse != 0,
        }
    }
}

impl Settings {
    /// A line for each rule that the policy has, and one for what else they bind.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn text(&self, rules: &[&str], out: &mut impl Write) -> io::Result<()> {
        for rule in rules {
            if let Some(text) = self.rule(rule) {
                writeln!(out, "  {:10} {text}", format!("{rule}:"))?;
            }
        }
        let also = [
            (self.narrow_advised, "MADV_HUGEPAGE memory"),
            (self.narrow_collapse, "MADV_COLLAPSE"),
        ];
        let also: Vec<&str> = also
            .iter()
            .filter_map(|(on, what)| on.then_some(*what))
            .collect();
        if also.is_empty() {
            return Ok(());
        }
        writeln!(out, "  all rules bind {} as well", also.join(" and "))
    }

    /// A rule in words; `None` for a cap that there is not.
    fn rule(&self, rule: &str) -> Option<String> {
        let off = || Some("off".to_owned());
        match rule {
            "pressure" => Some(format!(
                "{} from {} of {} stall in {}{}",
                match self.pressure_order {
                    0 => "base pages".to_owned(),
                    order => format!("at most order {order}"),
                },
                show_duration(self.threshold_ms * 1_000_000),
                self.pressure,
                show_duration(self.window_ms * 1_000_000),
                match self.max_hold_windows {
                    1 => "; ends after one calm window".to_owned(),
                    most => format!("; ends after 1 to {most} calm windows"),
                }
            )),
            "small" if self.min_memory_bytes == 0 => off(),
            "small" => Some(format!(
                "base pages {} below {} of anon+shmem",
                self.empty_reasons(),
                show_size(self.min_memory_bytes)
            )),
            "sparse" if self.sparse_waste_bytes == 0 => off(),
            "sparse" => Some(format!(
                "base pages {} for a process that fills less than {}% of the memory it spans, \
                 if that wastes {}",
                self.empty_reasons(),
                self.sparse_share_percent,
                show_size(self.sparse_waste_bytes)
            )),
            "headroom" => Some(format!(
                "a folio may take 1/{} of what a limit has left, once {}% of the limit is in use{}",
                self.headroom_factor,
                self.limit_share_percent,
                if self.count_cache {
                    ", all page cache included"
                } else {
                    ""
                }
            )),
            "host" => Some(format!(
                "a folio may take 1/{} of what the host has left, once {}% of it is in use",
                self.host_factor, self.limit_share_percent
            )),
            "max-order" => {
                let caps = self.max_order.text(self.narrow_collapse)?;
                Some(format!("at most order {caps}"))
            }
            _ => None,
        }
    }

    /// When a new folio may be mostly empty, and so may waste memory.
    fn empty_reasons(&self) -> &'static str {
        if self.bind_khugepaged {
            "on fault and by khugepaged"
        } else {
            "on fault"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide;

    fn shown(tunables: &abi::Tunables) -> String {
        let mut out = Vec::new();
        let settings = Settings::from(tunables);
        settings.text(&decide::RULES, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_rule_has_its_line() {
        assert_eq!(
            shown(decide::defaults()),
            "  pressure:  base pages from 100ms of full stall in 1s; ends after 1 to 64 calm windows\n  \
             small:     base pages on fault below 8M of anon+shmem\n  \
             sparse:    base pages on fault for a process that fills less than 50% of the memory it \
             spans, if that wastes 64M\n  \
             headroom:  a folio may take 1/1024 of what a limit has left, once 50% of the limit is in use\n  \
             host:      a folio may take 1/1024 of what the host has left, once 50% of it is in use\n"
        );
    }

    #[test]
    fn what_is_off_or_on_besides_shows() {
        let text = shown(&abi::Tunables {
            min_memory: 0,
            sparse_bytes: 0,
            max_hold: 1,
            pressure_order: 4,
            max_order: abi::ByReason::each(4),
            count_cache: 1,
            narrow_advised: 1,
            narrow_collapse: 1,
            ..*decide::defaults()
        });
        for part in [
            "pressure:  at most order 4 from",
            "ends after one calm window\n",
            "small:     off\n",
            "sparse:    off\n",
            "in use, all page cache included\n",
            "max-order: at most order 4\n",
            "all rules bind MADV_HUGEPAGE memory and MADV_COLLAPSE as well\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let filling = shown(&abi::Tunables {
            bind_khugepaged: 1,
            ..*decide::defaults()
        });
        assert!(filling.contains("small:     base pages on fault and by khugepaged below"));
    }
}
