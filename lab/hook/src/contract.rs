// SPDX-License-Identifier: GPL-2.0-only
//! The contract of the hook, whoever carries it: what policies are asked, and for how long. `lab-hook contract` runs
//! the tests one after the other and prints TAP.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;

use crate::carrier;
use crate::faults::Region;
use crate::groups::{self, leave};
use crate::kfuncs::{
    a_flush_brings_stall_up_to_date, a_flush_without_pressure_is_refused,
    anonymous_pages_are_those_on_its_lists, page_cache_that_was_read_once_is_cold,
    stall_is_that_of_the_files, the_root_has_its_own_stall, what_is_left_is_that_of_the_machine,
};
use crate::knobs;
use crate::recorder::{Call, Recorder};
use lab_guest::failure::Failure;
use lab_guest::knobs::{number, read, swap, write};

/// The word of the command line.
pub const CONTRACT: &str = "contract";
/// The same for a process that lives in a cgroup: `lab-hook tenant GROUP`.
pub const TENANT: &str = "tenant";

const FAULT: u64 = 1;
const SWAPIN: u64 = 2;
const KHUGEPAGED: u64 = 3;
const COLLAPSE: u64 = 4;
const ADVISED: u64 = 1;

const KIB: usize = 1024;
const PMD: usize = 2048 * KIB;
const PMD_ORDERS: u64 = 1 << 9;
const KIB_64: u64 = 1 << 4;
const KIB_128: u64 = 1 << 5;
const SWAP_BYTES: u64 = 64 << 20;
const MIN_FREE_KIB: u64 = 8 << 10;
const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than the hook stays on without a policy.
const OFF: Duration = Duration::from_secs(4);
const FTRACE: &str = "/proc/sys/kernel/ftrace_enabled";
const PATCHED: &str = "/sys/kernel/tracing/enabled_functions";
const HOOKED: &str = "__thp_vma_allowable_orders";
const DROPPED: &str = "/sys/module/mthp_hook/parameters/dropped";

/// How a test ended that did not fail.
pub enum Done {
    Passed,
    /// It is not about this kernel, or this carrier.
    Skipped(&'static str),
}

/// Of a test.
pub type Outcome = Result<Done, Failure>;

/// Its name in the report, and what runs.
type Test = (&'static str, fn() -> Outcome);

macro_rules! tests {
    ($($name:ident,)*) => { &[$((stringify!($name), $name)),*] };
}

const TESTS: &[Test] = tests![
    each_policy_is_asked_about_what_those_above_left,
    a_policy_above_one_that_is_there_is_asked,
    an_answer_only_narrows,
    what_was_not_offered_is_counted,
    smaps_is_not_asked,
    shared_memory_is_not_asked,
    what_prctl_forbids_is_not_asked,
    advice_is_passed,
    swap_in_is_told_from_a_fault,
    a_collapse_is_of_the_cgroup_of_the_mm,
    registering_with_khugepaged_is_not_asked,
    a_second_policy_is_refused,
    a_cgroup_without_memory_is_refused,
    who_may_not_write_the_cgroup_is_refused,
    an_update_is_for_the_same_cgroup,
    removing_the_cgroup_ends_the_link,
    a_closed_link_asks_nobody,
    ftrace_stays_on_while_attached,
    the_hook_goes_with_the_last_link,
    stall_is_that_of_the_files,
    a_flush_brings_stall_up_to_date,
    a_flush_without_pressure_is_refused,
    the_root_has_its_own_stall,
    page_cache_that_was_read_once_is_cold,
    anonymous_pages_are_those_on_its_lists,
    what_is_left_is_that_of_the_machine,
];

/// Runs the one of this name, or all of them.
///
/// # Errors
/// The guest cannot be prepared, or a test failed.
pub fn run(only: Option<&str>) -> Result<(), Failure> {
    knobs::prepare()?;
    write("/sys/kernel/mm/transparent_hugepage/enabled", "always")?;
    sizes(&[])?;
    if !read("/proc/swaps")?.contains("zram") {
        swap(SWAP_BYTES, None, MIN_FREE_KIB)?;
    }
    let mut failed = 0;
    let tests: Vec<&Test> = TESTS
        .iter()
        .filter(|(name, _)| only.is_none_or(|only| only == *name))
        .collect();
    for (number, (name, test)) in tests.iter().enumerate() {
        let number = number + 1;
        let ended = test();
        leave()?;
        match ended {
            Ok(Done::Passed) => println!("ok {number} {name}"),
            Ok(Done::Skipped(why)) => println!("ok {number} {name} # SKIP {why}"),
            Err(why) => {
                failed += 1;
                println!("# {why}\nnot ok {number} {name}");
            }
        }
    }
    println!("1..{}", tests.len());
    match failed {
        0 => Ok(()),
        _ => Err(Failure::other(
            "test the contract",
            format!("{failed} tests failed"),
        )),
    }
}

/// A cgroup of a test's own, removed when dropped.
pub struct Group(pub PathBuf);

impl Group {
    /// Below the root.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new() -> Result<Self, Failure> {
        thread_local!(static MADE: Cell<u32> = const { Cell::new(0) });
        MADE.set(MADE.get() + 1);
        let path = Path::new(groups::ROOT).join(format!("contract{}", MADE.get()));
        groups::make(&path)?;
        Ok(Self(path))
    }

    /// A cgroup in it.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn child(&self, memory: bool) -> Result<Self, Failure> {
        if memory {
            write(self.0.join("cgroup.subtree_control"), "+memory")?;
        }
        let path = self.0.join("child");
        groups::make(&path)?;
        Ok(Self(path))
    }

