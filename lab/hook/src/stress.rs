// SPDX-License-Identifier: GPL-2.0-only
//! Links are made, updated, pinned, closed and killed with their owners and their cgroups, while processes in those
//! cgroups fault, fork, swap and collapse; unloading the module is tried meanwhile, and must be refused.
//! `lab-hook stress ROUNDS MODULE.ko` prints TAP.

use std::cell::Cell;
use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

use crate::faults::Region;
use crate::groups::{self, leave};
use crate::knobs;
use crate::recorder::{Ops, Recorder};
use lab_guest::failure::Failure;
use lab_guest::knobs::{read, swap, write};

/// The word of the command line.
pub const STRESS: &str = "stress";
/// Those of the processes beside it: `lab-hook busy KIND GROUP`.
pub const BUSY: &str = "busy";

const KIB: usize = 1024;
const PAGE: usize = 4 * KIB;
const PMD: usize = 2048 * KIB;
const SWAP_BYTES: u64 = 256 << 20;
const MIN_FREE_KIB: u64 = 8 << 10;
const PIN: &str = "/sys/fs/bpf/stress";
const PATCHED: &str = "/sys/kernel/tracing/enabled_functions";
const HOOKED: &str = "__thp_vma_allowable_orders";
const NAME: &std::ffi::CStr = c"mthp_hook";
const PATIENCE: Duration = Duration::from_secs(60);
/// About as long as a process takes to be woken and to remove a cgroup, on a busy emulated machine.
const HEAD_START: Duration = Duration::from_millis(4);
/// Longer than the hook stays on without a policy.
const OFF: Duration = Duration::from_millis(1500);
/// Rounds after which it is given the time to go off.
const REST: u32 = 50;
/// Rounds after which the module is unloaded and loaded again.
const RELOAD: u32 = 500;
/// Rounds that both ends of a race come up in.
const ENOUGH: u32 = 500;
const KINDS: [&str; 4] = ["fault", "fork", "swap", "collapse"];

