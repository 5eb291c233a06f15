// SPDX-License-Identifier: GPL-2.0-only
//! What the end-to-end tests share: cgroups that clean up after themselves,
//! workers that use memory in them, and a running mthp_ext.
//!
//! They change the system's THP settings and load BPF programs, so they are
//! ignored by a plain `cargo test` and refuse to run outside the lab's VM.

#![allow(dead_code, reason = "each test program uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

pub mod caps;
pub mod ext;
pub mod inject;
pub mod own;
pub mod schema;
pub mod scrape;
pub mod settings;
pub mod trace;
pub mod worker;

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Once;
use std::time::{Duration, Instant};

use nix::pty::{OpenptyResult, Winsize, openpty};

pub const MIB: u64 = 1 << 20;

/// Emulated guests are slow; a test waits this long before it gives up.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A cgroup's name that would change a terminal, and how it is shown.
pub const HOSTILE: &str = "a\x1b[2J\r\u{202e}";
pub const HARMLESS: &str = "a\\x1b[2J\\x0d\\u{202e}";

const CGROUPS: &str = "/sys/fs/cgroup";
pub const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// A terminal of 80 by 24.
pub fn terminal() -> OpenptyResult {
    let size = Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    openpty(Some(&size), None).unwrap()
}

/// Brings the guest into the state every test begins with: all sizes allowed,
/// and a khugepaged that sleeps unless a test wakes it.
pub fn world() {
    static ONCE: Once = Once::new();
    only_in_the_lab();
    ONCE.call_once(|| {
        write(format!("{THP}/khugepaged/scan_sleep_millisecs"), "3600000");
        write(format!("{THP}/enabled"), "always");
        for size in sizes() {
            write(size.join("enabled"), "inherit");
        }
    });
}

/// Up to how many empty pages of a range khugepaged fills, and above how many the shrinker
/// splits; the kernel boots with 511.
pub fn max_ptes_none(pages: u64) {
    write(
        format!("{THP}/khugepaged/max_ptes_none"),
        &pages.to_string(),
    );
}

/// Refuses to run elsewhere.
pub fn only_in_the_lab() {
    assert!(
        std::env::var_os("LAB_RESULTS").is_some(),
        "this test changes the system it runs on: run it with `make test`, in the lab's VM"
    );
}

/// A setting of the kernel that is another one for as long as the guard lives.
pub struct Setting {
    file: String,
    usual: &'static str,
}

impl Setting {
    fn of(file: String, value: &str, usual: &'static str) -> Self {
        write(&file, value);
        Setting { file, usual }
    }

    /// Khugepaged works.
    pub fn khugepaged_awake() -> Self {
        write(format!("{THP}/khugepaged/pages_to_scan"), "100000");
        let sleep = format!("{THP}/khugepaged/scan_sleep_millisecs");
        Self::of(sleep, "10", "3600000")
    }

    /// Faults reclaim for a huge page.
    pub fn defrag_always() -> Self {
        Self::of(format!("{THP}/defrag"), "always", "madvise")
    }

    /// No large folios for anybody.
    pub fn thp_never() -> Self {
        Self::of(format!("{THP}/enabled"), "never", "always")
    }

    /// The multi-gen LRU instead of the classic one.
    pub fn multi_gen() -> Self {
        Self::of("/sys/kernel/mm/lru_gen/enabled".to_owned(), "y", "n")
    }

    /// What goes to swap is compressed in memory first.
    pub fn zswap() -> Self {
        Self::of("/sys/module/zswap/parameters/enabled".to_owned(), "Y", "N")
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = fs::write(&self.file, self.usual);
    }
}

/// Throws out what `group` has in all generations but the two youngest.
pub fn evict_old_generations(group: &Group) {
    let file = "/sys/kernel/debug/lru_gen";
    let text = read(file);
    // memcg ID PATH, node NODE, then a line for each generation, the youngest one last.
    let mine = text
        .split("memcg")
        .find(|part| part.split_whitespace().nth(1) == Some(&group.name()));
    let mine: Vec<&str> = mine.unwrap().lines().collect();
    let first = |line: &str| line.split_whitespace().next().unwrap().to_owned();
    let newest: u64 = first(mine.last().unwrap()).parse().unwrap();
    let evict = format!("- {} 0 {} 0 1000000000", first(mine[0]), newest - 2);
    // The first time they become empty, the second time they end.
    write(file, &evict);
    write(file, &evict);
}

