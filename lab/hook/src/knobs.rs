// SPDX-License-Identifier: GPL-2.0-only
//! The guest's settings: which sizes are on, and a khugepaged that stays out of the way.

use std::fs;

use lab_guest::failure::Failure;
use lab_guest::knobs::{number, write};

const THP: &str = "/sys/kernel/mm/transparent_hugepage";
/// Longer than any run.
const NEVER_MS: &str = "4000000000";
/// What khugepaged waits for in a hurry.
const HURRY_MS: &str = "10";
/// What the kernel comes with.
const PTES_NONE: &str = "511";

fn sizes() -> Result<Vec<std::path::PathBuf>, Failure> {
    let entries = fs::read_dir(THP).map_err(|e| Failure::new(format!("list {THP}"), e))?;
    Ok(entries
        .flatten()
        .map(|entry| entry.path().join("enabled"))
        .filter(|path| path.exists())
        .collect())
}

/// Everything off, khugepaged asleep for the whole run. It starts with the first size and stops with the last, and
/// a new one scans at once: a size that nothing here asks for stays on and keeps the one.
pub fn prepare() -> Result<(), Failure> {
    write(format!("{THP}/enabled"), "never")?;
    for size in sizes()? {
        write(size, "never")?;
    }
    hurry(false)?;
    write(format!("{THP}/khugepaged/alloc_sleep_millisecs"), NEVER_MS)?;
    write(format!("{THP}/hugepages-32kB/enabled"), "madvise")
}

/// Lets khugepaged come round often, with its defaults otherwise, or sends it to sleep again.
///
/// # Errors
/// A setting cannot be written.
pub fn hurry(on: bool) -> Result<(), Failure> {
    let (sleep, none) = if on {
        (HURRY_MS, PTES_NONE)
    } else {
        // Should it scan nevertheless, it joins only what is there already.
        (NEVER_MS, "0")
    };
    write(format!("{THP}/khugepaged/max_ptes_none"), none)?;
    write(format!("{THP}/khugepaged/scan_sleep_millisecs"), sleep)
}

/// How often khugepaged has come round since boot.
///
/// # Errors
/// The kernel does not tell.
pub fn full_scans() -> Result<u64, Failure> {
    number(format!("{THP}/khugepaged/full_scans"))
}

/// Turns one size of large folios on or off.
pub fn large(kib: u32, on: bool) -> Result<(), Failure> {
    let word = if on { "always" } else { "never" };
    write(format!("{THP}/hugepages-{kib}kB/enabled"), word)
}

/// Faults that got a large folio of this size since boot.
pub fn large_faults(kib: u32) -> Result<u64, Failure> {
    number(format!("{THP}/hugepages-{kib}kB/stats/anon_fault_alloc"))
}