/// One way for a policy to come and go, in a cgroup with others at work.
type Way = (&'static str, fn(&Scene) -> Result<(), Failure>);

const WAYS: [Way; 9] = [
    ("closed", closed),
    ("above and below", above_and_below),
    ("updated", updated),
    ("removed", removed),
    ("attached or removed first", attached_or_removed_first),
    ("closed or removed first", closed_or_removed_first),
    ("killed", killed),
    ("pinned", pinned),
    ("twice", twice),
];

/// What the rounds share.
struct Scene {
    recorder: Recorder,
    /// Where the others are at work.
    group: PathBuf,
    answer: Cell<u64>,
    /// How often a cgroup got its link before it was removed, and how often it was gone first.
    orders: Rc<Cell<(u32, u32)>>,
}

impl Scene {
    fn ops(&self, path: &Path) -> Result<Ops, Failure> {
        self.recorder.ops_for(path)
    }

    /// Another answer each time.
    fn turn(&self) -> Result<(), Failure> {
        let next =
            self.answer.get().wrapping_mul(6_364_136_223_846_793_005) + 1_442_695_040_888_963_407;
        self.answer.set(next);
        self.recorder.answer(next >> 32, next >> 48)
    }

    /// Waits for a part of [`HEAD_START`], another one each time.
    fn hold_back(&self) {
        let part = HEAD_START.mul_f64((self.answer.get() >> 40) as f64 / f64::from(1 << 24));
        let begin = Instant::now();
        while begin.elapsed() < part {
            std::hint::spin_loop();
        }
    }
}

fn link(ops: &Ops, path: &Path) -> Result<OwnedFd, Failure> {
    ops.link(path)
        .map_err(|e| Failure::new(format!("attach to {}", path.display()), e))
}

fn closed(scene: &Scene) -> Result<(), Failure> {
    drop(link(&scene.ops(&scene.group)?, &scene.group)?);
    Ok(())
}

fn above_and_below(scene: &Scene) -> Result<(), Failure> {
    let root = Path::new(groups::ROOT);
    let above = link(&scene.ops(root)?, root)?;
    let below = link(&scene.ops(&scene.group)?, &scene.group)?;
    drop(above);
    drop(below);
    Ok(())
}

fn updated(scene: &Scene) -> Result<(), Failure> {
    let link = link(&scene.ops(&scene.group)?, &scene.group)?;
    for _ in 0..3 {
        scene
            .ops(&scene.group)?
            .replace(&link)
            .map_err(|e| Failure::new("update", e))?;
    }
    Ok(())
}

fn removed(scene: &Scene) -> Result<(), Failure> {
    let path = scene.group.with_file_name("removed");
    groups::make(&path)?;
    let ops = scene.ops(&path)?;
    write(path.join("cgroup.procs"), "0")?;
    let link = link(&ops, &path)?;
    drop(touched(64 * KIB)?);
    leave()?;
    // A process that has left holds it for a moment.
    let begin = Instant::now();
    while let Err(error) = fs::remove_dir(&path) {
        if begin.elapsed() > PATIENCE {
            return Err(Failure::new("remove a cgroup", error));
        }
        sleep(Duration::from_millis(1));
    }
    hung_up(&link)
}

/// The cgroup of the link is gone.
fn hung_up(link: &OwnedFd) -> Result<(), Failure> {
    let mut poll = libc::pollfd {
        fd: link.as_raw_fd(),
        events: 0,
        revents: 0,
    };
    // SAFETY: one descriptor, that lives through the call.
    let ret = unsafe { libc::poll(&raw mut poll, 1, PATIENCE.as_millis() as i32) };
    match (ret, poll.revents) {
        (1, libc::POLLHUP) => Ok(()),
        found => Err(Failure::other("wait for the hang-up", format!("{found:?}"))),
    }
}

/// A process that removes a cgroup once it is told to.
struct Remover {
    path: PathBuf,
    child: Pid,
    go: OwnedFd,
}

impl Remover {
    /// Makes an empty cgroup beside the one that others are at work in.
    fn new(scene: &Scene, name: &str) -> Result<Self, Failure> {
        let path = scene.group.with_file_name(name);
        groups::make(&path)?;
        let (wait, go) = nix::unistd::pipe().map_err(|e| Failure::new("make a pipe", e))?;
        // SAFETY: this program has one thread; the child makes system calls and ends.
        match unsafe { fork() }.map_err(|e| Failure::new("fork", e))? {
            ForkResult::Child => {
                drop(go);
                let told = nix::unistd::read(&wait, &mut [0]) == Ok(1);
                let removed = told && fs::remove_dir(&path).is_ok();
                // SAFETY: ends the child without what belongs to its parent.
                unsafe { libc::_exit(i32::from(!removed)) }
            }
            ForkResult::Parent { child } => Ok(Self { path, child, go }),
        }
    }

    fn go(&self) -> Result<(), Failure> {
        nix::unistd::write(&self.go, b"1")
            .map(drop)
            .map_err(|e| Failure::new("tell a process", e))
    }

    fn gone(self) -> Result<(), Failure> {
        match waitpid(self.child, None) {
            Ok(WaitStatus::Exited(_, 0)) => Ok(()),
            other => Err(Failure::other("remove a cgroup", format!("{other:?}"))),
        }
    }
}

/// Another process removes the cgroup meanwhile: it hangs up the link, or there is none.
fn attached_or_removed_first(scene: &Scene) -> Result<(), Failure> {
    let remover = Remover::new(scene, "attached-or-removed")?;
    let ops = scene.ops(&remover.path)?;
    let group = File::open(&remover.path).map_err(|e| Failure::new("open a cgroup", e))?;
    let (mut attached, mut removed) = scene.orders.get();
    remover.go()?;
    scene.hold_back();
    let link = ops.link_open(&group);
    remover.gone()?;
    match link {
        Ok(link) => {
            attached += 1;
            hung_up(&link)?;
        }
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => removed += 1,
        Err(error) => return Err(Failure::new("attach to what is removed", error)),
    }
    scene.orders.set((attached, removed));
    Ok(())
}

/// Another process removes the cgroup while the link is closed.
fn closed_or_removed_first(scene: &Scene) -> Result<(), Failure> {
    let remover = Remover::new(scene, "closed-or-removed")?;
    let link = link(&scene.ops(&remover.path)?, &remover.path)?;
    remover.go()?;
    scene.hold_back();
    drop(link);
    remover.gone()
}

fn killed(scene: &Scene) -> Result<(), Failure> {
    let ops = scene.ops(&scene.group)?;
    // SAFETY: this program has one thread; the child makes system calls and waits.
    match unsafe { fork() }.map_err(|e| Failure::new("fork", e))? {
        ForkResult::Child => {
            let _link = ops.link(&scene.group);
            loop {
                nix::unistd::pause();
            }
        }
        ForkResult::Parent { child } => {
            sleep(Duration::from_millis(5));
            end(child)
        }
    }
}

fn end(child: Pid) -> Result<(), Failure> {
    nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL)
        .and_then(|()| waitpid(child, None))
        .map(drop)
        .map_err(|e| Failure::new("end a child", e))
}

