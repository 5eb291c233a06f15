// SPDX-License-Identifier: GPL-2.0-only
//! The settings of transparent huge pages that a policy needs.  They are the same for all
//! policies: a policy only takes sizes away.

/// A setting: its file below /sys/kernel/mm/transparent_hugepage, and what it should be.
#[derive(Debug)]
pub struct Wanted {
    /// The file; `hugepages-*kB` stands for each size.
    pub file: &'static str,
    /// The value.
    pub value: Value,
    /// What is missing with other values.
    pub why: &'static str,
}

/// A value, and others that do as well: those are the administrator's choice.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// A word or a switch.
    Word {
        /// What is set.
        set: &'static str,
        /// What is left as it is.
        also: &'static [&'static str],
    },
    /// Pages of a huge page: four of five are set, and any number is left as it is but the
    /// greatest, which is all but one.
    Pages,
}

/// What stands for a size in [`Wanted::file`]: each of those up to that of a PMD.  1 GiB is for
/// programs that are known to use it, so whoever wants it sets it.
pub const SIZES: &str = "hugepages-*kB";

/// All of them, in the order in which they are written: what gives large folios comes last.
pub const BASELINE: [Wanted; 5] = [
    Wanted {
        file: "khugepaged/max_ptes_none",
        value: Value::Pages,
        why: "at the greatest value, the kernel's default, the underused shrinker splits nothing",
    },
    Wanted {
        file: "shrink_underused",
        value: Value::Word {
            set: "1",
            also: &[],
        },
        why: "empty pages of huge pages come back under reclaim",
    },
    Wanted {
        file: "defrag",
        value: Value::Word {
            set: "madvise",
            also: &["defer", "defer+madvise", "never"],
        },
        why: "with always each page fault reclaims and compacts for a large folio",
    },
    Wanted {
        file: "hugepages-*kB/enabled",
        value: Value::Word {
            set: "inherit",
            also: &["always"],
        },
        why: "a policy only takes sizes away: it cannot give one that is off",
    },
    Wanted {
        file: "enabled",
        value: Value::Word {
            set: "always",
            also: &[],
        },
        why: "with madvise, memory that is not advised gets no large folio",
    },
];

impl Value {
    /// What is set, on a machine with `pages` pages in a huge page.
    pub fn set(self, pages: u64) -> String {
        match self {
            Value::Word { set, .. } => set.to_owned(),
            Value::Pages => (pages * 4 / 5).to_string(),
        }
    }

    /// Does `now` do?
    pub fn fits(self, now: &str, pages: u64) -> bool {
        match self {
            Value::Word { set, also } => now == set || also.contains(&now),
            Value::Pages => now.parse::<u64>().is_ok_and(|now| now < pages - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_fits() {
        for wanted in &BASELINE {
            for pages in [512, 8192] {
                assert!(wanted.value.fits(&wanted.value.set(pages), pages));
            }
        }
        assert_eq!(Value::Pages.set(512), "409");
        assert!(Value::Pages.fits("0", 512) && Value::Pages.fits("510", 512));
        assert!(!Value::Pages.fits("511", 512) && !Value::Pages.fits("x", 512));
    }

    #[test]
    fn what_gives_large_folios_comes_last() {
        assert_eq!(BASELINE[4].file, "enabled");
        assert!(BASELINE[3].file.starts_with(SIZES));
    }
}