    /// Moves this process there.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn enter(&self) -> Result<(), Failure> {
        write(self.0.join("cgroup.procs"), "0")
    }

    fn id(&self) -> Result<u64, Failure> {
        carrier::id(&self.0).map_err(|e| Failure::new("read the id of a cgroup", e))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its process leaves first; a test may have removed it.
        let _ = leave();
        let _ = fs::remove_dir(&self.0);
    }
}

/// These sizes are on, beside 2 MiB, and no others.
fn sizes(kib: &[u32]) -> Result<(), Failure> {
    for size in [16, 32, 64, 128, 256, 512, 1024] {
        knobs::large(size, kib.contains(&size))?;
    }
    write(
        "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled",
        "inherit",
    )
}

/// What must be so.
///
/// # Errors
/// It is not.
pub fn require(what: &str, is: bool, saw: &impl std::fmt::Debug) -> Result<(), Failure> {
    match is {
        true => Ok(()),
        false => Err(Failure::other(what, format!("saw {saw:?}"))),
    }
}

/// Of calls that there are, each one.
fn each(what: &str, calls: &[Call], is: impl Fn(&Call) -> bool) -> Result<(), Failure> {
    require(what, !calls.is_empty() && calls.iter().all(is), &calls)
}

/// What a system call returned.
fn done(what: &str, ret: i64) -> Result<(), Failure> {
    Errno::result(ret)
        .map(drop)
        .map_err(|e| Failure::new(what, e))
}

type Attached = (Group, Recorder, OwnedFd);

/// A cgroup with a policy, until the link is dropped.
fn attached(kib: &[u32]) -> Result<Attached, Failure> {
    let group = Group::new()?;
    sizes(kib)?;
    let (policy, link) = Recorder::at(&group.0)?;
    Ok((group, policy, link))
}

/// The same with this process in it.
fn entered(kib: &[u32]) -> Result<Attached, Failure> {
    let it = attached(kib)?;
    it.0.enter()?;
    Ok(it)
}

/// What a policy is asked about 64 KiB of new memory.
fn of_faults(policy: &Recorder) -> Result<Vec<Call>, Failure> {
    policy.answer(!0, 0)?;
    drop(touched(64 * KIB)?);
    Ok(own(policy.calls()?))
}

/// Writes to each page of new memory.
///
/// # Errors
/// There is no room for it.
pub fn touched(bytes: usize) -> Result<Region, Failure> {
    let region = Region::new(bytes)?;
    (0..bytes).step_by(4 * KIB).for_each(|at| region.touch(at));
    Ok(region)
}

fn madvise(region: &Region, bytes: usize, advice: i32) -> Result<(), Failure> {
    // SAFETY: a mapping of our own; what is advised keeps its content.
    let ret = unsafe { libc::madvise(region.start().cast(), bytes, advice) };
    done(&format!("madvise {advice}"), ret.into())
}

fn own(calls: Vec<Call>) -> Vec<Call> {
    let pid = u64::from(std::process::id());
    calls.into_iter().filter(|call| call.pid == pid).collect()
}