fn pinned(scene: &Scene) -> Result<(), Failure> {
    let link = link(&scene.ops(&scene.group)?, &scene.group)?;
    let path = CString::new(PIN).map_err(|e| Failure::other("name the pin", e.to_string()))?;
    // SAFETY: the descriptor is open and the path is a string.
    let ret = unsafe { libbpf_sys::bpf_obj_pin(link.as_raw_fd(), path.as_ptr()) };
    Errno::result(ret).map_err(|e| Failure::new("pin", e))?;
    drop(link);
    // SAFETY: the path is a string.
    let fd = unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) };
    Errno::result(fd).map_err(|e| Failure::new("open the pin", e))?;
    // SAFETY: the kernel has just made it, and nobody else owns it.
    let again = unsafe { OwnedFd::from_raw_fd(fd) };
    fs::remove_file(PIN).map_err(|e| Failure::new("remove the pin", e))?;
    // SAFETY: the descriptor is open.
    unsafe { libbpf_sys::bpf_link_detach(again.as_raw_fd()) };
    Ok(())
}

fn twice(scene: &Scene) -> Result<(), Failure> {
    let _first = link(&scene.ops(&scene.group)?, &scene.group)?;
    let second = scene.ops(&scene.group)?.link(&scene.group);
    match second {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        other => Err(Failure::other("attach twice", format!("{other:?}"))),
    }
}

fn touched(bytes: usize) -> Result<Region, Failure> {
    let region = Region::new(bytes)?;
    (0..bytes).step_by(PAGE).for_each(|at| region.touch(at));
    Ok(region)
}

/// Processes at work; killed when dropped.
struct Others(Vec<Child>);

impl Others {
    fn start(group: &Path) -> Result<Self, Failure> {
        let mut others = Self(Vec::new());
        for kind in KINDS {
            let child = Command::new("/proc/self/exe")
                .args([BUSY, kind])
                .arg(group)
                .spawn()
                .map_err(|e| Failure::new("start a process", e))?;
            others.0.push(child);
        }
        Ok(others)
    }

