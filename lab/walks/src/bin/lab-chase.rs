// SPDX-License-Identifier: GPL-2.0-only
//! First touch, reads and writes of some GiB in whatever pages the system's settings give: the rows of the benchmark of
//! 1 GiB pages (lab/checks/pudbench.py).

use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::ptr::NonNull;
use std::time::Duration;

use lab_walks::{mark, next};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect};
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

const USAGE: &str = "usage: lab-chase GIB COUNT [arm]

Writes GIB, a power of 2, page by page, and reads and writes COUNT lines in each order. With `arm` the TLB model follows
from the first read on.";

const GIB: usize = 1 << 30;
const PAGE: usize = 4096;
/// A cache line: each access is to one of its own.
const SLOT: usize = 64;
/// Accesses before those that count, so that what is kept of translations is full.
const WARM_UP: usize = 20_000;

/// Memory that begins at a boundary of 1 GiB. The program ends with it.
struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

impl Memory {
    fn map(bytes: usize) -> io::Result<Self> {
        let length = NonZeroUsize::new(bytes + GIB).ok_or_else(|| io::Error::other("no memory"))?;
        let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: new memory at an address of the kernel's choice.
        let raw = unsafe { mmap_anonymous(None, length, rights, MapFlags::MAP_PRIVATE) }?;
        let skip = raw.as_ptr().align_offset(GIB);
        // SAFETY: at most GIB further, and so inside the mapping.
        let start = unsafe { raw.cast::<u8>().add(skip) };
        Ok(Memory { start, bytes })
    }

    fn slots(&self) -> usize {
        self.bytes / SLOT
    }

    fn at(&self, slot: usize) -> *mut u64 {
        assert!(slot < self.slots());
        // SAFETY: inside the mapping, and aligned.
        unsafe { self.start.add(slot * SLOT).cast::<u64>().as_ptr() }
    }

    fn read(&self, slot: usize) -> u64 {
        // SAFETY: inside the mapping; volatile, so that each is done.
        unsafe { self.at(slot).read_volatile() }
    }

    fn write(&self, slot: usize, value: u64) {
        // SAFETY: as above.
        unsafe { self.at(slot).write_volatile(value) }
    }

    /// Another number of the same slot: what says where to go stays.
    fn write_beside(&self, slot: usize, value: u64) {
        // SAFETY: as above; a slot has eight numbers.
        unsafe { self.at(slot).add(1).write_volatile(value) }
    }
}

fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}

fn since(start: Duration) -> u64 {
    (now() - start).as_nanos() as u64
}

fn number(path: &str, key: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let found = text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next()?.trim_end_matches(':') == key).then(|| words.next()?.parse().ok())?
    });
    found.unwrap_or(0)
}

/// What the kernel counts: faults, what they got, splits; and KiB of page tables and memory.
fn counters() -> Value {
    let stat = |kib: u64, name: &str| {
        let path = format!("/sys/kernel/mm/transparent_hugepage/hugepages-{kib}kB/stats/{name}");
        let text = fs::read_to_string(path).unwrap_or_default();
        text.trim().parse::<u64>().unwrap_or(0)
    };
    let faults = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF);
    json!({
        "faults": faults.map_or(0, |usage| usage.minor_page_faults()),
        "had_1g": stat(1 << 20, "anon_fault_alloc"),
        "fallback_1g": stat(1 << 20, "anon_fault_fallback"),
        "had_2m": stat(2048, "anon_fault_alloc"),
        "fallback_2m": stat(2048, "anon_fault_fallback"),
        "split_pud": number("/proc/vmstat", "thp_split_pud"),
        "split_pmd": number("/proc/vmstat", "thp_split_pmd"),
        "tables_kib": number("/proc/self/status", "VmPTE"),
        "resident_kib": number("/proc/self/status", "RssAnon"),
    })
}

fn record(row: &str, count: usize, ns: u64, more: &Value) {
    println!(
        "{}",
        json!({"type": "chase", "row": row, "count": count, "ns": ns, "more": more})
    );
}

