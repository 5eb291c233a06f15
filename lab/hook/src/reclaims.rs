// SPDX-License-Identifier: GPL-2.0-only
//! Lets reclaim go over memory in use and counts the instructions: large folios that stay are what policies are asked
//! about there.

use std::path::Path;

use crate::clock;
use crate::faults::Region;
use crate::knobs;
use lab_guest::failure::Failure;
use lab_guest::knobs::{keyed, read, swap, write};

const MIB: usize = 1 << 20;
const PAGE: usize = 4 << 10;
/// What is mapped and used, and how much of it reclaim is told to take: it looks at more, as all is in use.
const MAPPED: usize = 32 * MIB;
const WANTED: &str = "4M";
const SWAP: u64 = 256 << 20;
/// Of the kernel's own reserve, as in the benchmark suite.
const MIN_FREE_KBYTES: u64 = 2048;

/// One pass of reclaim.
pub struct Reclaimed {
    /// Instructions of all of it.
    pub instructions: u64,
    /// Pages that it looked at ...
    pub scanned: u64,
    /// ... and those that went to swap.
    pub swapped: u64,
    /// Folios that were split because a policy said so.
    pub split: u64,
    /// How often the kernel asked meanwhile ...
    pub calls: u64,
    /// ... and about how many large folios it could.
    pub folios: u64,
}

/// Switches swap on.
///
/// # Errors
/// The kernel lacks the device, or does not take a value.
pub fn prepare() -> Result<(), Failure> {
    swap(SWAP, None, MIN_FREE_KBYTES)
}

/// Fills memory of this process, which is in `group`, with folios of `kib` KiB, uses all of it, and has a part of it
/// reclaimed. `calls` is how often the kernel has asked so far.
///
/// # Errors
/// A setting cannot be changed, the folios are of another size, or `calls` fails.
pub fn take(
    kib: u32,
    group: &Path,
    calls: impl Fn() -> Result<u64, Failure>,
) -> Result<Reclaimed, Failure> {
    let region = Region::new(MAPPED)?;
    let folios = match kib {
        4 => 0,
        _ => MAPPED as u64 / (u64::from(kib) << 10),
    };
    let use_all = || (0..MAPPED).step_by(PAGE).for_each(|at| region.touch(at));
    if folios > 0 {
        let before = knobs::large_faults(kib)?;
        knobs::large(kib, true)?;
        use_all();
        knobs::large(kib, false)?;
        let large = knobs::large_faults(kib)? - before;
        if large != folios {
            let what = format!("{large} of {folios} folios have {kib} KiB");
            return Err(Failure::other("fill memory", what));
        }
    }
    use_all();
    let stat = || read(group.join("memory.stat"));
    let (before, calls_before) = (stat()?, calls()?);
    let begin = clock::now();
    write(group.join("memory.reclaim"), WANTED)?;
    let instructions = clock::now() - begin;
    let (after, calls) = (stat()?, calls()? - calls_before);
    let more = |key| keyed(&after, key) - keyed(&before, key);
    Ok(Reclaimed {
        instructions,
        scanned: more("pgscan"),
        swapped: more("pswpout"),
        split: more("thp_bpf_split"),
        calls,
        folios,
    })
}
