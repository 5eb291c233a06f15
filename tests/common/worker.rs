// SPDX-License-Identifier: GPL-2.0-only
//! A process in a cgroup that uses memory on command.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, spawn};

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

use super::{DISK, Group, MIB};

const PMD: usize = 2 << 20;
const PUD: usize = 1 << 30;

/// Commands for a worker, with one number each.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Order {
    Map,
    Touch,
    Read,
    Huge,
    Advise,
    Stride,
    Check,
    Zeroes,
    Resident,
    ReadFile,
    Churn,
    Threads,
    Execute,
    Peek,
}

/// `madvise` values the libc crate may not have.
pub const MADV_DONTNEED: u64 = 4;
pub const MADV_FREE: u64 = 8;
pub const MADV_HUGEPAGE: u64 = 14;
pub const MADV_COLD: u64 = 20;
pub const MADV_PAGEOUT: u64 = 21;
pub const MADV_COLLAPSE: u64 = 25;

/// A forked process.  Dropped: killed.
pub struct Worker {
    pid: Pid,
    orders: UnixStream,
}

impl Worker {
    /// A worker in `group`.  What it maps from now on is charged there.
    pub fn new(group: &Group) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        // SAFETY: the child runs a loop of its own and leaves by _exit.  glibc
        // makes its allocator usable after a fork.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                drop(ours);
                serve(theirs);
                // SAFETY: ends the child without running the parent's handlers.
                unsafe { libc::_exit(0) }
            }
            ForkResult::Parent { child } => {
                let worker = Worker {
                    pid: child,
                    orders: ours,
                };
                group.set("cgroup.procs", &child.to_string());
                worker
            }
        }
    }

    /// Its number.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Moves it to another cgroup; its memory stays where it was charged.
    pub fn join(&self, group: &Group) {
        group.set("cgroup.procs", &self.pid.to_string());
    }

    fn send(&mut self, order: Order, value: u64) {
        let mut bytes = (order as u64).to_ne_bytes().to_vec();
        bytes.extend(value.to_ne_bytes());
        self.orders.write_all(&bytes).unwrap();
    }

    /// Waits for the answer of the order in progress.
    pub fn finish(&mut self) -> u64 {
        let mut answer = [0; 8];
        self.orders
            .read_exact(&mut answer)
            .expect("the worker died");
        u64::from_ne_bytes(answer)
    }

    fn ask(&mut self, order: Order, value: u64) -> u64 {
        self.send(order, value);
        self.finish()
    }

    /// Maps a fresh region, aligned to 2 MiB, or of whole GiB to one; the following orders are about it.
    pub fn map(&mut self, bytes: u64) {
        assert_eq!(self.ask(Order::Map, bytes), 0);
    }

    /// Writes one byte to each page of the region's next `bytes`.
    pub fn touch(&mut self, bytes: u64) {
        assert_eq!(self.ask(Order::Touch, bytes), 0);
    }

    /// The same, without waiting; `finish` waits.
    pub fn touch_start(&mut self, bytes: u64) {
        self.send(Order::Touch, bytes);
    }

    /// Writes one byte every `stride` bytes of the whole region, as `stress
    /// --vm-stride` does.  False if the worker was killed over it.
    pub fn touch_sparsely(&mut self, stride: u64) -> bool {
        self.send(Order::Stride, stride);
        let mut answer = [0; 8];
        self.orders.read_exact(&mut answer).is_ok()
    }

    /// Does every byte of the region hold what it should after
    /// `touch_sparsely`: what was written, and zero between?
    pub fn is_intact(&mut self, stride: u64) -> bool {
        self.ask(Order::Check, stride) == 0
    }

    /// Pages of the region that are mapped to the shared zero page.
    pub fn zero_pages(&mut self) -> u64 {
        self.ask(Order::Zeroes, 0)
    }

    /// Bytes of the region that are resident, without the shared zero page.
    pub fn resident(&mut self) -> u64 {
        self.ask(Order::Resident, 0)
    }

    /// Reads one byte of each touched page.
    pub fn read(&mut self) {
        assert_eq!(self.ask(Order::Read, 0), 0);
    }

    /// Reads one byte of each of the region's first pages, whatever is there.
    pub fn peek(&mut self, bytes: u64) {
        assert_eq!(self.ask(Order::Peek, bytes), 0);
    }

    /// Reads the first `bytes` of the disk, which become page cache of its cgroup.
    pub fn read_disk(&mut self, bytes: u64) {
        assert_eq!(self.ask(Order::ReadFile, bytes), 0);
    }

    /// Fills and empties 1 MiB so many times, without waiting; `finish` waits.  For each 64 KiB
    /// there are two page faults, of its first page and of one in its second 16 KiB.
    pub fn churn_start(&mut self, times: u64) {
        self.map(1 << 20);
        self.send(Order::Churn, times);
    }

    /// Maps and touches.
    pub fn fill(&mut self, bytes: u64) {
        self.map(bytes);
        self.touch(bytes);
    }

    /// Writes one byte to each page of the whole region, or one every `stride` bytes, by several threads at once that
    /// take turns in ranges of 2 MiB.
    pub fn touch_by_threads(&mut self, stride: u64) {
        assert_eq!(self.ask(Order::Threads, stride), 0);
    }

    /// Executes a program in its place, which fills a buffer of so many bytes and ends.
    pub fn execute(mut self, bytes: u64) {
        self.send(Order::Execute, bytes);
        let ended = waitpid(self.pid, None).unwrap();
        assert_eq!(ended, WaitStatus::Exited(self.pid, 0));
        // There is nothing left to kill.
        std::mem::forget(self);
    }

    /// Bytes of the region in PMD-sized folios.
    pub fn huge(&mut self) -> u64 {
        self.ask(Order::Huge, 0)
    }

    /// `madvise` on the region; 0 or an errno.
    pub fn advise(&mut self, advice: u64) -> u64 {
        self.ask(Order::Advise, advice)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = kill(self.pid, Signal::SIGKILL);
        let _ = waitpid(self.pid, None);
    }
}

