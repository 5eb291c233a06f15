// SPDX-License-Identifier: GPL-2.0-only
//! The host's settings of transparent huge pages, and the sizes it has.

use std::fs;
use std::path::Path;

use crate::model::abi::ALL_ORDERS;
use crate::model::orders::Sizes;

/// Where the kernel lists the sizes it knows.
pub const THP_SYSFS: &str = "/sys/kernel/mm/transparent_hugepage";

/// Reads `hugepages-*kB` below `dir`; those without `enabled` are sizes of
/// shared memory only.  Without any (a kernel without multi-size THP) every
/// order counts as existing.
pub fn sizes(dir: &Path, page_shift: u32) -> Sizes {
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
        orders = ALL_ORDERS;
    }
    Sizes {
        orders: orders & ALL_ORDERS,
        page_shift,
    }
}

/// Those of the running machine.
pub fn sizes_of_this_machine() -> Sizes {
    sizes(Path::new(THP_SYSFS), page_shift())
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

/// The word in brackets of a sysfs choice.
fn choice(file: &Path) -> Option<String> {
    chosen(&fs::read_to_string(file).ok()?).map(str::to_owned)
}

/// The word in brackets of a text.
pub(super) fn chosen(text: &str) -> Option<&str> {
    Some(text.split_once('[')?.1.split_once(']')?.0)
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

#[cfg(test)]
mod tests {
    use super::*;

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
            sizes(dir.path(), 12),
            Sizes {
                orders: 0x204,
                page_shift: 12
            }
        );
        let none = sizes(&dir.path().join("absent"), 12);
        assert_eq!(none.orders, ALL_ORDERS);
    }
}
