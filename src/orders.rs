// SPDX-License-Identifier: GPL-2.0-only
//! Masks of page orders and their names.

use std::fs;
use std::path::Path;

use crate::abi::{ByReason, Reason};
use crate::units;

/// Where the kernel lists the sizes it knows.
pub const THP_SYSFS: &str = "/sys/kernel/mm/transparent_hugepage";

/// The large orders this machine has, and its base page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bit n: folios of order n exist.
    pub orders: u64,
    /// log2 of the base page size.
    pub page_shift: u32,
}

impl Sizes {
    /// Reads `hugepages-*kB` below `dir`; those without `enabled` are sizes of
    /// shared memory only.  Without any (a kernel without multi-size THP) every
    /// order counts as existing.
    pub fn read(dir: &Path, page_shift: u32) -> Self {
        let mut orders = 0;
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let kib = name
                .to_str()
                .filter(|_| entry.path().join("enabled").exists())
                .and_then(|n| n.strip_prefix("hugepages-"))
                .and_then(|n| n.strip_suffix("kB"))
                .and_then(|n| n.parse::<u64>().ok());
            if let Some(bytes) = kib.and_then(|k| k.checked_mul(1024)).filter(|b| *b != 0) {
                orders |= 1 << bytes.ilog2().saturating_sub(page_shift);
            }
        }
        if orders == 0 {
            orders = crate::abi::ALL_ORDERS;
        }
        Sizes {
            orders: orders & crate::abi::ALL_ORDERS,
            page_shift,
        }
    }

    /// Those of the running machine.
    pub fn of_this_machine() -> Self {
        Self::read(Path::new(THP_SYSFS), page_shift())
    }

    /// The part of a mask that exists here.
    pub fn real(&self, masks: &ByReason<u64>) -> ByReason<u64> {
        masks.map(|m| m & self.orders)
    }

    /// The largest order, as far as folios are made of anonymous memory.
    pub fn largest(&self) -> u32 {
        let all = self.orders == crate::abi::ALL_ORDERS;
        if all {
            self.page_shift - 3
        } else {
            self.orders.ilog2()
        }
    }

    /// Name of one order: `64K`, `2M`.
    pub fn name(&self, order: u32) -> String {
        units::show_size(
            1u64.checked_shl(order + self.page_shift)
                .unwrap_or(u64::MAX),
        )
    }

    /// Name of a mask: `all`, `4K` (none but base pages), `512K-max`, or a list.
    pub fn mask_name(&self, mask: u64) -> String {
        let mask = mask & self.orders;
        if mask == self.orders {
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
            (Reason::Collapse, self.orders),
            (Reason::Reclaim, real[Reason::Swapin]),
        ] {
            if usual & !real[reason] != 0 {
                name += &format!(",{}:{}", reason.name(), self.mask_name(masks[reason]));
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
            let each = usual().map(|(r, mask)| format!("{}:{}", r.name(), self.mask_name(mask)));
            return each.collect::<Vec<_>>().join(",");
        }
        if fault == later {
            return self.mask_name(fault);
        }
        let on_fault = format!("{}-on-fault", self.mask_name(fault));
        if later == self.orders {
            return on_fault;
        }
        format!("{on_fault},{}", self.mask_name(later))
    }
}

/// The word in brackets of a sysfs choice.
fn choice(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

/// The host's setting, which a policy narrows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thp {
    /// transparent_hugepage/enabled; `None` without THP in the kernel.
    pub enabled: Option<String>,
    /// No size is on: there is nothing to narrow.
    pub off: bool,
}

impl Thp {
    /// Reads it below `dir`.  Each size may have a setting of its own.
    pub fn read(dir: &Path) -> Self {
        let enabled = choice(&dir.join("enabled"));
        let sizes = fs::read_dir(dir).into_iter().flatten().flatten();
        let on = |word: Option<String>| word.is_some_and(|w| w != "never" && w != "inherit");
        let own = sizes
            .filter(|size| {
                size.file_name()
                    .as_encoded_bytes()
                    .starts_with(b"hugepages-")
            })
            .any(|size| on(choice(&size.path().join("enabled"))));
        Thp {
            off: !own && !on(enabled.clone()),
            enabled,
        }
    }

