// SPDX-License-Identifier: GPL-2.0-only
//! What the carrier's kfuncs return, against the files in which the kernel shows the same: tests of the contract.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::carrier;
use crate::contract::{Done, Group, Outcome, require, touched};
use crate::figures::{Figures, Program};
use crate::groups::{self, leave};
use lab_guest::failure::Failure;
use lab_guest::knobs::{keyed, read, stall_in, write};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
const LRU_GEN: &str = "/sys/kernel/mm/lru_gen/enabled";
/// A device of zeroes, which take no memory: page cache of what is read there stays until it is closed.
const DISK: &str = "/dev/zram1";
/// Time that passes between two readings.
const NEAR: Duration = Duration::from_millis(200);
/// Pages that wait on a CPU for their list, and what else of the guest is at work.
const NEAR_BYTES: u64 = 2 * MIB;

/// A process in a cgroup, killed when dropped.
struct Process(Child);

impl Process {
    /// Runs `command` there; a shell enters the cgroup first.
    fn start(group: &Group, command: &str) -> Result<Self, Failure> {
        let script = format!("echo 0 >{}/cgroup.procs && {command}", group.0.display());
        Command::new("/bin/sh")
            .args(["-c", &script])
            .stderr(Stdio::null())
            .spawn()
            .map(Self)
            .map_err(|e| Failure::new("start a process", e))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Gone already, or about to be: there is nobody left to tell.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Brings a cgroup into full stall: its process exceeds memory.high with no swap, and is made to sleep.
fn stalled(group: &Group) -> Result<Process, Failure> {
    write(group.0.join("memory.swap.max"), "0")?;
    write(group.0.join("memory.high"), "4M")?;
    // Not in a system call: it sleeps on its way back to its own code.
    let own = std::env::current_exe().map_err(|e| Failure::new("find this program", e))?;
    let command = format!("exec {} {} 64", own.display(), groups::BALLAST);
    Process::start(group, &command)
}

/// Stall as a file has it: of some tasks, of all. Reading brings it up to date.
fn by_file(path: &Path) -> Result<(Duration, Duration), Failure> {
    let text = read(path)?;
    let of = |kind| Duration::from_micros(stall_in(&text, kind));
    Ok((of("some"), of("full")))
}

/// The same by kfunc.
fn require_equal(figures: &Figures, file: &Path) -> Result<(), Failure> {
    let (some, full) = by_file(file)?;
    let near = |a: Duration, b: Duration| a.abs_diff(b) <= NEAR;
    require(
        &format!("stall of {}", file.display()),
        near(figures.some, some) && near(figures.full, full),
        &(figures, some, full),
    )
}

pub fn stall_is_that_of_the_files() -> Outcome {
    let program = Program::load()?;
    let top = Group::new()?;
    let below = top.child(true)?;
    let beside = Group(top.0.join("beside"));
    groups::make(&beside.0)?;
    let _stalled = stalled(&below)?;
    sleep(Duration::from_secs(2));
    // From here on not all of them stall.
    let _busy = Process::start(&beside, "while :; do :; done")?;
    sleep(Duration::from_secs(2));
    for group in [&top, &below, &beside] {
        let figures = program.of(&group.0, true)?;
        require_equal(&figures, &group.0.join("memory.pressure"))?;
    }
    let second = Duration::from_secs(1);
    let all = program.of(&top.0, true)?;
    require("all of them stalled", all.full > second, &all)?;
    require("and then some", all.some > all.full + second, &all)?;
    Ok(Done::Passed)
}

/// The kernel does so itself, but every two seconds at best, and not while one task sleeps alone.
pub fn a_flush_brings_stall_up_to_date() -> Outcome {
    const STEP: Duration = Duration::from_millis(400);
    let program = Program::load()?;
    let group = Group::new()?;
    let _stalled = stalled(&group)?;
    sleep(Duration::from_secs(1));
    let mut saw = vec![program.of(&group.0, true)?.some];
    for _ in 0..3 {
        sleep(STEP);
        saw.push(program.of(&group.0, true)?.some);
    }
    require(
        "it grows each time",
        saw.windows(2).all(|two| two[1] > two[0] + STEP / 2),
        &saw,
    )?;
    Ok(Done::Passed)
}

/// A total that stands still is no calm.
pub fn a_flush_without_pressure_is_refused() -> Outcome {
    let program = Program::load()?;
    let group = Group::new()?;
    let mut saw = Vec::new();
    for on in ["1", "0", "1"] {
        write(group.0.join("cgroup.pressure"), on)?;
        saw.push(program.of(&group.0, true)?.refused);
    }
    require(
        "refused while off",
        matches!(saw[..], [false, true, false]),
        &saw,
    )?;
    Ok(Done::Passed)
}

pub fn the_root_has_its_own_stall() -> Outcome {
    let program = Program::load()?;
    // The module finds the root's by the first of its children.
    let (calm, group) = (Group::new()?, Group::new()?);
    let _stalled = stalled(&group)?;
    sleep(Duration::from_secs(2));
    let figures = program.of(Path::new(groups::ROOT), true)?;
    require("it is brought up to date", !figures.refused, &figures)?;
    require_equal(&figures, Path::new("/proc/pressure/memory"))?;
    let of_calm = program.of(&calm.0, true)?;
    let more = figures.some > of_calm.some + Duration::from_secs(1);
    require("not a child's", more, &(figures, of_calm))?;
    Ok(Done::Passed)
}

/// Which lists the kernel has, until this is dropped.
struct Lru(String);

impl Lru {
    fn set(multi_gen: bool) -> Result<Self, Failure> {
        let before = read(LRU_GEN)?.trim().to_owned();
        write(LRU_GEN, if multi_gen { "y" } else { "n" })?;
        Ok(Self(before))
    }
}

impl Drop for Lru {
    fn drop(&mut self) {
        // The next one sets it again.
        let _ = write(LRU_GEN, &self.0);
    }
}

/// The disk, of 64 MiB, made once and kept.
fn disk() -> Result<File, Failure> {
    if !Path::new(DISK).exists() {
        let number = read("/sys/class/zram-control/hot_add")?;
        require("the next zram is the second", number.trim() == "1", &number)?;
        write("/sys/block/zram1/disksize", "64M")?;
    }
    File::open(DISK).map_err(|e| Failure::new(format!("open {DISK}"), e))
}

/// Reads of the disk, from `begin` on, as a process of `group`.
fn read_disk(group: &Group, disk: &File, begin: u64, bytes: u64) -> Result<(), Failure> {
    let mut buffer = vec![0; 64 << 10];
    group.enter()?;
    let step = buffer.len();
    let ended = (begin..begin + bytes)
        .step_by(step)
        .try_for_each(|at| disk.read_exact_at(&mut buffer, at))
        .map_err(|e| Failure::new(format!("read {DISK}"), e));
    leave()?;
    ended
}

/// A figure of memory.stat.
fn stat(group: &Group, name: &str) -> Result<u64, Failure> {
    Ok(keyed(&read(group.0.join("memory.stat"))?, name))
}

fn require_near(what: &str, pages: u64, bytes: u64) -> Result<(), Failure> {
    let saw = pages.saturating_mul(PAGE);
    require(what, saw.abs_diff(bytes) <= NEAR_BYTES, &(saw, bytes))
}

pub fn page_cache_that_was_read_once_is_cold() -> Outcome {
    const READ: u64 = 32 * MIB;
    let program = Program::load()?;
    for multi_gen in [false, true] {
        let _lru = Lru::set(multi_gen)?;
        let (group, other) = (Group::new()?, Group::new()?);
        let disk = disk()?;
        read_disk(&group, &disk, 0, READ)?;
        let cold = program.of(&group.0, false)?.cold;
        require_near("by memory.stat", cold, stat(&group, "inactive_file")?)?;
        require_near("all that was read", cold, READ)?;
        require_near("not another's", program.of(&other.0, false)?.cold, 0)?;
        if !multi_gen {
            read_disk(&group, &disk, 0, READ)?;
            read_disk(&group, &disk, 0, READ)?;
            let hot = stat(&group, "active_file")?;
            require("read again", hot > READ - NEAR_BYTES, &hot)?;
            let cold = program.of(&group.0, false)?.cold;
            require_near("not what was read again", cold, 0)?;
        }
    }
    Ok(Done::Passed)
}

pub fn anonymous_pages_are_those_on_its_lists() -> Outcome {
    const FILLED: u64 = 16 * MIB;
    if !carrier::by_module() {
        return Ok(Done::Skipped("the kernel has other kfuncs for it"));
    }
    let program = Program::load()?;
    let (group, other) = (Group::new()?, Group::new()?);
    let fill = || {
        group.enter()?;
        let region = touched(FILLED as usize);
        leave()?;
        region
    };
    let require_all = |what: &str, bytes: u64| {
        require_near(what, program.of(&group.0, false)?.anon, bytes)?;
        require_near(what, stat(&group, "anon")? / PAGE, bytes)
    };
    let _multi_gen = Lru::set(true)?;
    let _young = fill()?;
    require_all("in generations", FILLED)?;
    // The youngest ones become the active list; what comes now is on the other.
    let _lists = Lru::set(false)?;
    require_all("on the active list", FILLED)?;
    let _new = fill()?;
    require_all("on both lists", 2 * FILLED)?;
    require_near("not another's", program.of(&other.0, false)?.anon, 0)?;
    Ok(Done::Passed)
}

/// Pages that the kernel keeps free: of each zone, by /proc/zoneinfo.
fn reserve() -> Result<u64, Failure> {
    let text = read("/proc/zoneinfo")?;
    let mut pages = 0;
    for zone in text
        .split("\nNode ")
        .filter(|zone| zone.contains("managed"))
    {
        let word = |name: &str| {
            let mut lines = zone.lines().map(str::trim);
            let line = lines.find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
        };
        let protected = zone
            .split_once("protection: (")
            .map_or("", |(_, rest)| rest);
        let protected = protected.split(')').next().unwrap_or_default().split(',');
        let protected: u64 = protected
            .filter_map(|word| word.trim().parse().ok())
            .max()
            .unwrap_or(0);
        let high: u64 = word("high ");
        let high = high.saturating_sub(word("boost "));
        pages += (protected + high).min(word("managed "));
    }
    Ok(pages)
}

pub fn what_is_left_is_that_of_the_machine() -> Outcome {
    const READ: u64 = 16 * MIB;
    let program = Program::load()?;
    let _lru = Lru::set(false)?;
    let group = Group::new()?;
    let disk = disk()?;
    read_disk(&group, &disk, 0, 2 * READ)?;
    for _ in 0..2 {
        read_disk(&group, &disk, READ, READ)?;
    }
    let figures = program.of(&group.0, false)?;
    let text = read("/proc/meminfo")?;
    let pages = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|rest| rest.trim_start_matches(':').trim().strip_suffix(" kB"));
        kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024 / PAGE
    };
    let parts = ["MemFree", "Inactive(file)", "Active(file)"].map(pages);
    let reserve = reserve()?;
    // Each of them is seen if it is left out.
    require(
        "enough of each",
        parts.iter().all(|part| *part > 2 * NEAR_BYTES / PAGE) && reserve > 2 * NEAR_BYTES / PAGE,
        &(parts, reserve),
    )?;
    let total = pages("MemTotal");
    require("all of it", figures.total == total, &(figures.total, total))?;
    let left = parts.iter().sum::<u64>().saturating_sub(reserve);
    require_near("left of it", figures.spare, left * PAGE)?;
    Ok(Done::Passed)
}
