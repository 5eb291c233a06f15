// SPDX-License-Identifier: GPL-2.0-only
//! The constants of a loaded policy, as `status` shows them.

use serde::Serialize;

use crate::abi;
use crate::caps::Caps;
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
    look_every_requests: u32,
    max_order: Caps,
    narrow_advised: bool,
    narrow_collapse: bool,
}

impl From<&abi::Tunables> for Settings {
    fn from(t: &abi::Tunables) -> Self {
        Settings {
            pressure: if t.psi_full == 1 { "full" } else { "some" },
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
            look_every_requests: t.look_mask.saturating_add(1),
            max_order: t.max_order.into(),
            narrow_advised: t.narrow_advised != 0,
            narrow_collapse: t.narrow_collapse != 0,
        }
    }
}

impl Settings {
    /// In words, as far as the policy has the rules.
    pub fn text(&self, rules: &[&str]) -> String {
        let mut parts = Vec::new();
        for rule in rules {
            match *rule {
                "pressure" => parts.push(format!(
                    "pressure {} {} in {}{}",
                    self.pressure,
                    show_duration(self.threshold_ms * 1_000_000),
                    show_duration(self.window_ms * 1_000_000),
                    match self.max_hold_windows {
                        1 => String::new(),
                        most => format!(", held for up to {most} calm windows"),
                    }
                )),
                "small" => parts.push(format!("small below {}", show_size(self.min_memory_bytes))),
                "sparse" => parts.push(format!(
                    "sparse below {}% in use, from {} of waste",
                    self.sparse_share_percent,
                    show_size(self.sparse_waste_bytes)
                )),
                "headroom" => parts.push(format!(
                    "headroom factor {} beyond {}% of a limit{}",
                    self.headroom_factor,
                    self.limit_share_percent,
                    if self.count_cache {
                        " that page cache fills, too"
                    } else {
                        ""
                    }
                )),
                "host" => parts.push(format!("host factor {}", self.host_factor)),
                "max-order" => {
                    let caps = self.max_order.text(self.narrow_collapse);
                    parts.extend(caps.map(|caps| format!("max order {caps}")));
                }
                _ => {}
            }
        }
        if self.narrow_advised {
            parts.push("advised memory too".to_owned());
        }
        if self.narrow_collapse {
            parts.push("forced collapse too".to_owned());
        }
        parts.join(", ")
    }
}
