// SPDX-License-Identifier: GPL-2.0-only
//! Masks of page orders and their names.

use super::abi::ALL_ORDERS;
use super::reason::{ByReason, Reason};
use super::units;

/// The large orders this machine has, and its base page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bit n: folios of order n exist, and the host lets somebody have them.
    pub orders: u64,
    /// The same of those that nobody has: 1 GiB, while its setting is never, as it is after boot.
    pub off: u64,
    /// log2 of the base page size.
    pub page_shift: u32,
}

impl Sizes {
    /// The part of masks that exists here.
    pub fn real(&self, masks: &ByReason<u64>) -> ByReason<u64> {
        ByReason::new(|reason| masks[reason] & self.of(reason))
    }

    /// The order of a folio that fills a PMD: as many pages as a table has entries.
    fn pmd(&self) -> u32 {
        self.page_shift - 3
    }

    /// The order of a folio that fills a PUD, 1 GiB, where the kernel maps anonymous memory by those.
    pub fn pud(&self) -> Option<u32> {
        let known = self.orders != ALL_ORDERS;
        Some(self.orders.ilog2()).filter(|order| known && *order > self.pmd())
    }

    /// The same, whether or not the host lets anybody have it.
    pub fn pud_there(&self) -> Option<u32> {
        self.pud().or_else(|| self.off.checked_ilog2())
    }

    /// Do two masks differ in what exists, or may come to be by a later kernel?  In more than what
    /// the host has switched off.
    pub fn differ(&self, one: u64, other: u64) -> bool {
        let seen = match self.off.checked_ilog2() {
            Some(off) => (1 << off) - 1,
            None => u64::MAX,
        };
        (one ^ other) & seen != 0
    }

    /// Those that are offered for a reason: a PUD at page faults alone.
    pub fn of(&self, reason: Reason) -> u64 {
        match (reason, self.pud()) {
            (Reason::Fault, _) | (_, None) => self.orders,
            (_, Some(order)) => self.orders & !(1 << order),
        }
    }

    /// The largest order, as far as folios are made of anonymous memory and for any reason.
    pub fn largest(&self) -> u32 {
        match self.orders {
            ALL_ORDERS => self.pmd(),
            _ => self
                .of(Reason::Swapin)
                .checked_ilog2()
                .unwrap_or(self.pmd()),
        }
    }

    /// Name of one order: `64K`, `2M`.
    pub fn name(&self, order: u32) -> String {
        units::show_size(
            1u64.checked_shl(order + self.page_shift)
                .unwrap_or(u64::MAX),
        )
    }

    /// Name of a mask of a reason: `all`, `4K` (none but base pages), `512K-max`, or a list.
    pub fn mask_name(&self, reason: Reason, mask: u64) -> String {
        let mask = mask & self.of(reason);
        if mask == self.of(reason) {
            return "all".to_owned();
        }
        if mask == 0 {
            return self.name(0);
        }
        let top = mask.ilog2();
        if mask == self.orders & ((2 << top) - 1) {
            return format!("{}-max", self.name(top));
        }
        let list: Vec<String> = (0..64)
            .filter(|o| mask & (1 << o) != 0)
            .map(|o| self.name(o))
            .collect();
        list.join("+")
    }

    /// Name of a decision: one mask if all usual reasons agree, else each that
    /// differs from the widest.  Forced collapse is named where it is not free, and reclaim
    /// where it splits what swap-in would get.
    pub fn decision_name(&self, masks: &ByReason<u64>) -> String {
        let mut name = self.usual_name(masks);
        let real = self.real(masks);
        for (reason, usual) in [
            (Reason::Collapse, self.of(Reason::Collapse)),
            (Reason::Reclaim, real[Reason::Swapin]),
        ] {
            if usual & !real[reason] != 0 {
                name += &format!(
                    ",{}:{}",
                    reason.name(),
                    self.mask_name(reason, masks[reason])
                );
            }
        }
        name
    }

    fn usual_name(&self, masks: &ByReason<u64>) -> String {
        let real = self.real(masks);
        let extra = |reason| matches!(reason, Reason::Collapse | Reason::Reclaim);
        let usual = || real.iter().filter(|(r, _)| !extra(*r));
        let fault = real[Reason::Fault];
        let later = real[Reason::Swapin];
        if usual().any(|(reason, mask)| reason != Reason::Fault && mask != later) {
            let each = usual().map(|(r, mask)| format!("{}:{}", r.name(), self.mask_name(r, mask)));
            return each.collect::<Vec<_>>().join(",");
        }
        let all_later = later == self.of(Reason::Swapin);
        if fault == later || (fault == self.orders && all_later) {
            return self.mask_name(Reason::Fault, fault);
        }
        let on_fault = format!("{}-on-fault", self.mask_name(Reason::Fault, fault));
        if all_later {
            return on_fault;
        }
        format!("{on_fault},{}", self.mask_name(Reason::Swapin, later))
    }
}

/// Those of x86-64.
#[cfg(test)]
pub const X86: Sizes = Sizes {
    orders: 0x3fc,
    off: 0,
    page_shift: 12,
};

/// The same with 1 GiB.
#[cfg(test)]
pub const X86_PUD: Sizes = Sizes {
    orders: 0x3fc | (1 << 18),
    off: 0,
    page_shift: 12,
};