fn each_policy_is_asked_about_what_those_above_left() -> Outcome {
    let above = Group::new()?;
    let below = above.child(true)?;
    sizes(&[64, 128])?;
    let (parent, _parent) = Recorder::at(&above.0)?;
    let (child, _child) = Recorder::at(&below.0)?;
    parent.answer(KIB_64, 0)?;
    below.enter()?;
    let _region = touched(64 * KIB)?;
    leave()?;
    let (of_parent, of_child) = (own(parent.calls()?), own(child.calls()?));
    let ids = (above.id()?, below.id()?);
    let full = |call: &Call| call.orders & (KIB_64 | KIB_128) == KIB_64 | KIB_128;
    require(
        "the one above is offered both sizes",
        of_parent.iter().any(full),
        &of_parent,
    )?;
    let left = |call: &Call| (call.orders, call.reason) == (KIB_64, FAULT);
    each("the one below is offered what is left", &of_child, left)?;
    for (calls, attached) in [(&of_parent, ids.0), (&of_child, ids.1)] {
        let names = |call: &Call| (call.cgrp, call.attached) == (ids.1, attached);
        each(&format!("cgroups of the call, of {ids:?}"), calls, names)?;
    }
    Ok(Done::Passed)
}

fn a_policy_above_one_that_is_there_is_asked() -> Outcome {
    let above = Group::new()?;
    let below = above.child(true)?;
    sizes(&[64])?;
    let (child, _child) = Recorder::at(&below.0)?;
    let (parent, _parent) = Recorder::at(&above.0)?;
    below.enter()?;
    let _region = touched(64 * KIB)?;
    leave()?;
    for policy in [&parent, &child] {
        let calls = own(policy.calls()?);
        require("each is asked", !calls.is_empty(), &calls)?;
    }
    Ok(Done::Passed)
}

fn an_answer_only_narrows() -> Outcome {
    let (_group, policy, _link) = entered(&[64])?;
    policy.answer(KIB_64, 0x1e0)?;
    let before = (knobs::large_faults(64)?, knobs::large_faults(128)?);
    let _region = touched(PMD)?;
    leave()?;
    let after = (knobs::large_faults(64)?, knobs::large_faults(128)?);
    require(
        "folios of 64 KiB",
        after.0 - before.0 == 32,
        &(before, after),
    )?;
    require("none that is larger", after.1 == before.1, &(before, after))?;
    Ok(Done::Passed)
}

fn what_was_not_offered_is_counted() -> Outcome {
    if !carrier::by_module() {
        return Ok(Done::Skipped("the kernel counts it elsewhere"));
    }
    let (_group, policy, _link) = entered(&[64])?;
    let before = number(DROPPED)?;
    of_faults(&policy)?;
    let between = number(DROPPED)?;
    require("not counted", between == before, &(before, between))?;
    policy.answer(KIB_64, 0x1e0)?;
    drop(touched(64 * KIB)?);
    let after = number(DROPPED)?;
    require("counted", after > between, &(between, after))?;
    Ok(Done::Passed)
}

fn smaps_is_not_asked() -> Outcome {
    let (_group, policy, _link) = entered(&[])?;
    policy.answer(0, 0)?;
    let region = touched(PMD)?;
    policy.answer(0, 0)?;
    let text = read("/proc/self/smaps")?;
    let calls = own(policy.calls()?);
    let start = format!("{:x}-", region.map_start());
    // Reading takes memory, too.
    let asked = calls.iter().filter(|call| call.reason != FAULT).count();
    require("asked for nothing else than faults", asked == 0, &calls)?;
    let eligible = text
        .split_once(&start)
        .and_then(|(_, rest)| rest.split_once("THPeligible:"))
        .map(|(_, rest)| rest.trim_start().starts_with('1'));
    require(
        "THPeligible tells the configuration",
        eligible == Some(true),
        &eligible,
    )?;
    Ok(Done::Passed)
}

