// SPDX-License-Identifier: GPL-2.0-only
//! `--cap`: the largest size, for all reasons or for each its own.

use schemars::JsonSchema;
use serde::Serialize;

use super::abi::NO_CAP;
use super::reason::{ByReason, NR_REASONS, Reason};
use super::units;

/// The largest order that can be named: bit 63 of a mask is the last.
const LARGEST_ORDER: u32 = 62;

/// The largest size allowed for each reason, in bytes; `None`: no cap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Caps {
    of: ByReason<Option<u64>>,
    /// `collapse` was named, and not only meant by a size for all reasons.
    #[serde(skip)]
    pub collapse_named: bool,
}

impl Caps {
    /// From `none`, `64K`, or `fault=64K,swapin=4K`.  Reasons not named have no cap.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Caps::default());
        }
        if !text.contains('=') {
            return size(text).map(|bytes| Caps {
                of: ByReason::each(Some(bytes)),
                collapse_named: false,
            });
        }
        let mut caps = Caps::default();
        for part in text.split(',') {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| format!("has '{part}', which is no REASON=SIZE"))?;
            let reason = Reason::ALL.into_iter().find(|reason| reason.name() == name);
            let reason = reason.ok_or_else(|| {
                format!(
                    "has an unknown reason '{name}': there are {}",
                    Reason::ALL.map(Reason::name).join(", ")
                )
            })?;
            if caps.of[reason].replace(size(value)?).is_some() {
                return Err(format!("names {name} twice"));
            }
        }
        caps.collapse_named = caps.of[Reason::Collapse].is_some();
        Ok(caps)
    }

    /// Is there none?
    pub fn is_none(&self) -> bool {
        self.of.iter().all(|(_, cap)| cap.is_none())
    }

    /// As the programs know them: largest orders of base pages of 2^`page_shift` bytes.
    pub fn orders(&self, page_shift: u32) -> [u32; NR_REASONS] {
        let order = |bytes: u64| bytes.ilog2().saturating_sub(page_shift).min(LARGEST_ORDER);
        let mut orders = [0; NR_REASONS];
        for (reason, cap) in self.of.iter() {
            orders[reason as usize] = cap.map_or(NO_CAP, order);
        }
        orders
    }

    /// From what the programs know.
    pub fn of_orders(orders: [u32; NR_REASONS], page_shift: u32) -> Self {
        let bytes = |order: u32| 1u64.checked_shl(order + page_shift);
        Caps {
            of: ByReason::new(|reason| {
                let order = orders[reason as usize];
                (order < NO_CAP).then(|| bytes(order).unwrap_or(1 << 63))
            }),
            collapse_named: false,
        }
    }

    /// As the option is written.  `collapse` counts only where it is `bound`.
    pub fn text(&self, bound: bool) -> String {
        let counted = || {
            let each = self.of.iter();
            each.filter(move |(reason, _)| bound || *reason != Reason::Collapse)
        };
        let first = self.of[Reason::Fault];
        if counted().all(|(_, cap)| cap == first) {
            return first.map_or_else(|| "none".to_owned(), units::show_size);
        }
        let named: Vec<String> = counted()
            .filter_map(|(reason, cap)| {
                Some(format!("{}={}", reason.name(), units::show_size(cap?)))
            })
            .collect();
        named.join(",")
    }
}

fn size(text: &str) -> Result<u64, String> {
    let bytes = units::size(text)?;
    if bytes >= 4096 && bytes.is_power_of_two() {
        Ok(bytes)
    } else {
        Err(format!(
            "has the size '{text}': it must be 4K, 8K, 16K and so on"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_size_is_for_all_reasons() {
        let caps = Caps::parse("64K").unwrap();
        assert_eq!(caps.orders(12)[1..], [4; NR_REASONS - 1]);
        assert!(!caps.collapse_named);
        assert_eq!(caps.text(true), "64K");
        assert!(!caps.is_none());
    }

    #[test]
    fn reasons_that_are_not_named_have_no_cap() {
        let caps = Caps::parse("khugepaged=2M,fault=64K").unwrap();
        assert_eq!(caps.orders(12)[1..], [4, NO_CAP, 9, NO_CAP, NO_CAP]);
        assert_eq!(caps.text(false), "fault=64K,khugepaged=2M");
        assert!(Caps::parse("collapse=4K").unwrap().collapse_named);
        let none = Caps::parse("none").unwrap();
        assert!(none.is_none());
        assert_eq!(none.text(true), "none");
        assert_eq!(Caps::of_orders(none.orders(12), 12), none);
    }

    #[test]
    fn larger_base_pages_are_minded() {
        let caps = Caps::parse("fault=64K,swapin=4K,khugepaged=512M").unwrap();
        assert_eq!(caps.orders(16)[1..4], [0, 0, 13]);
    }

    #[test]
    fn what_is_read_back_is_what_was_written() {
        let each = "fault=64K,swapin=4K,khugepaged=2M,collapse=2M,reclaim=2M";
        for text in ["4K", "1T", each] {
            let read = Caps::of_orders(Caps::parse(text).unwrap().orders(12), 12);
            assert_eq!(read.text(true), text);
        }
        let text = "fault=32K,swapin=32K,khugepaged=32K,reclaim=32K";
        let all = Caps::of_orders(Caps::parse(text).unwrap().orders(12), 12);
        assert_eq!(all.text(false), "32K", "forced collapse is not bound");
        assert_eq!(all.text(true), text);
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            "",
            "4",
            "63",
            "-1",
            "2K",
            "12K",
            "4K,8K",
            "fault",
            "fault=",
            "fault=4",
            "fault=4K,",
            "magic=4K",
            "fault=4K,fault=8K",
            "fault=4K ,swapin=4K",
            "=4K",
            "fault=4K=8K",
            "4K,fault=8K",
        ] {
            assert!(Caps::parse(bad).is_err(), "{bad:?}");
        }
    }
}