/// A thread of the test that does the same again and again, until it is stopped, or dropped.
pub struct Busy<T> {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Busy<T> {
    /// Does `once` to `all`.
    pub fn with(mut all: T, once: impl Fn(&mut T) + Send + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let thread = spawn(move || {
            while !until.load(Ordering::Relaxed) {
                once(&mut all);
            }
            all
        });
        Busy {
            over,
            thread: Some(thread),
        }
    }

    /// What has become of it.
    pub fn stop(mut self) -> T {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// A test that fails leaves none beside the next one.
impl<T> Drop for Busy<T> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Does a new process get base pages only?
pub fn bound(group: &Group) -> bool {
    let mut worker = Worker::new(group);
    worker.fill(4 * MIB);
    worker.huge() == 0
}

/// Most of a region of this size is in PMD folios.
pub fn mostly_huge(worker: &mut Worker, bytes: u64) {
    let huge = worker.huge();
    assert!(huge >= bytes * 3 / 4, "{huge} of {bytes} bytes are huge");
}

/// The region a worker works on.
struct Region {
    start: usize,
    len: usize,
    touched: usize,
}

/// The worker's loop; ends when the test is gone.
fn serve(mut orders: UnixStream) {
    // SAFETY: a plain system call; the worker dies with the test.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let mut region = Region {
        start: 0,
        len: 0,
        touched: 0,
    };
    let mut bytes = [0; 16];
    while orders.read_exact(&mut bytes).is_ok() {
        let (order, value) = bytes.split_at(8);
        let order = u64::from_ne_bytes(order.try_into().unwrap());
        let value = u64::from_ne_bytes(value.try_into().unwrap());
        let answer = if order == Order::Map as u64 {
            region.map(value as usize)
        } else if order == Order::Touch as u64 {
            region.touch(value as usize)
        } else if order == Order::Read as u64 {
            region.read()
        } else if order == Order::Huge as u64 {
            region.smaps("AnonHugePages:")
        } else if order == Order::Stride as u64 {
            region.stride(value as usize)
        } else if order == Order::Check as u64 {
            region.check(value as usize)
        } else if order == Order::Zeroes as u64 {
            region.zero_pages()
        } else if order == Order::Resident as u64 {
            region.smaps("Rss:")
        } else if order == Order::Peek as u64 {
            region.peek(value as usize)
        } else if order == Order::Churn as u64 {
            region.churn(value)
        } else if order == Order::Threads as u64 {
            region.threads(value as usize)
        } else if order == Order::Execute as u64 {
            execute(value)
        } else if order == Order::ReadFile as u64 {
            read_disk(value)
        } else {
            region.advise(value)
        };
        if orders.write_all(&answer.to_ne_bytes()).is_err() {
            return;
        }
    }
}

/// Returns only if it failed.
fn execute(bytes: u64) -> u64 {
    let buffer = format!("bs={bytes}");
    let words = ["dd", "if=/dev/zero", "of=/dev/null", "count=1", &buffer];
    let error = Command::new("busybox").args(words).exec();
    eprintln!("busybox: {error}");
    // The test waits for its end.
    std::process::exit(1)
}

fn read_disk(bytes: u64) -> u64 {
    let read = File::open(DISK)
        .and_then(|disk| std::io::copy(&mut disk.take(bytes), &mut std::io::sink()));
    u64::from(read.ok() != Some(bytes))
}

impl Region {
    fn map(&mut self, len: usize) -> u64 {
        let align = if len % PUD == 0 { PUD } else { PMD };
        // SAFETY: a fresh anonymous mapping, never unmapped.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len + 2 * align,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return u64::MAX;
        }
        // Some of it stays forbidden on both sides, or the kernel would merge
        // the region with the last one, and smaps would count both.
        let start = (base as usize + 1).next_multiple_of(align);
        *self = Region {
            start,
            len,
            touched: 0,
        };
        // SAFETY: inside the mapping just made.
        let ret =
            unsafe { libc::mprotect(start as *mut _, len, libc::PROT_READ | libc::PROT_WRITE) };
        if ret == 0 { 0 } else { u64::MAX }
    }