fn shared_memory_is_not_asked() -> Outcome {
    let shmem = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let (_group, policy, _link) = entered(&[64])?;
    write(shmem, "always")?;
    policy.answer(!0, 0)?;
    // SAFETY: a new mapping, at an address that the kernel chooses; written to inside.
    let map = unsafe {
        let map = libc::mmap(
            std::ptr::null_mut(),
            2 * PMD,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if map != libc::MAP_FAILED {
            map.cast::<u8>().add(PMD).write_volatile(1);
        }
        map
    };
    let calls = own(policy.calls()?);
    if map != libc::MAP_FAILED {
        // SAFETY: the whole mapping, to which no reference is left.
        unsafe { libc::munmap(map, 2 * PMD) };
    }
    write(shmem, "never")?;
    require("it was mapped", map != libc::MAP_FAILED, &Errno::last())?;
    require("nobody is asked", calls.is_empty(), &calls)?;
    Ok(Done::Passed)
}

fn what_prctl_forbids_is_not_asked() -> Outcome {
    let (_group, policy, _link) = entered(&[64])?;
    let disable = |on: libc::c_ulong| {
        // SAFETY: takes numbers.
        let ret = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, on, 0, 0, 0) };
        done("prctl", ret.into())
    };
    disable(1)?;
    let calls = of_faults(&policy)?;
    disable(0)?;
    require("nobody is asked", calls.is_empty(), &calls)?;
    Ok(Done::Passed)
}

fn advice_is_passed() -> Outcome {
    let (_group, policy, _link) = entered(&[64])?;
    let plain = of_faults(&policy)?;
    let region = Region::new(PMD)?;
    madvise(&region, PMD, libc::MADV_HUGEPAGE)?;
    policy.answer(!0, 0)?;
    region.touch(0);
    let advised = own(policy.calls()?);
    each("without advice", &plain, |call| call.flags == 0)?;
    each("with advice", &advised, |call| call.flags == ADVISED)?;
    Ok(Done::Passed)
}

fn swap_in_is_told_from_a_fault() -> Outcome {
    let (_group, policy, _link) = entered(&[64])?;
    policy.answer(0, 0)?;
    let region = touched(PMD)?;
    madvise(&region, PMD, libc::MADV_PAGEOUT)?;
    policy.answer(0, 0)?;
    (0..PMD).step_by(64 * KIB).for_each(|at| region.touch(at));
    let calls = own(policy.calls()?);
    require("asked more than once", calls.len() > 8, &calls)?;
    each("by swap-in alone", &calls, |call| call.reason == SWAPIN)?;
    Ok(Done::Passed)
}

/// Another process, which holds 2 MiB of base pages, advised; killed when dropped.
struct Tenant {
    child: Child,
    at: usize,
}

