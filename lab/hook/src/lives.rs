// SPDX-License-Identifier: GPL-2.0-only
//! What it costs a process to be known to khugepaged: in fork() and exec, and in khugepaged's own time.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use serde_json::json;

use crate::clock;
use crate::faults::Region;
use crate::knobs;
use crate::samples::Samples;
use lab_guest::failure::Failure;
use lab_guest::results::Results;

/// `lab-hook life KIND`: a process of that kind.
pub const LIFE: &str = "life";

const MIB: usize = 1 << 20;
const PAGE: usize = 4 << 10;
/// How often each is timed.
const TIMES: usize = 101;
/// Memory that a process has, so that it has room for a huge page: touched here and there.
const RANGE: usize = 4 * MIB;
const STEP: usize = 2 * MIB;
/// Processes that stay, and what each has, all of it touched.
const RESIDENTS: usize = 20;
const RESIDENT: usize = 8 * MIB;
/// Of guest time: until everything is collapsed that will be, and while khugepaged is watched.
const SETTLE: Duration = Duration::from_secs(3);
const WATCH: Duration = Duration::from_secs(3);

/// Times processes while each of these sizes is on, KiB; 0: none.
///
/// # Errors
/// Whatever step failed.
pub fn run(sizes_kib: &[u32], results: &Results) -> Result<(), Failure> {
    for &kib in sizes_kib {
        let send = |what: &str, instructions: Option<u64>, scans: Option<u64>| {
            results.send(&json!({
                "type": "life",
                "kib": kib,
                "what": what,
                "instructions": instructions,
                "scans": scans,
            }))
        };
        if kib != 0 {
            knobs::large(kib, true)?;
        }
        for (what, samples) in [
            ("fork and exit", forks()?),
            ("exec and exit, small", execs("small")?),
            ("exec and exit, room for a huge page", execs("range")?),
        ] {
            send(what, Samples::new(samples).percentile(50), None)?;
        }
        let (used, scans) = scans()?;
        send("khugepaged", Some(used), Some(scans))?;
        if kib != 0 {
            knobs::large(kib, false)?;
        }
    }
    Ok(())
}

/// A process of some kind; `small` ends at once.
///
/// # Errors
/// Whatever step failed, or there is no such kind.
pub fn live(kind: &str) -> Result<(), Failure> {
    match kind {
        "small" => Ok(()),
        "range" => {
            let region = Region::new(RANGE)?;
            region.touch(0);
            Ok(())
        }
        "forks" => fork_often(),
        "resident" => {
            let region = Region::new(RESIDENT)?;
            (0..RESIDENT).step_by(PAGE).for_each(|at| region.touch(at));
            println!("there");
            // Until whoever started this one ends it.
            loop {
                thread::sleep(WATCH);
            }
        }
        _ => Err(Failure::other(
            "live",
            format!("there is no kind of process {kind:?}"),
        )),
    }
}

/// Prints what each of many forks of a process with memory takes until the child is gone.
fn fork_often() -> Result<(), Failure> {
    let region = Region::new(RANGE)?;
    (0..RANGE).step_by(STEP).for_each(|at| region.touch(at));
    let mut times = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        let begin = clock::now();
        // SAFETY: there is one thread, and the child does nothing but end.
        match unsafe { fork() }.map_err(|e| Failure::new("fork", e))? {
            // SAFETY: ends the child without running anything of the parent's.
            ForkResult::Child => unsafe { nix::libc::_exit(0) },
            ForkResult::Parent { child } => {
                let ended =
                    waitpid(child, None).map_err(|e| Failure::new("wait for a child", e))?;
                times.push(clock::now() - begin);
                if !matches!(ended, WaitStatus::Exited(_, 0)) {
                    return Err(Failure::other(
                        "fork",
                        format!("the child ended: {ended:?}"),
                    ));
                }
            }
        }
    }
    let mut out = std::io::stdout().lock();
    for time in times {
        writeln!(out, "{time}").map_err(|e| Failure::new("print", e))?;
    }
    Ok(())
}

/// In a process of its own: what was registered once stays so, whatever is on.
fn forks() -> Result<Vec<u64>, Failure> {
    let done = Command::new("/proc/self/exe")
        .args([LIFE, "forks"])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| Failure::new("start the process that forks", e))?;
    if !done.status.success() {
        return Err(Failure::other("fork often", done.status.to_string()));
    }
    let text = String::from_utf8_lossy(&done.stdout);
    text.lines()
        .map(|line| {
            line.parse()
                .map_err(|_| Failure::other("fork often", format!("it said {line:?}")))
        })
        .collect()
}

fn execs(kind: &str) -> Result<Vec<u64>, Failure> {
    let mut times = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        let begin = clock::now();
        let status = Command::new("/proc/self/exe").args([LIFE, kind]).status();
        times.push(clock::now() - begin);
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => return Err(Failure::other("exec often", status.to_string())),
            Err(error) => return Err(Failure::new("exec often", error)),
        }
    }
    Ok(times)
}

/// Processes that stay. Dropped: killed.
struct Residents(Vec<(Child, BufReader<ChildStdout>)>);

impl Residents {
    fn start() -> Result<Self, Failure> {
        let failed = |e| Failure::new("start a process that stays", e);
        let mut all = Self(Vec::new());
        for _ in 0..RESIDENTS {
            let mut child = Command::new("/proc/self/exe")
                .args([LIFE, "resident"])
                .stdout(Stdio::piped())
                .spawn()
                .map_err(failed)?;
            let said = child.stdout.take().map(BufReader::new);
            let said = said.ok_or_else(|| failed(std::io::Error::other("it has no output")))?;
            all.0.push((child, said));
        }
        for (_, said) in &mut all.0 {
            let mut line = String::new();
            said.read_line(&mut line).map_err(failed)?;
            if line != "there\n" {
                return Err(failed(std::io::Error::other("it ended")));
            }
        }
        Ok(all)
    }
}

impl Drop for Residents {
    fn drop(&mut self) {
        for (child, _) in &mut self.0 {
            // Gone already, or about to be: there is nobody left to tell.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Instructions that khugepaged uses while it is watched, settled and hurried, and how often it comes round meanwhile.
fn scans() -> Result<(u64, u64), Failure> {
    let _residents = Residents::start()?;
    let pid = khugepaged()?;
    knobs::hurry(true)?;
    thread::sleep(SETTLE);
    let so_far = || Ok((clock::used_by(pid, "khugepaged")?, knobs::full_scans()?));
    let before: (u64, u64) = so_far()?;
    thread::sleep(WATCH);
    let after = so_far()?;
    knobs::hurry(false)?;
    Ok((after.0 - before.0, after.1 - before.1))
}

fn khugepaged() -> Result<Pid, Failure> {
    let entries = fs::read_dir("/proc").map_err(|e| Failure::new("list /proc", e))?;
    entries
        .flatten()
        .filter(|one| {
            fs::read_to_string(one.path().join("comm")).is_ok_and(|comm| comm == "khugepaged\n")
        })
        .find_map(|one| one.file_name().to_string_lossy().parse().ok())
        .map(Pid::from_raw)
        .ok_or_else(|| Failure::other("find khugepaged", "it does not run"))
}