/// Swap on zram; off again in the end, or what later tests fill would go there.
pub struct Swap;

impl Swap {
    pub fn on() -> Swap {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            write("/sys/block/zram0/disksize", "512M");
            worked(&busybox(&["mkswap", ZRAM]));
        });
        worked(&busybox(&["swapon", ZRAM]));
        Swap
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        swap_off(ZRAM);
    }
}

const ZRAM: &str = "/dev/zram0";
/// Named as its directory in configfs is.
const SLOW: &str = "/dev/slow";

/// Swap on a device that is no zram, of less priority than what is on before: little, and unused.
pub struct SlowSwap;

impl SlowSwap {
    pub fn on() -> SlowSwap {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let configfs = "/sys/kernel/config";
            worked(&busybox(&["mount", "-t", "configfs", "none", configfs]));
            let device = Path::new(configfs).join("nullb/slow");
            fs::create_dir(&device).unwrap();
            for (file, value) in [("size", "16"), ("memory_backed", "1"), ("power", "1")] {
                write(device.join(file), value);
            }
            worked(&busybox(&["mkswap", SLOW]));
        });
        worked(&busybox(&["swapon", SLOW]));
        SlowSwap
    }
}

impl Drop for SlowSwap {
    fn drop(&mut self) {
        swap_off(SLOW);
    }
}

fn swap_off(device: &str) {
    let out = busybox(&["swapoff", device]);
    // A second panic would end the whole program.
    if !std::thread::panicking() {
        worked(&out);
    }
}

fn busybox(args: &[&str]) -> Output {
    Command::new("busybox").args(args).output().unwrap()
}

fn worked(out: &Output) {
    assert!(out.status.success(), "{out:?}");
}

/// What `disk` makes.
pub const DISK: &str = "/dev/zram1";

/// A disk of 512 MiB of zeroes that need no memory, made once and kept: what is read of
/// it is page cache until the file returned here is closed.
pub fn disk() -> File {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        assert_eq!(read("/sys/class/zram-control/hot_add").trim(), "1");
        write("/sys/block/zram1/disksize", "512M");
    });
    File::open(DISK).unwrap()
}

/// The directories of the sizes anonymous memory can have.
fn sizes() -> Vec<PathBuf> {
    fs::read_dir(THP)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("enabled").exists())
        .collect()
}

/// Other sizes than these, in KiB, are off for as long as the guard lives.
pub fn sizes_on(kib: &[u64]) -> Vec<Setting> {
    let others = sizes().into_iter().filter(|size| {
        let name = size.file_name().unwrap().to_string_lossy().into_owned();
        !kib.iter().any(|kib| name == format!("hugepages-{kib}kB"))
    });
    let off = |size: PathBuf| {
        let file = size.join("enabled").to_string_lossy().into_owned();
        Setting::of(file, "never", "inherit")
    };
    others.map(off).collect()
}

/// A counter of one size since boot, e.g. `anon_fault_alloc`.
pub fn count(kib: u64, counter: &str) -> u64 {
    read(format!("{THP}/hugepages-{kib}kB/stats/{counter}"))
        .trim()
        .parse()
        .unwrap()
}

/// A counter of /proc/vmstat.
pub fn vmstat(name: &str) -> u64 {
    keyed(&read("/proc/vmstat"), name)
}

/// The value of a line "name value".
pub fn keyed(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .unwrap_or_else(|| panic!("there is no {name}"))
        .trim()
        .parse()
        .unwrap()
}

/// A counter of one size, over all sizes.
pub fn count_all(counter: &str) -> u64 {
    sizes()
        .iter()
        .map(|size| {
            read(size.join("stats").join(counter))
                .trim()
                .parse::<u64>()
                .unwrap()
        })
        .sum()
}

pub fn write(path: impl AsRef<Path>, value: &str) {
    let path = path.as_ref();
    fs::write(path, value).unwrap_or_else(|e| panic!("{} <- {value}: {e}", path.display()));
}