    /// None may have ended: they end only when a page has lost its content.
    fn check(&mut self) -> Result<(), Failure> {
        for child in &mut self.0 {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(Failure::other("work beside it", status.to_string()));
            }
        }
        Ok(())
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Gone already, or about to be: there is nobody left to tell.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `lab-hook busy KIND GROUP`: works until it is killed, or a page has not what was written to it.
///
/// # Errors
/// That, or a step failed.
pub fn busy(kind: &str, group: &str) -> Result<(), Failure> {
    write(Path::new(group).join("cgroup.procs"), "0")?;
    for round in 1u64.. {
        let bytes = 2 * PMD;
        let region = Region::new(bytes)?;
        let place = |at: usize| region.start().wrapping_add(at).cast::<u64>();
        for at in (0..bytes).step_by(PAGE) {
            // SAFETY: inside the mapping, and aligned.
            unsafe { place(at).write_volatile(round ^ at as u64) };
        }
        match kind {
            "fork" => {
                // SAFETY: this program has one thread; the child writes to its memory and ends.
                match unsafe { fork() }.map_err(|e| Failure::new("fork", e))? {
                    ForkResult::Child => {
                        (0..bytes)
                            .step_by(16 * PAGE)
                            .for_each(|at| region.touch(at));
                        // SAFETY: ends the child without what belongs to its parent.
                        unsafe { libc::_exit(0) }
                    }
                    ForkResult::Parent { child } => {
                        waitpid(child, None).map_err(|e| Failure::new("wait", e))?;
                    }
                }
            }
            "swap" => advise(&region, bytes, libc::MADV_PAGEOUT),
            "collapse" => advise(&region, bytes, libc::MADV_COLLAPSE),
            _ => advise(&region, bytes, libc::MADV_HUGEPAGE),
        }
        for at in (0..bytes).step_by(PAGE) {
            // SAFETY: inside the mapping, and aligned.
            let found = unsafe { place(at).read_volatile() };
            if found != round ^ at as u64 {
                return Err(Failure::other(
                    "read what was written",
                    format!("{found:#x} at {at:#x}"),
                ));
            }
        }
    }
    Ok(())
}

/// The kernel may refuse: a policy does.
fn advise(region: &Region, bytes: usize, advice: i32) {
    // SAFETY: a mapping of our own; what is advised keeps its content.
    unsafe { libc::madvise(region.start().cast(), bytes, advice) };
}

fn unload() -> Result<(), Errno> {
    // SAFETY: takes a string and flags.
    let ret = unsafe { libc::syscall(libc::SYS_delete_module, NAME.as_ptr(), libc::O_NONBLOCK) };
    Errno::result(ret).map(drop)
}

fn load(module: &str) -> Result<(), Failure> {
    let file = File::open(module).map_err(|e| Failure::new(format!("open {module}"), e))?;
    // SAFETY: takes a descriptor, a string and flags.
    let ret = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
    Errno::result(ret)
        .map(drop)
        .map_err(|e| Failure::new("load the module", e))
}

/// Maps go a grace period after the last who held them.
fn unloaded() -> Result<(), Failure> {
    let begin = Instant::now();
    while let Err(error) = unload() {
        if begin.elapsed() > PATIENCE {
            return Err(Failure::new("unload the module", error));
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn hooked() -> Result<bool, Failure> {
    Ok(read(PATCHED)?.lines().any(|line| line.starts_with(HOOKED)))
}

fn scene(group: &Path, orders: &Rc<Cell<(u32, u32)>>) -> Result<Scene, Failure> {
    Ok(Scene {
        recorder: Recorder::load()?,
        group: group.to_owned(),
        answer: Cell::new(1),
        orders: Rc::clone(orders),
    })
}

fn rounds(
    count: u32,
    module: &str,
    group: &Path,
    orders: &Rc<Cell<(u32, u32)>>,
) -> Result<(), Failure> {
    let mut others = Others::start(group)?;
    let mut at = scene(group, orders)?;
    for round in 0..count {
        let (name, way) = WAYS[round as usize % WAYS.len()];
        at.turn()?;
        way(&at).map_err(|e| Failure::other(format!("round {round}, {name}"), e.to_string()))?;
        if unload().is_ok() {
            return Err(Failure::other(
                "keep the module",
                "it was unloaded while it had programs",
            ));
        }
        others.check()?;
        if round % REST == REST - 1 {
            sleep(OFF);
        }
        if round % RELOAD == RELOAD - 1 {
            drop(at);
            unloaded()?;
            load(module)?;
            at = scene(group, orders)?;
            println!("# {} rounds", round + 1);
        }
    }
    Ok(())
}

/// Runs so many rounds.
///
/// # Errors
/// Whatever went wrong.
pub fn run(count: &str, module: &str) -> Result<(), Failure> {
    let count = count
        .parse()
        .map_err(|_| Failure::other("read the number of rounds", count))?;
    knobs::prepare()?;
    write("/sys/kernel/mm/transparent_hugepage/enabled", "always")?;
    for size in [16, 64, 256] {
        knobs::large(size, true)?;
    }
    write(
        "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled",
        "inherit",
    )?;
    swap(SWAP_BYTES, None, MIN_FREE_KIB)?;
    knobs::hurry(true)?;
    let group = Path::new(groups::ROOT).join("stress/busy");
    groups::make(&group.with_file_name(""))?;
    write(group.with_file_name("cgroup.subtree_control"), "+memory")?;
    groups::make(&group)?;
    let mut failed = None;
    let mut test = |number: u32, name: &str, ended: Result<(), Failure>| match ended {
        Ok(()) => println!("ok {number} {name}"),
        Err(why) => {
            println!("# {why}\nnot ok {number} {name}");
            failed = Some(why);
        }
    };
    let orders = Rc::default();
    test(
        1,
        &format!("{count} rounds"),
        rounds(count, module, &group, &orders),
    );
    test(2, "the module can be unloaded", unloaded());
    let quiet = hooked().and_then(|on| match on {
        false => Ok(()),
        true => Err(Failure::other("look for patched functions", "it is there")),
    });
    test(3, "nothing is patched any more", quiet);
    let (attached, removed) = orders.get();
    println!("# {attached} cgroups had their link before they were removed, {removed} were gone");
    let both = match attached.min(removed) {
        0 => Err(Failure::other("race", "one was always the first")),
        _ => Ok(()),
    };
    match count {
        ENOUGH.. => test(4, "cgroups were removed before and after links", both),
        _ => println!("ok 4 cgroups were removed before and after links # SKIP so few rounds"),
    }
    println!("1..4");
    failed.map_or(Ok(()), Err)
}