/// The same, switched off.
#[cfg(test)]
pub const X86_PUD_OFF: Sizes = Sizes {
    off: 1 << 18,
    ..X86
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pud_is_a_size_of_page_faults() {
        assert_eq!((X86.pud(), X86.largest()), (None, 9));
        assert_eq!((X86_PUD.pud(), X86_PUD.largest()), (Some(18), 9));
        let unknown = Sizes {
            orders: ALL_ORDERS,
            ..X86
        };
        assert_eq!((unknown.pud(), unknown.largest()), (None, 9));
        let alone = Sizes {
            orders: 1 << 18,
            ..X86
        };
        assert_eq!((alone.pud(), alone.largest()), (Some(18), 9));
        for reason in Reason::ALL {
            assert_eq!(X86.of(reason), 0x3fc);
            let has = X86_PUD.of(reason) & (1 << 18) != 0;
            assert_eq!(has, reason == Reason::Fault, "{}", reason.name());
        }
        assert_eq!(X86_PUD.name(18), "1G");
        assert_eq!(X86_PUD.mask_name(Reason::Fault, !1), "all");
        assert_eq!(X86_PUD.mask_name(Reason::Fault, 0x3fffe), "2M-max");
        assert_eq!(X86_PUD.mask_name(Reason::Swapin, 0x3fffe), "all");
    }

    #[test]
    fn a_pud_that_is_switched_off_is_there_and_no_size() {
        assert_eq!((X86.pud_there(), X86_PUD.pud_there()), (None, Some(18)));
        let off = X86_PUD_OFF;
        assert_eq!((off.pud(), off.pud_there()), (None, Some(18)));
        assert_eq!(off.mask_name(Reason::Fault, 0x3fffe), "all");
        assert!(!off.differ(!1, 0x3fffe) && off.differ(!1, 0x3fc));
        assert!(X86.differ(!1, 0x3fffe) && X86_PUD.differ(!1, 0x3fffe));
    }

    #[test]
    fn a_decision_names_a_pud_where_there_is_one() {
        let name = |fault: u64, later: u64| {
            let masks = ByReason::new(|reason| match reason {
                Reason::Fault => fault,
                Reason::Collapse => !1,
                _ => later,
            });
            [X86.decision_name(&masks), X86_PUD.decision_name(&masks)]
        };
        assert_eq!(name(!1, !1), ["all", "all"]);
        assert_eq!(name(0x3fffe, !1), ["all", "2M-max"]);
        assert_eq!(name(0x3fe, 0x3fe), ["all", "2M-max"], "a cap of 2M");
        assert_eq!(name(0xfe, 0xfe), ["512K-max"; 2]);
        assert_eq!(name(0, !1), ["4K-on-fault"; 2]);
        assert_eq!(name(!1, 0), ["all-on-fault,4K"; 2]);
    }

    #[test]
    fn masks_have_names() {
        assert_eq!(X86.mask_name(Reason::Fault, !1), "all");
        assert_eq!(X86.mask_name(Reason::Fault, 0x3fc), "all");
        assert_eq!(X86.mask_name(Reason::Fault, 0), "4K");
        assert_eq!(X86.mask_name(Reason::Fault, 0xfc), "512K-max");
        assert_eq!(X86.mask_name(Reason::Fault, 0x4), "16K-max");
        assert_eq!(X86.mask_name(Reason::Fault, 0x210), "64K+2M");
    }

    #[test]
    fn decisions_have_names() {
        let name = |fault, swapin, khugepaged, collapse| {
            X86.decision_name(&ByReason::new(|reason| match reason {
                Reason::Fault => fault,
                Reason::Swapin | Reason::Reclaim => swapin,
                Reason::Khugepaged => khugepaged,
                Reason::Collapse => collapse,
            }))
        };
        assert_eq!(name(!1, !1, !1, !1), "all");
        assert_eq!(name(0, !1, !1, !1), "4K-on-fault");
        assert_eq!(name(0, 0, 0, !1), "4K");
        assert_eq!(name(0xff, 0xff, 0xff, !1), "512K-max");
        assert_eq!(
            name(0xff, 0xff, 0xff, 0xff),
            "512K-max,collapse:512K-max",
            "forced collapse is free unless it says otherwise"
        );
        assert_eq!(name(!1, !1, !1, 0), "all,collapse:4K");
        assert_eq!(name(0, 0xff, 0xff, !1), "4K-on-fault,512K-max");
        assert_eq!(
            name(0, 0xff, !1, !1),
            "fault:4K,swapin:512K-max,khugepaged:all"
        );
        assert_eq!(
            name(0, 0, !1, !1),
            "fault:4K,swapin:4K,khugepaged:all",
            "also where only khugepaged differs"
        );
    }

    #[test]
    fn reclaim_is_named_where_it_splits_what_swap_in_would_get() {
        let masks = ByReason::new(|reason| match reason {
            Reason::Reclaim => 0,
            _ => !1,
        });
        assert_eq!(X86.decision_name(&masks), "all,reclaim:4K");
        let free = masks.map(|mask| if mask == 0 { !1 } else { 0 });
        assert_eq!(X86.decision_name(&free), "4K,collapse:4K");
    }

    #[test]
    fn base_pages_of_64k_are_named_so() {
        let arm = Sizes {
            off: 0,
            orders: 0x3ffe,
            page_shift: 16,
        };
        assert_eq!(arm.mask_name(Reason::Fault, 0), "64K");
        assert_eq!(arm.name(13), "512M");
    }
}
