// SPDX-License-Identifier: GPL-2.0-only
//! Takes page faults of one size and counts the instructions of each.

use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::clock;
use crate::knobs;
use lab_guest::failure::Failure;

const KIB: usize = 1024;
const PAGE: usize = 4 * KIB;
/// The size that is on, and does not fit, where faults of 4 KiB are measured.
const OFFERED_KIB: u32 = 64;
const OFFERED: usize = OFFERED_KIB as usize * KIB;
const PMD: usize = 2048 * KIB;

/// Faults of one kind.
pub struct Faults {
    /// Instructions of each, in the order they were taken, the two readings of the clock included.
    pub each: Vec<u64>,
    /// How many of them got a large folio.
    pub large: u64,
    /// How often the kernel asked meanwhile.
    pub calls: u64,
}

/// Memory of our own, aligned to 2 MiB, gone with the value.
pub struct Region {
    map: NonNull<std::ffi::c_void>,
    mapped: usize,
    start: *mut u8,
    len: usize,
}

impl Region {
    /// Maps `len` bytes.
    ///
    /// # Errors
    /// There is no room for them.
    pub fn new(len: usize) -> Result<Self, Failure> {
        let mapped = len + PMD;
        let size = NonZeroUsize::new(mapped)
            .ok_or_else(|| Failure::other("map memory", "of no length"))?;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let map = unsafe {
            mmap_anonymous(
                None,
                size,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                flags,
            )
        }
        .map_err(|e| Failure::new("map memory", e))?;
        let start = map.as_ptr().cast::<u8>();
        let start = start.wrapping_add(start.align_offset(PMD));
        Ok(Self {
            map,
            mapped,
            start,
            len,
        })
    }

    /// Where it begins.
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// Where its mapping begins.
    pub fn map_start(&self) -> usize {
        self.map.as_ptr() as usize
    }

    /// Writes to the page at this offset.
    #[inline(always)]
    pub fn touch(&self, at: usize) {
        debug_assert!(at < self.len);
        // SAFETY: inside the mapping, by the callers' ranges.
        unsafe { self.start.add(at).write_volatile(1) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, to which no reference is left.
        if let Err(error) = unsafe { munmap(self.map, self.mapped) } {
            eprintln!("lab-hook: unmap memory: {error}");
        }
    }
}

/// Takes faults of `kib` KiB, with large folios of this size switched on meanwhile: each is one request to a policy,
/// which decides whether the fault gets the folio or its first page. For 4 KiB it is 64 KiB that is on, and the first
/// page of each such range is there already: a large folio does not fit, so nobody is asked. `calls` is how often the
/// kernel has asked so far; what the caller does itself may fault, and is not counted.
///
/// # Errors
/// A setting cannot be changed, there is no such size, or `calls` fails.
pub fn take(kib: u32, calls: impl Fn() -> Result<u64, Failure>) -> Result<Faults, Failure> {
    let (len, step, offered) = match kib {
        4 => (4 * PMD, PAGE, OFFERED_KIB),
        16 => (8 * PMD, 16 * KIB, 16),
        64 => (16 * PMD, 64 * KIB, 64),
        2048 => (24 * PMD, PMD, 2048),
        _ => {
            return Err(Failure::other(
                "take faults",
                format!("there is no case for {kib} KiB"),
            ));
        }
    };
    let region = Region::new(len)?;
    // Written now, or growing it would fault between the readings.
    let mut each = vec![u64::MAX; len / step];
    each.clear();
    if kib == 4 {
        (0..len).step_by(OFFERED).for_each(|at| region.touch(at));
    }
    knobs::large(offered, true)?;
    let before = knobs::large_faults(offered)?;
    let calls_before = calls()?;
    for at in (0..len).step_by(step) {
        if kib == 4 && at % OFFERED == 0 {
            continue;
        }
        let begin = clock::now();
        region.touch(at);
        each.push(clock::now() - begin);
    }
    let calls = calls()? - calls_before;
    let large = knobs::large_faults(offered)? - before;
    knobs::large(offered, false)?;
    Ok(Faults { each, large, calls })
}
