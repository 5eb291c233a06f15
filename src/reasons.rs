// SPDX-License-Identifier: GPL-2.0-only
//! Why a cgroup does not get every order, in words: each rule with the numbers that it
//! compared.  `run` prints them with a changed decision, `status` with each cgroup.

use crate::abi::{Stall, Tunables};
use crate::caps::Caps;
use crate::cgroup::Limit;
use crate::decide;
use crate::units::{percent, show_duration, show_size};

/// What the rules compared.
pub struct Numbers<'a> {
    /// The constants they compared with.
    pub tunables: &'a Tunables,
    /// The pressure verdict; of its calm windows only `status` knows.
    pub stall: Stall,
    /// Anon+shmem.
    pub memory_bytes: Option<u64>,
    /// Until the nearest limit.
    pub headroom_bytes: Option<u64>,
    /// What the host has left.
    pub host_bytes: Option<u64>,
    /// That limit, as far as it can be found.
    pub limit: Option<&'a Limit>,
}

impl Numbers<'_> {
    /// One text for each rule, by the bits of those that narrow.
    pub fn reasons(&self, rules: u32) -> Vec<String> {
        let names = decide::rule_names(rules).into_iter();
        names
            .map(|rule| match self.of_rule(rule) {
                Some(text) => format!("{rule}: {text}"),
                None => rule.to_owned(),
            })
            .collect()
    }

    fn of_rule(&self, rule: &str) -> Option<String> {
        let t = self.tunables;
        match rule {
            "pressure" => Some(self.pressure()),
            "small" => Some(format!(
                "{} of anon+shmem (below {})",
                show_size(self.memory_bytes?),
                show_size(t.min_memory)
            )),
            "sparse" => Some(format!(
                "a process fills less than {}% of the memory it spans",
                percent(t.sparse_share)
            )),
            "headroom" => Some(format!(
                "{} left below {}, a folio may take 1/{}",
                show_size(self.headroom_bytes?),
                self.limit
                    .map_or_else(|| "the nearest limit".to_owned(), Limit::text),
                t.headroom_factor
            )),
            "host" => Some(format!(
                "the host has {} left, a folio may take 1/{}",
                show_size(self.host_bytes?),
                t.host_factor
            )),
            "max-order" => Caps::from(t.max_order)
                .text(t.narrow_collapse != 0)
                .map(|caps| format!("at most order {caps}")),
            _ => None,
        }
    }

    fn pressure(&self) -> String {
        let (t, stall) = (self.tunables, &self.stall);
        let measured = match stall.elapsed_ns {
            0 => "taken over from the cgroup above".to_owned(),
            elapsed => format!(
                "{} of {} stall in {} (threshold {} in {})",
                show_duration(stall.stall_ns),
                kind(t),
                show_duration(elapsed),
                show_duration(t.threshold_ns),
                show_duration(t.window_ns)
            ),
        };
        match (stall.hold, stall.calm) {
            (0 | 1, _) => measured,
            (hold, 0) => format!("{measured}, ends after {hold} calm windows"),
            (hold, calm) => format!("{measured}, ends after {hold} calm windows, {calm} so far"),
        }
    }
}

/// The kind of stall that counts.
pub fn kind(tunables: &Tunables) -> &'static str {
    if tunables.psi_full == 1 {
        "full"
    } else {
        "some"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{self, ByReason, Reason};

    fn limit() -> Limit {
        Limit {
            cgroup: "/redis".to_owned(),
            file: "memory.max",
            bytes: 64 << 20,
            used_bytes: 63 << 20,
            left_bytes: 1 << 20,
        }
    }

    fn reasons(tunables: &Tunables, limit: Option<&Limit>, stall: Stall) -> Vec<String> {
        let numbers = Numbers {
            tunables,
            stall,
            memory_bytes: Some(3 << 20),
            headroom_bytes: Some(1 << 20),
            host_bytes: Some(120 << 20),
            limit,
        };
        numbers.reasons((1 << abi::NR_RULES) - 1)
    }

    #[test]
    fn each_rule_gives_its_numbers() {
        let capped = Tunables {
            max_order: ByReason::new(|reason| match reason {
                Reason::Fault => 4,
                Reason::Collapse | Reason::Reclaim => abi::NO_MAX_ORDER,
                _ => 0,
            }),
            ..*decide::defaults()
        };
        let stall = Stall {
            stall_ns: 230_000_000,
            elapsed_ns: 1_000_000_000,
            hold: 4,
            ..Stall::default()
        };
        assert_eq!(
            reasons(&capped, Some(&limit()), stall),
            [
                "pressure: 230ms of full stall in 1s (threshold 100ms in 1s), ends after 4 calm windows",
                "small: 3M of anon+shmem (below 8M)",
                "sparse: a process fills less than 50% of the memory it spans",
                "headroom: 1M left below memory.max 64M of /redis (63M in use), a folio may take 1/1024",
                "host: the host has 120M left, a folio may take 1/1024",
                "max-order: at most order fault=4,swapin=0,khugepaged=0",
            ]
        );
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let plain = reasons(decide::defaults(), None, Stall::default());
        assert_eq!(plain[0], "pressure: taken over from the cgroup above");
        assert_eq!(
            plain[3],
            "headroom: 1M left below the nearest limit, a folio may take 1/1024"
        );
        assert_eq!(plain[5], "max-order", "there is no cap");
        let stall = Stall {
            stall_ns: 1_000_000,
            elapsed_ns: 2_000_000_000,
            hold: 8,
            calm: 3,
            ..Stall::default()
        };
        let held = reasons(decide::defaults(), None, stall);
        assert!(
            held[0].ends_with("ends after 8 calm windows, 3 so far"),
            "{held:?}"
        );
    }
}
