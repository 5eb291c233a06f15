// SPDX-License-Identifier: GPL-2.0-only
//! The cgroups that faults are measured in, and the processes that keep them from being small.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

use crate::plan::Place;
use lab_guest::failure::Failure;
use lab_guest::knobs::{number, write};

/// The mount point of cgroup v2, and so its root.
pub const ROOT: &str = "/sys/fs/cgroup";
/// The command of the process that holds memory.
pub const BALLAST: &str = "ballast";
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);

/// A path of cgroups from the root down; removed with its processes when dropped.
pub struct Groups {
    /// From the topmost to the one that processes live in.
    pub path: Vec<PathBuf>,
    ballast: Option<Child>,
}

impl Groups {
    /// Makes the cgroups of a place and fills them as it says.
    pub fn create(place: &Place) -> Result<Self, Failure> {
        let mut groups = Self {
            path: Vec::new(),
            ballast: None,
        };
        let mut path = Path::new(ROOT).join(&place.name);
        for level in 1..=place.depth {
            make(&path)?;
            groups.path.push(path.clone());
            if let Some(high) = place.high {
                write(path.join("memory.high"), &high.to_string())?;
            }
            if level < place.depth {
                write(path.join("cgroup.subtree_control"), "+memory")?;
                path.push("below");
            }
        }
        if place.ballast_mib > 0 {
            groups.ballast = Some(hold(&path, place.ballast_mib)?);
        }
        Ok(groups)
    }

    /// Takes the pages back that the kernel has pre-charged to the cgroup: it keeps such pages of seven cgroups and
    /// searches them one by one, so what a fault costs depends on who charged first. A limit below what is used
    /// does it; without swap nothing else comes of that.
    pub fn drain(&self, place: &Place) -> Result<(), Failure> {
        let Some(leaf) = self.path.last() else {
            return Ok(());
        };
        let high = place.high.map_or("max".to_owned(), |high| high.to_string());
        write(leaf.join("memory.high"), "0")?;
        write(leaf.join("memory.high"), &high)
    }

    /// The lowest of the cgroups.
    pub fn leaf(&self) -> Result<&Path, Failure> {
        match self.path.last() {
            Some(leaf) => Ok(leaf),
            None => Err(Failure::other("find a place", "it has no cgroups")),
        }
    }

    /// Moves this process into the lowest of the cgroups.
    pub fn enter(&self) -> Result<(), Failure> {
        write(self.leaf()?.join("cgroup.procs"), "0")
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        if let Some(ballast) = &mut self.ballast {
            // Gone already, or about to be: there is nobody left to tell.
            let _ = ballast.kill();
            let _ = ballast.wait();
        }
        for path in self.path.iter().rev() {
            if let Err(error) = fs::remove_dir(path) {
                eprintln!("lab-hook: remove {}: {error}", path.display());
            }
        }
    }
}

/// Makes one cgroup.
pub fn make(path: &Path) -> Result<(), Failure> {
    fs::create_dir(path).map_err(|e| Failure::new(format!("make {}", path.display()), e))
}

/// Moves this process back to the root.
pub fn leave() -> Result<(), Failure> {
    write(Path::new(ROOT).join("cgroup.procs"), "0")
}

fn hold(group: &Path, mib: u32) -> Result<Child, Failure> {
    let procs = group.join("cgroup.procs");
    let mut command = Command::new("/proc/self/exe");
    command.args([BALLAST, &mib.to_string()]);
    // SAFETY: write() to a file is all that happens between fork and exec.
    unsafe {
        command.pre_exec(move || fs::write(&procs, "0"));
    }
    let child = command
        .spawn()
        .map_err(|e| Failure::new("start the process that holds memory", e))?;
    let wanted = u64::from(mib) << 20;
    let mut waited = Duration::ZERO;
    while number(group.join("memory.current"))? < wanted {
        if waited > PATIENCE {
            return Err(Failure::other(
                "hold memory",
                format!("{} does not fill", group.display()),
            ));
        }
        sleep(POLL);
        waited += POLL;
    }
    Ok(child)
}

/// `lab-hook ballast MIB`: takes memory and keeps it until it is killed.
pub fn ballast(mib: &str) -> Result<(), Failure> {
    let size: usize = mib
        .parse()
        .map_err(|_| Failure::other("read a size", format!("not a number of MiB: {mib:?}")))?;
    let memory = vec![1u8; size << 20];
    loop {
        std::hint::black_box(&memory);
        sleep(PATIENCE);
    }
}
