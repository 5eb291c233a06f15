// SPDX-License-Identifier: GPL-2.0-only
//! `--max-order`: the largest order, for all reasons or for each its own.

use serde::Serialize;

use crate::abi::{self, ByReason, Reason};

/// Largest order that can be named: bit 63 of a mask is the last.
const LARGEST: u32 = 62;

/// The largest order allowed for each reason; `None`: no cap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Caps {
    of: ByReason<Option<u32>>,
    /// `collapse` was named, and not only meant by an order for all reasons.
    #[serde(skip)]
    pub collapse_named: bool,
}

impl Caps {
    /// From `4` or `fault=4,swapin=0`.  Reasons not named have no cap.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.contains('=') {
            return order(text).map(|order| Self::from(ByReason::each(order)));
        }
        let mut caps = Caps::default();
        for part in text.split(',') {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| format!("has '{part}', which is no REASON=ORDER"))?;
            let reason = Reason::ALL.into_iter().find(|reason| reason.name() == name);
            let reason = reason.ok_or_else(|| {
                format!(
                    "has an unknown reason '{name}': there are {}",
                    Reason::ALL.map(Reason::name).join(", ")
                )
            })?;
            if caps.of[reason].replace(order(value)?).is_some() {
                return Err(format!("names {name} twice"));
            }
        }
        caps.collapse_named = caps.of[Reason::Collapse].is_some();
        Ok(caps)
    }

    /// As the programs know them.
    pub fn tunable(&self) -> ByReason<u32> {
        self.of.map(|cap| cap.unwrap_or(abi::NO_MAX_ORDER))
    }

    /// As the option is written; `None` without any cap.  `collapse` counts only where
    /// it is `bound`.
    pub fn text(&self, bound: bool) -> Option<String> {
        let counted = || {
            let each = self.of.iter();
            each.filter(move |(reason, _)| bound || *reason != Reason::Collapse)
        };
        let first = self.of[Reason::Fault];
        if counted().all(|(_, cap)| cap == first) {
            return first.map(|order| order.to_string());
        }
        let named: Vec<String> = counted()
            .filter_map(|(reason, cap)| cap.map(|order| format!("{}={order}", reason.name())))
            .collect();
        Some(named.join(","))
    }
}

impl From<ByReason<u32>> for Caps {
    fn from(tunable: ByReason<u32>) -> Self {
        Caps {
            of: tunable.map(|order| (order != abi::NO_MAX_ORDER).then_some(order)),
            collapse_named: false,
        }
    }
}

fn order(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|order| *order <= LARGEST)
        .ok_or_else(|| format!("has the order '{text}': it must be a number from 0 to {LARGEST}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_order_is_for_all_reasons() {
        let caps = Caps::parse("4").unwrap();
        assert_eq!(caps.tunable(), ByReason::each(4));
        assert!(!caps.collapse_named);
        assert_eq!(caps.text(true).unwrap(), "4");
    }

    #[test]
    fn reasons_that_are_not_named_have_no_cap() {
        let caps = Caps::parse("khugepaged=9,fault=4").unwrap();
        let none = abi::NO_MAX_ORDER;
        let tunable: Vec<u32> = caps.tunable().iter().map(|(_, cap)| cap).collect();
        assert_eq!(tunable, [4, none, 9, none, none]);
        assert_eq!(caps.text(false).unwrap(), "fault=4,khugepaged=9");
        assert!(Caps::parse("collapse=0").unwrap().collapse_named);
        assert_eq!(Caps::from(ByReason::each(none)).text(true), None);
    }

    #[test]
    fn what_is_read_back_is_what_was_written() {
        let each = "fault=4,swapin=0,khugepaged=9,collapse=9,reclaim=9";
        for text in ["0", "62", each] {
            let read = Caps::from(Caps::parse(text).unwrap().tunable());
            assert_eq!(read.text(true).unwrap(), text);
        }
        let text = "fault=3,swapin=3,khugepaged=3,reclaim=3";
        let all = Caps::from(Caps::parse(text).unwrap().tunable());
        assert_eq!(
            all.text(false).unwrap(),
            "3",
            "forced collapse is not bound"
        );
        assert_eq!(all.text(true).unwrap(), text);
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            "",
            "63",
            "-1",
            "4,5",
            "fault",
            "fault=",
            "fault=63",
            "fault=4,",
            "magic=4",
            "fault=4,fault=5",
            "fault=4 ,swapin=0",
            "=4",
            "fault=4=5",
            "4,fault=5",
        ] {
            assert!(Caps::parse(bad).is_err(), "{bad:?}");
        }
    }
}