    fn touch(&mut self, bytes: usize) -> u64 {
        let end = self.touched + bytes;
        if end > self.len {
            return 1;
        }
        for at in (self.touched..end).step_by(4096) {
            // SAFETY: inside the mapping, which nothing else refers to.
            unsafe { std::ptr::write_volatile((self.start + at) as *mut u8, 1) };
        }
        self.touched = end;
        0
    }

    fn churn(&self, times: u64) -> u64 {
        for _ in 0..times {
            for at in (0..self.len).step_by(64 << 10) {
                for page in [at, at + (16 << 10)] {
                    // SAFETY: inside the mapping, which nothing else refers to.
                    unsafe { std::ptr::write_volatile((self.start + page) as *mut u8, 1) };
                }
            }
            if self.advise(MADV_DONTNEED) != 0 {
                return 1;
            }
        }
        0
    }

    fn read(&self) -> u64 {
        for at in (0..self.touched).step_by(4096) {
            // SAFETY: inside the mapping.
            let byte = unsafe { std::ptr::read_volatile((self.start + at) as *const u8) };
            if byte != 1 {
                return 1;
            }
        }
        0
    }

    fn threads(&self, stride: usize) -> u64 {
        const THREADS: usize = 4;
        thread::scope(|scope| {
            for first in 0..THREADS {
                scope.spawn(move || {
                    for range in (first * PMD..self.len).step_by(THREADS * PMD) {
                        for at in (range..range + PMD).step_by(stride) {
                            // SAFETY: inside the mapping, of which each thread has ranges of its own.
                            unsafe { std::ptr::write_volatile((self.start + at) as *mut u8, 1) };
                        }
                    }
                });
            }
        });
        0
    }

    fn peek(&self, bytes: usize) -> u64 {
        for at in (0..bytes.min(self.len)).step_by(4096) {
            // SAFETY: inside the mapping.
            unsafe { std::ptr::read_volatile((self.start + at) as *const u8) };
        }
        0
    }

    fn stride(&self, stride: usize) -> u64 {
        for at in (0..self.len).step_by(stride) {
            // SAFETY: inside the mapping, which nothing else refers to.
            unsafe { std::ptr::write_volatile((self.start + at) as *mut u8, 1) };
        }
        0
    }

    /// Reads every byte, which maps the shared zero page where nothing is.
    fn check(&self, stride: usize) -> u64 {
        // SAFETY: the whole mapping, which nothing writes meanwhile.
        let all = unsafe { std::slice::from_raw_parts(self.start as *const u8, self.len) };
        // As slices, which memcmp compares: a loop over bytes takes its time in a test that is not optimised.
        let zeroes = vec![0; stride];
        let wrong = |part: &&[u8]| part[0] != 1 || part[1..] != zeroes[1..part.len()];
        all.chunks(stride).filter(wrong).count() as u64
    }

    /// The frame that a page never written maps when read is the zero page's.
    fn zero_pages(&self) -> u64 {
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let frames = |at: usize, pages: usize| -> Vec<Option<u64>> {
            let mut entries = vec![0; pages * 8];
            pagemap
                .read_exact_at(&mut entries, at as u64 / 512)
                .unwrap();
            let entries = entries.chunks(8);
            let entries = entries.map(|entry| u64::from_ne_bytes(entry.try_into().unwrap()));
            entries
                .map(|entry| (entry >> 63 == 1).then_some(entry & ((1 << 55) - 1)))
                .collect()
        };
        // SAFETY: a fresh mapping of one page, read once.
        let page = unsafe {
            let page = libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            std::ptr::read_volatile(page as *const u8);
            page as usize
        };
        let zero = frames(page, 1)[0].filter(|&frame| frame != 0);
        let zero = zero.expect("root sees frame numbers");
        let all = frames(self.start, self.len / 4096);
        all.into_iter().filter(|&frame| frame == Some(zero)).count() as u64
    }

    /// Bytes that smaps counts of the region under `key`.
    fn smaps(&self, key: &str) -> u64 {
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        let mut kib = 0;
        for line in smaps.lines() {
            if let Some((start, end)) = range_of(line) {
                inside = start < self.start + self.len && end > self.start;
            } else if let Some(rest) = line.strip_prefix(key).filter(|_| inside) {
                kib += rest.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
            }
        }
        kib << 10
    }

    fn advise(&self, advice: u64) -> u64 {
        // SAFETY: on our own mapping; after MADV_FREE nobody reads it.
        let ret = unsafe { libc::madvise(self.start as *mut _, self.len, advice as libc::c_int) };
        if ret == 0 {
            0
        } else {
            nix::errno::Errno::last_raw() as u64
        }
    }
}

/// The range of a mapping's first line in smaps.
fn range_of(line: &str) -> Option<(usize, usize)> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    Some((
        usize::from_str_radix(start, 16).ok()?,
        usize::from_str_radix(end, 16).ok()?,
    ))
}
