// SPDX-License-Identifier: GPL-2.0-only
//! The policy's neighbours in the kernel: the shrinker of underused folios and
//! khugepaged. The kernel counts both for the whole host; of a cgroup it shows what
//! is in huge pages and how they were made.

use std::fs;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use super::files::number_in;
use super::thp::THP_SYSFS;
use crate::model::units::show_size;

/// Settings and counts since boot, of the whole host.  What this kernel does
/// not have is null.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Host {
    /// Huge pages with more than `max_ptes_none` empty pages are split under
    /// reclaim.
    shrink_underused: Option<bool>,
    /// It is there, and cannot be read.
    #[serde(skip)]
    unread: bool,
    /// Of 512: empty pages from which on the shrinker splits, and up to which
    /// khugepaged fills.
    max_ptes_none: Option<u64>,
    /// Huge pages that were split for being underused.
    underused_splits: Option<u64>,
    /// Ranges that khugepaged has made huge.
    collapsed: Option<u64>,
    /// Times that khugepaged has scanned all processes.
    full_scans: Option<u64>,
}

/// What a cgroup and those below it have to do with both; null where the
/// memory controller does not account for it.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Group {
    /// Anonymous memory in huge pages (of PMD size) now.
    pub anon_thp_bytes: Option<u64>,
    /// Huge pages given at a page fault.
    pub thp_faults: Option<u64>,
    /// Huge pages that replaced small ones, by khugepaged or `MADV_COLLAPSE`.
    pub thp_collapses: Option<u64>,
}

impl Host {
    /// As it is now.
    pub fn read() -> Self {
        Self::read_from(
            Path::new(THP_SYSFS),
            &fs::read_to_string("/proc/vmstat").unwrap_or_default(),
        )
    }

    fn read_from(thp: &Path, vmstat: &str) -> Self {
        let number = |file: &str| number_in(&thp.join(file));
        let shrink = number("shrink_underused");
        Host {
            unread: shrink.is_none() && thp.join("shrink_underused").exists(),
            shrink_underused: shrink.map(|value| value != 0),
            max_ptes_none: number("khugepaged/max_ptes_none"),
            underused_splits: keyed(vmstat, "thp_underused_split_page"),
            collapsed: number("khugepaged/pages_collapsed"),
            full_scans: number("khugepaged/full_scans"),
        }
    }

    /// One line for each of the two.
    pub fn text(&self) -> String {
        let or_dash = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let shrinker = match (self.shrink_underused, self.max_ptes_none) {
            (Some(true), Some(511)) => "on, but idle: max_ptes_none is 511".to_owned(),
            (Some(true), none) => format!("splits above {} empty pages of 512", or_dash(none)),
            (Some(false), _) => "off".to_owned(),
            (None, _) if self.unread => "cannot be read".to_owned(),
            (None, _) => "not in this kernel".to_owned(),
        };
        format!(
            "underused shrinker: {shrinker}; {} split since boot\n\
             khugepaged: fills up to {} empty pages of 512; {} ranges in {} full scans since boot",
            or_dash(self.underused_splits),
            or_dash(self.max_ptes_none),
            or_dash(self.collapsed),
            or_dash(self.full_scans),
        )
    }
}

impl Group {
    /// From the cgroup's directory.
    pub fn read(dir: &Path) -> Self {
        let stat = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
        Group {
            anon_thp_bytes: keyed(&stat, "anon_thp"),
            thp_faults: keyed(&stat, "thp_fault_alloc"),
            thp_collapses: keyed(&stat, "thp_collapse_alloc"),
        }
    }

    /// "12M", or "-".
    pub fn anon_thp_text(&self) -> String {
        self.anon_thp_bytes
            .map_or_else(|| "-".to_owned(), show_size)
    }
}

fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(shrink: &str, none: &str) -> Host {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("khugepaged")).unwrap();
        for (file, content) in [
            ("shrink_underused", shrink),
            ("khugepaged/max_ptes_none", none),
            ("khugepaged/pages_collapsed", "7\n"),
        ] {
            fs::write(dir.path().join(file), content).unwrap();
        }
        Host::read_from(dir.path(), "a 1\nthp_underused_split_page 3\n")
    }

    #[test]
    fn a_shrinker_that_cannot_split_is_shown_as_idle() {
        let text = host("1\n", "511\n").text();
        assert!(text.contains("on, but idle"), "{text}");
        assert!(host("0\n", "409\n").text().contains("shrinker: off; 3"));
        let text = host("1\n", "409\n").text();
        assert!(text.contains("above 409 empty"), "{text}");
        assert!(text.contains("7 ranges in - full scans"), "{text}");
    }

    #[test]
    fn a_kernel_without_the_shrinker_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::read_from(dir.path(), "");
        assert_eq!((host.shrink_underused, host.underused_splits), (None, None));
        assert!(host.text().contains("not in this kernel"));
        fs::create_dir(dir.path().join("shrink_underused")).unwrap();
        let host = Host::read_from(dir.path(), "");
        assert!(host.text().contains("shrinker: cannot be read"));
    }

    #[test]
    fn counts_of_a_cgroup_are_matched_by_whole_names() {
        let dir = tempfile::tempdir().unwrap();
        let stat = "anon 1\nanon_thp 4194304\nthp_fault_alloc 2\nthp_collapse_alloc 0\n";
        fs::write(dir.path().join("memory.stat"), stat).unwrap();
        let group = Group::read(dir.path());
        assert_eq!(group.anon_thp_text(), "4M");
        assert_eq!((group.thp_faults, group.thp_collapses), (Some(2), Some(0)));
        let none = Group::read(&dir.path().join("none"));
        assert_eq!(none.anon_thp_text(), "-");
    }
}