/// One page after the other.  The first of each GiB is a fault for a page of any size: it is timed by itself.
fn touch(memory: &Memory) {
    let (before, start) = (counters(), now());
    let mut faults = Vec::new();
    for gib in 0..memory.bytes / GIB {
        let one = now();
        memory.write(gib * (GIB / SLOT), 1);
        faults.push(since(one));
        for page in 1..GIB / PAGE {
            memory.write(gib * (GIB / SLOT) + page * (PAGE / SLOT), 1);
        }
    }
    let ns = since(start);
    let more = json!({"fault_ns": faults, "before": before, "after": counters()});
    record("first touch", memory.bytes / PAGE, ns, &more);
}

/// `count` steps from `slot` on, in each of which `access` says where the next one goes.
fn measure(
    row: &str,
    count: usize,
    armed: bool,
    slot: usize,
    access: impl Fn(usize) -> usize,
) -> usize {
    let go = |mut slot: usize, count: usize| {
        for _ in 0..count {
            slot = access(slot);
        }
        slot
    };
    let slot = go(slot, WARM_UP.min(count));
    let start = now();
    if armed {
        mark::begin::<{ mark::PROGRAM }>();
    }
    let slot = go(slot, count);
    if armed {
        mark::end::<{ mark::PROGRAM }>();
    }
    record(row, count, since(start), &Value::Null);
    slot
}

fn run(gib: usize, count: usize, armed: bool) -> io::Result<()> {
    let memory = Memory::map(gib * GIB)?;
    let (slots, mask) = (memory.slots(), memory.slots() - 1);
    touch(&memory);
    for slot in 0..slots {
        memory.write(slot, next(slot, slots) as u64);
    }
    if armed {
        mark::arm();
    }
    let sequential = |slot: usize| (slot + 1) & mask;
    let read = |slot| memory.read(slot) as usize;
    let write = |slot| {
        let to = memory.read(slot) as usize;
        memory.write_beside(slot, to as u64);
        to
    };
    measure("sequential read", count, armed, 0, |slot| {
        memory.read(slot);
        sequential(slot)
    });
    measure("sequential write", count, armed, 0, |slot| {
        memory.write_beside(slot, 1);
        sequential(slot)
    });
    let slot = measure("random read", count, armed, 1, read);
    measure("random write", count, armed, slot, write);
    if armed {
        return Ok(());
    }
    // A page in the middle is treated differently from the rest.
    let before = counters();
    let start = now();
    // SAFETY: inside the mapping; only read from here on.
    unsafe {
        let page = memory.start.add(memory.bytes / 2 + 123 * PAGE).cast();
        mprotect(page, PAGE, ProtFlags::PROT_READ)
    }?;
    let ns = since(start);
    record(
        "mprotect of a page",
        1,
        ns,
        &json!({"before": before, "after": counters()}),
    );
    measure("random read after that", count, false, slot, read);
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let plan = match words.as_slice() {
        [gib, count, more @ ..] if more.is_empty() || more == ["arm"] => {
            let size = gib.parse().ok().filter(|gib: &usize| gib.is_power_of_two());
            size.zip(count.parse().ok())
                .map(|(gib, count)| (gib, count, !more.is_empty()))
        }
        _ => None,
    };
    let Some((gib, count, armed)) = plan else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(gib, count, armed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab-chase: {gib} GiB of memory: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_begins_with_a_gib_and_keeps_what_is_beside_a_link() {
        let memory = Memory::map(GIB).unwrap();
        assert_eq!(memory.start.as_ptr() as usize % GIB, 0);
        memory.write(7, 5);
        memory.write_beside(7, 9);
        assert_eq!((memory.read(7), memory.read(8)), (5, 0));
    }

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let file = tempfile_with("thp_split_pud 3\nthp_split_pmd 4\nVmPTE:\t  12 kB\n");
        let path = file.to_str().unwrap();
        assert_eq!(number(path, "thp_split_pud"), 3);
        assert_eq!(number(path, "VmPTE"), 12);
        assert_eq!(number(path, "thp_split"), 0);
        fs::remove_file(file).unwrap();
    }

    fn tempfile_with(text: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("lab-chase-{}", std::process::id()));
        fs::write(&path, text).unwrap();
        path
    }
}
