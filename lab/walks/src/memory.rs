// SPDX-License-Identifier: GPL-2.0-only
//! Anonymous memory of which a chosen share is in huge pages.

use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous};

/// Size of a huge page.
pub const HUGE: usize = 2 << 20;
/// Size of a base page.
pub const PAGE: usize = 4096;
/// Size of a slot: a cache line, so that each access is to a line of its own.
pub const SLOT: usize = 64;

/// Memory that starts at a huge page's boundary. It is never unmapped: the program ends with it.
pub struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

impl Memory {
    /// Maps `bytes`. Of `cover` percent huge pages are wanted and refused for the rest, evenly spread; None: the
    /// system's settings decide.
    ///
    /// # Errors
    /// The kernel does not give it, or has no huge pages.
    pub fn map(bytes: usize, cover: Option<u32>) -> io::Result<Self> {
        let length =
            NonZeroUsize::new(bytes + HUGE).ok_or_else(|| io::Error::other("no memory"))?;
        let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: new memory at an address of the kernel's choice.
        let raw = unsafe { mmap_anonymous(None, length, rights, MapFlags::MAP_PRIVATE) }?;
        let skip = raw.as_ptr().align_offset(HUGE);
        // SAFETY: at most HUGE further, and so inside the mapping.
        let start = unsafe { raw.cast::<u8>().add(skip) };
        let memory = Self { start, bytes };
        if let Some(cover) = cover {
            for chunk in 0..bytes / HUGE {
                let advice = if covered(chunk, cover) {
                    MmapAdvise::MADV_HUGEPAGE
                } else {
                    MmapAdvise::MADV_NOHUGEPAGE
                };
                // SAFETY: part of the mapping; the advice changes no content.
                unsafe { madvise(start.add(chunk * HUGE).cast(), HUGE, advice) }?;
            }
        }
        Ok(memory)
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.bytes / SLOT
    }

    /// The first number in a slot.
    pub fn read(&self, slot: usize) -> u64 {
        assert!(slot < self.slots());
        // SAFETY: inside the mapping, which is aligned; volatile, so that every read is done.
        unsafe { self.start.add(slot * SLOT).cast::<u64>().read_volatile() }
    }

    /// Sets it.
    pub fn write(&mut self, slot: usize, value: u64) {
        assert!(slot < self.slots());
        // SAFETY: as above.
        unsafe {
            self.start
                .add(slot * SLOT)
                .cast::<u64>()
                .write_volatile(value)
        }
    }

    /// Has the kernel write the time to a slot, by a system call; 0, and the content of the slot is lost.
    pub fn written_by_kernel(&self, slot: usize) -> u64 {
        assert!(slot < self.slots());
        // SAFETY: inside the mapping, which is aligned; the time takes 16 of the slot's bytes. The C library's function
        // would do it without the kernel.
        let code = unsafe {
            nix::libc::syscall(
                nix::libc::SYS_clock_gettime,
                nix::libc::CLOCK_MONOTONIC,
                self.start.add(slot * SLOT).as_ptr(),
            )
        };
        assert_eq!(code, 0, "the kernel has the time");
        0
    }

    /// Gives the slot's base page back, and reads it again: it is empty, and what a TLB has of it is wrong.
    pub fn dropped(&self, slot: usize) -> u64 {
        assert!(slot < self.slots());
        // SAFETY: a whole page inside the mapping, which begins at a boundary of pages; numbers have no invalid content.
        let given = unsafe {
            let page = self.start.add(slot * SLOT / PAGE * PAGE).cast();
            madvise(page, PAGE, MmapAdvise::MADV_DONTNEED)
        };
        assert!(given.is_ok(), "private memory can be given back");
        self.read(slot)
    }

    /// Bytes of the mapping in huge pages, by /proc/self/smaps.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn huge(&self) -> io::Result<usize> {
        let first = self.start.as_ptr() as usize;
        Ok(huge_in(
            &fs::read_to_string("/proc/self/smaps")?,
            first,
            first + self.bytes,
        ))
    }
}

/// Whether this chunk is one of the `cover` percent.
fn covered(chunk: usize, cover: u32) -> bool {
    let cover = cover as usize;
    (chunk + 1) * cover / 100 > chunk * cover / 100
}

/// Bytes in huge pages of the mappings that begin from `first` on and before `end`; the kernel splits and joins them.
fn huge_in(smaps: &str, first: usize, end: usize) -> usize {
    let mut inside = false;
    let mut kib = 0;
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let head = words.next().unwrap_or_default();
        if let Some((from, to)) = head.split_once('-') {
            let address = |word| usize::from_str_radix(word, 16).unwrap_or(0);
            // The mapping may begin below the boundary, with what was skipped.
            inside = address(from) < end && address(to) > first;
        } else if inside && head == "AnonHugePages:" {
            kib += words
                .next()
                .and_then(|n| n.parse::<usize>().ok())
                .unwrap_or(0);
        }
    }
    kib * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wanted_share_is_covered_and_spread() {
        for cover in [0, 25, 50, 75, 90, 100] {
            let count = (0..100).filter(|&chunk| covered(chunk, cover)).count();
            assert_eq!(count, cover as usize);
            let first = (0..20).filter(|&chunk| covered(chunk, cover)).count();
            assert_eq!(first, cover as usize / 5);
        }
    }

    #[test]
    fn huge_pages_of_other_mappings_do_not_count() {
        let smaps = "1000-2000 rw-p 0 00:00 0\nAnonHugePages: 2048 kB\n\
                     2000-3000 rw-p 0 00:00 0\nRss: 9 kB\nAnonHugePages: 4096 kB\n\
                     5000-6000 rw-p 0 00:00 0 [heap]\nAnonHugePages: 2048 kB\n";
        assert_eq!(huge_in(smaps, 0x2000, 0x5000), 4096 << 10);
        assert_eq!(huge_in(smaps, 0x1800, 0x5001), 8192 << 10);
    }
}