    /// That of the running machine.
    pub fn of_this_machine() -> Self {
        Self::read(Path::new(THP_SYSFS))
    }

    /// "transparent_hugepage/enabled is always"
    pub fn text(&self) -> String {
        let note = if self.off { ": nothing to narrow" } else { "" };
        match &self.enabled {
            Some(word) => format!("transparent_hugepage/enabled is {word}{note}"),
            None => "this kernel has no transparent huge pages: nothing to narrow".to_owned(),
        }
    }
}

/// May khugepaged make huge pages of regions that are mostly empty? By default it
/// takes one page for enough.
pub fn khugepaged_fills(dir: &Path, page_shift: u32) -> bool {
    // A page table is a page of entries of eight bytes.
    let entries = 1u64 << (page_shift - 3);
    units::number_in(&dir.join("khugepaged/max_ptes_none")).is_none_or(|none| none > entries / 2)
}

/// log2 of the base page size.
pub fn page_shift() -> u32 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)
        .ok()
        .flatten()
        .and_then(|size| u64::try_from(size).ok())
        .and_then(u64::checked_ilog2)
        .unwrap_or(12)
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86: Sizes = Sizes {
        orders: 0x3fc,
        page_shift: 12,
    };

    #[test]
    fn masks_have_names() {
        assert_eq!(X86.mask_name(!1), "all");
        assert_eq!(X86.mask_name(0x3fc), "all");
        assert_eq!(X86.mask_name(0), "4K");
        assert_eq!(X86.mask_name(0xfc), "512K-max");
        assert_eq!(X86.mask_name(0x4), "16K-max");
        assert_eq!(X86.mask_name(0x210), "64K+2M");
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
            orders: 0x3ffe,
            page_shift: 16,
        };
        assert_eq!(arm.mask_name(0), "64K");
        assert_eq!(arm.name(13), "512M");
    }

    #[test]
    fn a_setting_is_off_when_every_size_is() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Thp::read(dir.path()).enabled, None);
        assert!(Thp::read(dir.path()).text().contains("no transparent"));
        let size = dir.path().join("hugepages-64kB");
        fs::create_dir(&size).unwrap();
        for (top, own, off) in [
            (
                "[always] madvise never",
                "always [inherit] madvise never",
                false,
            ),
            (
                "always madvise [never]",
                "always [inherit] madvise never",
                true,
            ),
            (
                "always madvise [never]",
                "[always] inherit madvise never",
                false,
            ),
            (
                "always [madvise] never",
                "always inherit madvise [never]",
                false,
            ),
        ] {
            fs::write(dir.path().join("enabled"), top).unwrap();
            fs::write(size.join("enabled"), own).unwrap();
            let thp = Thp::read(dir.path());
            assert_eq!(thp.off, off, "{top}, {own}");
            assert_eq!(thp.text().contains("nothing to narrow"), off);
        }
        assert_eq!(
            Thp::read(dir.path()).text(),
            "transparent_hugepage/enabled is madvise"
        );
    }

    #[test]
    fn khugepaged_fills_from_more_than_half_on() {
        let dir = tempfile::tempdir().unwrap();
        assert!(khugepaged_fills(dir.path(), 12), "the kernel's default");
        fs::create_dir(dir.path().join("khugepaged")).unwrap();
        for (none, shift, fills) in [
            ("511", 12, true),
            ("257", 12, true),
            ("256", 12, false),
            ("0", 12, false),
            ("4096", 16, false),
            ("8191", 16, true),
        ] {
            fs::write(dir.path().join("khugepaged/max_ptes_none"), none).unwrap();
            assert_eq!(khugepaged_fills(dir.path(), shift), fills, "{none}");
        }
    }

    #[test]
    fn sizes_are_read_from_a_tree() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "hugepages-16kB",
            "hugepages-2048kB",
            "defrag",
            "hugepages-xkB",
        ] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("enabled"), "").unwrap();
        }
        fs::create_dir(dir.path().join("hugepages-8kB")).unwrap();
        assert_eq!(
            Sizes::read(dir.path(), 12),
            Sizes {
                orders: 0x204,
                page_shift: 12
            }
        );
        let none = Sizes::read(&dir.path().join("absent"), 12);
        assert_eq!(none.orders, crate::abi::ALL_ORDERS);
    }
}
