// SPDX-License-Identifier: GPL-2.0-only
//! `--max-order`: the largest order, for all reasons or for each its own.

use serde::Serialize;

use crate::abi::{self, NR_REASONS};
use crate::decide::REASONS;

/// Largest order that can be named: bit 63 of a mask is the last.
const LARGEST: u32 = 62;

/// The largest order allowed for each reason; `None`: no cap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names of the reasons")]
pub struct Caps {
    pub fault: Option<u32>,
    pub swapin: Option<u32>,
    pub khugepaged: Option<u32>,
    pub collapse: Option<u32>,
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
            return order(text).map(|order| Self::from([order; NR_REASONS]));
        }
        let mut caps = Caps::default();
        for part in text.split(',') {
            let (reason, value) = part
                .split_once('=')
                .ok_or_else(|| format!("has '{part}', which is no REASON=ORDER"))?;
            let slot = caps.slot(reason).ok_or_else(|| {
                format!(
                    "has an unknown reason '{reason}': there are {}",
                    REASONS.join(", ")
                )
            })?;
            if slot.replace(order(value)?).is_some() {
                return Err(format!("names {reason} twice"));
            }
        }
        caps.collapse_named = caps.collapse.is_some();
        Ok(caps)
    }

    fn slot(&mut self, reason: &str) -> Option<&mut Option<u32>> {
        match reason {
            "fault" => Some(&mut self.fault),
            "swapin" => Some(&mut self.swapin),
            "khugepaged" => Some(&mut self.khugepaged),
            "collapse" => Some(&mut self.collapse),
            _ => None,
        }
    }

    fn each(&self) -> [Option<u32>; NR_REASONS] {
        [self.fault, self.swapin, self.khugepaged, self.collapse]
    }

    /// As the programs know them.
    pub fn tunable(&self) -> [u32; NR_REASONS] {
        self.each().map(|cap| cap.unwrap_or(abi::NO_MAX_ORDER))
    }

    /// As the option is written; `None` without any cap.  `collapse` counts only where
    /// it is `bound`.
    pub fn text(&self, bound: bool) -> Option<String> {
        let each = self.each();
        let counted = &each[..if bound { NR_REASONS } else { NR_REASONS - 1 }];
        let first = counted[0];
        if counted.iter().all(|&cap| cap == first) {
            return first.map(|order| order.to_string());
        }
        let named = REASONS.iter().zip(counted);
        let named: Vec<String> = named
            .filter_map(|(reason, cap)| cap.map(|order| format!("{reason}={order}")))
            .collect();
        Some(named.join(","))
    }
}

impl From<[u32; NR_REASONS]> for Caps {
    fn from(tunable: [u32; NR_REASONS]) -> Self {
        let [fault, swapin, khugepaged, collapse] =
            tunable.map(|order| (order != abi::NO_MAX_ORDER).then_some(order));
        Caps {
            fault,
            swapin,
            khugepaged,
            collapse,
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
        assert_eq!(caps.tunable(), [4; 4]);
        assert!(!caps.collapse_named);
        assert_eq!(caps.text(true).unwrap(), "4");
    }

    #[test]
    fn reasons_that_are_not_named_have_no_cap() {
        let caps = Caps::parse("khugepaged=9,fault=4").unwrap();
        let none = abi::NO_MAX_ORDER;
        assert_eq!(caps.tunable(), [4, none, 9, none]);
        assert_eq!(caps.text(false).unwrap(), "fault=4,khugepaged=9");
        assert!(Caps::parse("collapse=0").unwrap().collapse_named);
        assert_eq!(Caps::from([none; 4]).text(true), None);
    }

    #[test]
    fn what_is_read_back_is_what_was_written() {
        for text in ["0", "62", "fault=4,swapin=0,khugepaged=9,collapse=9"] {
            let read = Caps::from(Caps::parse(text).unwrap().tunable());
            assert_eq!(read.text(true).unwrap(), text);
        }
        let all = Caps::from(
            Caps::parse("fault=3,swapin=3,khugepaged=3")
                .unwrap()
                .tunable(),
        );
        assert_eq!(
            all.text(false).unwrap(),
            "3",
            "forced collapse is not bound"
        );
        assert_eq!(all.text(true).unwrap(), "fault=3,swapin=3,khugepaged=3");
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
