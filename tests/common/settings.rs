// SPDX-License-Identifier: GPL-2.0-only
//! The system's settings of transparent huge pages, of which there is one set for all tests.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Mutex, MutexGuard};

use super::ext::output;
use super::{THP, only_in_the_lab, read, write};

pub const MIN_FREE: &str = "/proc/sys/vm/min_free_kbytes";
pub const SAVED: &str = "/run/mthp_ext-settings";

/// The settings are one test's.  Dropped: they are as before it.
pub struct Booted {
    before: BTreeMap<String, String>,
    _one: MutexGuard<'static, ()>,
}

impl Drop for Booted {
    fn drop(&mut self) {
        let now = values();
        for (file, value) in &self.before {
            if now.get(file) != Some(value) {
                let path = match file.as_str() {
                    "min_free" => MIN_FREE.to_owned(),
                    file => format!("{THP}/{file}"),
                };
                // The test has failed, or the next one will.
                let _ = fs::write(path, value);
            }
        }
    }
}

/// They are those with which a distribution boots, and nobody else's for as long as the guard lives.
pub fn booted() -> Booted {
    static ONE: Mutex<()> = Mutex::new(());
    only_in_the_lab();
    let guard = Booted {
        _one: ONE.lock().unwrap_or_else(|e| e.into_inner()),
        before: values(),
    };
    let _ = fs::remove_dir_all(SAVED);
    for (file, value) in values() {
        if file.ends_with("/enabled") && file != "enabled" {
            let is_pmd = file == "hugepages-2048kB/enabled";
            let usual = if is_pmd { "inherit" } else { "never" };
            if value != usual {
                write(format!("{THP}/{file}"), usual);
            }
        }
    }
    write(format!("{THP}/enabled"), "madvise");
    write(format!("{THP}/defrag"), "madvise");
    write(format!("{THP}/khugepaged/max_ptes_none"), "511");
    write(MIN_FREE, "2048");
    guard
}

/// All settings of transparent huge pages, with what they are.
pub fn values() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for directory in [THP.to_owned(), format!("{THP}/khugepaged")]
        .into_iter()
        .chain(
            fs::read_dir(THP)
                .unwrap()
                .map(|entry| entry.unwrap().path().to_str().unwrap().to_owned())
                .filter(|path| path.contains("/hugepages-")),
        )
    {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            // Counts are no settings.
            let counts = ["pages_collapsed", "full_scans"];
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_file() && !counts.contains(&name) {
                let key = path.strip_prefix(THP).unwrap().to_str().unwrap().to_owned();
                let text = read(&path);
                let chosen = text.split_once('[').and_then(|(_, t)| t.split_once(']'));
                found.insert(key, chosen.map_or(text.trim(), |(v, _)| v).to_owned());
            }
        }
    }
    found.insert("min_free".to_owned(), read(MIN_FREE).trim().to_owned());
    found
}

/// What `settings undo` does not put back, of these values.
pub fn left_by_undo(before: &BTreeMap<String, String>) -> Option<String> {
    let out = output(&["settings", "undo"]);
    let now = values();
    let differ = before
        .iter()
        .filter(|(file, value)| now.get(*file) != Some(value));
    let differ: Vec<_> = differ
        .map(|(file, was)| (file, was, now.get(file)))
        .collect();
    (!out.status.success() || !differ.is_empty()).then(|| format!("{differ:?}, {out:?}"))
}

/// The same, and what an `apply` has set that failed with this.
pub fn left_by_apply(code: Option<i32>, before: &BTreeMap<String, String>) -> Option<String> {
    let changed = code != Some(0) && values() != *before;
    let changed = changed.then(|| format!("it failed, and left {:?}", values()));
    changed.or_else(|| left_by_undo(before))
}

/// Sets what a policy needs.
pub fn apply() {
    let out = output(&["settings", "apply"]);
    assert!(out.status.success(), "{out:?}");
}

/// A setting of transparent huge pages, by one name for those of all sizes.
pub fn each_size(path: &str) -> String {
    let path = path.replace(THP, "THP");
    let file = path
        .strip_prefix("THP/hugepages-")
        .and_then(|size| size.split_once('/'));
    file.map_or(path.clone(), |(_, file)| format!("THP/hugepages-*/{file}"))
}