pub fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Waits until `what` is true.
pub fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < PATIENCE, "not in {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a line of measured figures to the host.
pub fn record(value: &serde_json::Value) {
    use std::io::Write;
    let Some(path) = std::env::var_os("LAB_RESULTS") else {
        return;
    };
    let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(format!("{value}\n").as_bytes()).unwrap();
}

/// Bytes that are free on a NUMA node.
pub fn free_on_node(node: &str) -> u64 {
    let text = read(format!("/sys/devices/system/node/node{node}/meminfo"));
    let line = text.lines().find(|line| line.contains("MemFree:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(3).unwrap().parse().unwrap();
    kib << 10
}

/// A cgroup of a test.  Dropped: its processes are killed and it is removed,
/// and with it what is below.
pub struct Group {
    pub path: PathBuf,
    top: bool,
}

impl Group {
    /// A new cgroup below the root.
    pub fn new(name: &str) -> Self {
        Self::make(Path::new(CGROUPS).join(name), true)
    }

    /// A new cgroup in this one, with the memory controller.  None of the test's processes
    /// may run in this one.
    pub fn child(&self, name: &str) -> Self {
        // A process leaves its cgroup with its last switch of contexts (cgroup_task_dead()),
        // which may come after wait() has returned to its parent: until then, EBUSY.
        eventually("the cgroup is without processes", || {
            match fs::write(self.path.join("cgroup.subtree_control"), "+memory") {
                Err(e) if e.kind() == ErrorKind::ResourceBusy => false,
                done => {
                    done.unwrap_or_else(|e| panic!("{}: +memory: {e}", self.name()));
                    true
                }
            }
        });
        Self::make(self.path.join(name), false)
    }

    /// A new cgroup in this one, without the memory controller.
    pub fn child_without_memory(&self, name: &str) -> Self {
        Self::make(self.path.join(name), false)
    }

    fn make(path: PathBuf, top: bool) -> Self {
        fs::create_dir(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Group { path, top }
    }

    pub fn set(&self, file: &str, value: &str) {
        write(self.path.join(file), value);
    }

    pub fn get(&self, file: &str) -> String {
        read(self.path.join(file))
    }

    /// A file that is one number.
    pub fn bytes(&self, file: &str) -> u64 {
        self.get(file).trim().parse().unwrap()
    }

    /// Takes memory from it, as far as that can be done.
    pub fn reclaim(&self, bytes: u64) {
        match fs::write(self.path.join("memory.reclaim"), bytes.to_string()) {
            Err(e) if e.kind() != ErrorKind::WouldBlock => panic!("{}: {e}", self.name()),
            _ => {}
        }
    }

    /// Bytes of page cache that it has on a NUMA node.
    pub fn files_on(&self, node: &str) -> u64 {
        let stat = self.get("memory.numa_stat");
        let files = stat.lines().find_map(|line| line.strip_prefix("file "));
        let mut nodes = files.unwrap().split_whitespace();
        let key = format!("N{node}=");
        let bytes = nodes.find_map(|word| word.strip_prefix(&key));
        bytes.unwrap().parse().unwrap()
    }

    /// Name as mthp_ext prints it.
    pub fn name(&self) -> String {
        format!("/{}", self.path.strip_prefix(CGROUPS).unwrap().display())
    }

    /// Microseconds of full memory stall so far.
    pub fn full_stall_us(&self) -> u64 {
        let text = self.get("memory.pressure");
        let full = text.lines().find(|line| line.starts_with("full")).unwrap();
        full.rsplit_once("total=")
            .unwrap()
            .1
            .trim()
            .parse()
            .unwrap()
    }

    /// Removes it now.
    pub fn remove(self) {
        remove(&self.path);
        std::mem::forget(self);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.top {
            remove(&self.path);
        }
    }
}

fn remove(path: &Path) {
    let _ = fs::write(path.join("cgroup.kill"), "1");
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            remove(&entry.path());
        }
    }
    let start = Instant::now();
    // Killed processes take a moment to leave.
    while fs::remove_dir(path).is_err() && path.exists() && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
    }
}