impl Tenant {
    /// In `group`, whose policies must refuse everything until it is there.
    fn new(group: &Group) -> Result<Self, Failure> {
        let mut child = Command::new("/proc/self/exe")
            .arg(TENANT)
            .arg(&group.0)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| Failure::new("start a tenant", e))?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out)
                .read_line(&mut line)
                .map_err(|e| Failure::new("read from the tenant", e))?;
        }
        let at = line.trim().parse();
        let tenant = Self {
            child,
            at: at.unwrap_or_default(),
        };
        require("the tenant says where its memory is", tenant.at != 0, &line)?;
        Ok(tenant)
    }

    /// Collapses its memory, from this process.
    fn collapse(&self) -> Result<(), Failure> {
        let vec = libc::iovec {
            iov_base: self.at as *mut libc::c_void,
            iov_len: PMD,
        };
        // SAFETY: takes a pid; the descriptor is closed by the owner made here.
        let ret = unsafe {
            let pidfd = libc::syscall(libc::SYS_pidfd_open, self.child.id(), 0);
            let ret = libc::syscall(
                libc::SYS_process_madvise,
                pidfd,
                &raw const vec,
                1usize,
                libc::MADV_COLLAPSE,
                0,
            );
            libc::close(pidfd as i32);
            ret
        };
        done("collapse the tenant's memory", ret)
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        // Gone already, or about to be: there is nobody left to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `lab-hook tenant GROUP`.
///
/// # Errors
/// It cannot live there.
pub fn tenant(group: &str) -> Result<(), Failure> {
    write(Path::new(group).join("cgroup.procs"), "0")?;
    let region = Region::new(PMD)?;
    // Advice registers the mm with khugepaged, if there is memory already.
    region.touch(0);
    madvise(&region, PMD, libc::MADV_HUGEPAGE)?;
    (0..PMD).step_by(4 * KIB).for_each(|at| region.touch(at));
    println!("{}", region.start() as usize);
    loop {
        sleep(PATIENCE);
        std::hint::black_box(&region);
    }
}

/// Whoever asks for it: this process is elsewhere.
fn a_collapse_is_of_the_cgroup_of_the_mm() -> Outcome {
    let (group, policy, _link) = attached(&[])?;
    policy.answer(0, 0)?;
    let tenant = Tenant::new(&group)?;
    let refused = tenant.collapse();
    let calls = own(policy.calls()?);
    let id = group.id()?;
    let as_expected =
        |call: &Call| (call.reason, call.cgrp, call.orders) == (COLLAPSE, id, PMD_ORDERS);
    each("it is asked", &calls, as_expected)?;
    require("and its answer binds", refused.is_err(), &refused)?;
    policy.answer(!0, 0)?;
    tenant.collapse()?;
    Ok(Done::Passed)
}

/// It is for good, so a policy that refuses for the moment has no say; khugepaged asks it later.
fn registering_with_khugepaged_is_not_asked() -> Outcome {
    let (group, policy, _link) = attached(&[])?;
    policy.answer(0, 0)?;
    let tenant = Tenant::new(&group)?;
    let pid = u64::from(tenant.child.id());
    let calls = policy.calls()?;
    let faults = calls
        .iter()
        .filter(|call| call.pid == pid)
        .all(|call| call.reason == FAULT);
    require("its own questions are those of faults", faults, &calls)?;
    policy.answer(0, 0)?;
    knobs::hurry(true)?;
    let found = wait_for(|| {
        let calls = policy.calls()?;
        Ok(calls
            .into_iter()
            .find(|call| call.reason == KHUGEPAGED && call.pid != pid))
    });
    knobs::hurry(false)?;
    let found = found?;
    let id = group.id()?;
    require(
        "khugepaged asks",
        found.is_some_and(|call| call.cgrp == id),
        &found,
    )?;
    Ok(Done::Passed)
}

fn wait_for<T>(mut what: impl FnMut() -> Result<Option<T>, Failure>) -> Result<Option<T>, Failure> {
    let begin = Instant::now();
    loop {
        let found = what()?;
        if found.is_some() || begin.elapsed() > PATIENCE {
            return Ok(found);
        }
        sleep(Duration::from_millis(20));
    }
}

fn errno<T>(result: std::io::Result<T>) -> Option<Errno> {
    let error = result.err()?;
    Some(Errno::from_raw(error.raw_os_error().unwrap_or_default()))
}

fn a_second_policy_is_refused() -> Outcome {
    let group = Group::new()?;
    let (_first, link) = Recorder::at(&group.0)?;
    let second = Recorder::filled(&group.0)?;
    let refused = errno(second.link(&group.0));
    require("EEXIST", refused == Some(Errno::EEXIST), &refused)?;
    drop(link);
    let later = errno(second.link(&group.0));
    require("and once the first has gone, none", later.is_none(), &later)?;
    Ok(Done::Passed)
}

fn a_cgroup_without_memory_is_refused() -> Outcome {
    let group = Group::new()?;
    let child = group.child(false)?;
    let refused = errno(Recorder::filled(&child.0)?.link(&child.0));
    require("ENODEV", refused == Some(Errno::ENODEV), &refused)?;
    Ok(Done::Passed)
}

/// The right is shown by an open cgroup.procs.
fn who_may_not_write_the_cgroup_is_refused() -> Outcome {
    if !carrier::by_module() {
        return Ok(Done::Skipped("the kernel looks at the cgroup itself"));
    }
    let (group, other) = (Group::new()?, Group::new()?);
    let open = |path: PathBuf, writing: bool| {
        File::options()
            .read(!writing)
            .write(writing)
            .open(&path)
            .map_err(|e| Failure::new(format!("open {}", path.display()), e))
    };
    let mut saw = Vec::new();
    for (file, wanted) in [
        (open(group.0.join("cgroup.procs"), true)?, None),
        (
            open(group.0.join("cgroup.procs"), false)?,
            Some(Errno::EACCES),
        ),
        (
            open(group.0.join("cgroup.freeze"), true)?,
            Some(Errno::EACCES),
        ),
        (
            open(other.0.join("cgroup.procs"), true)?,
            Some(Errno::EACCES),
        ),
        (open("/dev/null".into(), true)?, Some(Errno::EACCES)),
    ] {
        saw.push((errno(Recorder::load()?.fill_with(&group.0, &file)?), wanted));
    }
    require(
        "own file alone",
        saw.iter().all(|(got, wanted)| got == wanted),
        &saw,
    )?;
    Ok(Done::Passed)
}

fn an_update_is_for_the_same_cgroup() -> Outcome {
    let (group, other) = (Group::new()?, Group::new()?);
    sizes(&[64])?;
    let (first, link) = Recorder::at(&group.0)?;
    if carrier::by_module() {
        let refused = errno(Recorder::filled(&other.0)?.replace(&link));
        require(
            "EINVAL for another cgroup",
            refused == Some(Errno::EINVAL),
            &refused,
        )?;
    }
    let second = Recorder::filled(&group.0)?;
    let updated = errno(second.replace(&link));
    require("updated", updated.is_none(), &updated)?;
    first.answer(!0, 0)?;
    group.enter()?;
    let new = of_faults(&second)?;
    let old = first.calls()?;
    require("the old one is not asked", old.is_empty(), &old)?;
    require("the new one is", !new.is_empty(), &new)?;
    Ok(Done::Passed)
}

fn hung_up(link: &OwnedFd, timeout: Duration) -> Result<bool, Failure> {
    let mut poll = libc::pollfd {
        fd: link.as_fd().as_raw_fd(),
        events: 0,
        revents: 0,
    };
    // SAFETY: one descriptor, that lives through the call.
    let ret = unsafe { libc::poll(&raw mut poll, 1, timeout.as_millis() as i32) };
    done("poll a link", ret.into())?;
    Ok(poll.revents & libc::POLLHUP != 0)
}

fn removing_the_cgroup_ends_the_link() -> Outcome {
    let group = Group::new()?;
    let (_policy, link) = Recorder::at(&group.0)?;
    require(
        "it is there",
        !hung_up(&link, Duration::ZERO)?,
        &"a hang-up",
    )?;
    fs::remove_dir(&group.0).map_err(|e| Failure::new("remove the cgroup", e))?;
    require("it hangs up", hung_up(&link, PATIENCE)?, &"no hang-up")?;
    Ok(Done::Passed)
}

fn a_closed_link_asks_nobody() -> Outcome {
    let (_group, policy, link) = entered(&[64])?;
    let before = of_faults(&policy)?;
    drop(link);
    let closed = of_faults(&policy)?;
    require("asked while attached", !before.is_empty(), &before)?;
    require("not asked any more", closed.is_empty(), &closed)?;
    Ok(Done::Passed)
}

fn ftrace_stays_on_while_attached() -> Outcome {
    if !carrier::by_module() {
        return Ok(Done::Skipped("the kernel needs no ftrace"));
    }
    let group = Group::new()?;
    let (_policy, link) = Recorder::at(&group.0)?;
    let refused = write(FTRACE, "0").is_err();
    // Before anything can fail: the other tests need it.
    write(FTRACE, "1")?;
    require("it cannot be switched off", refused, &"0")?;
    drop(link);
    sleep(OFF);
    if write(FTRACE, "0").is_err() {
        return Ok(Done::Passed); // Newer kernels keep it on for good.
    }
    let attached = errno(Recorder::filled(&group.0)?.link(&group.0));
    write(FTRACE, "1")?;
    require(
        "EBUSY without it",
        attached == Some(Errno::EBUSY),
        &attached,
    )?;
    Ok(Done::Passed)
}

fn hooked() -> Result<bool, Failure> {
    Ok(read(PATCHED)?.lines().any(|line| line.starts_with(HOOKED)))
}

fn the_hook_goes_with_the_last_link() -> Outcome {
    if !carrier::by_module() {
        return Ok(Done::Skipped("the kernel has no hook that could go"));
    }
    sleep(OFF);
    require("nothing is patched before", !hooked()?, &"patched")?;
    let (group, other) = (Group::new()?, Group::new()?);
    let first = Recorder::at(&group.0)?;
    require("the first patches", hooked()?, &"not patched")?;
    let second = Recorder::at(&other.0)?;
    drop(first);
    sleep(OFF);
    require("one keeps it", hooked()?, &"not patched")?;
    drop(second);
    // While it is about to go.
    let third = Recorder::at(&group.0)?;
    sleep(OFF);
    require(
        "one that comes meanwhile keeps it",
        hooked()?,
        &"not patched",
    )?;
    drop(third);
    sleep(OFF);
    require("the last one ends it", !hooked()?, &"patched")?;
    Ok(Done::Passed)
}
