// SPDX-License-Identifier: GPL-2.0-only
//! The guest's knobs and counters: files of /proc, /sys and of cgroups, and swap.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::mount::{MsFlags, mount};

use crate::failure::Failure;

/// Where cgroup v2 is mounted.
pub const CGROUP: &str = "/sys/fs/cgroup";
const ZRAM: &str = "/sys/block/zram0";
const CONFIGFS: &str = "/sys/kernel/config";

/// Writes a setting.
///
/// # Errors
/// The kernel does not take it.
pub fn write(path: impl AsRef<Path>, value: &str) -> Result<(), Failure> {
    let path = path.as_ref();
    fs::write(path, value)
        .map_err(|e| Failure::new(format!("write {value:?} to {}", path.display()), e))
}

/// Reads a whole small file.
///
/// # Errors
/// It cannot be read, or is no text.
pub fn read(path: impl AsRef<Path>) -> Result<String, Failure> {
    let path = path.as_ref();
    fs::read_to_string(path).map_err(|e| Failure::new(format!("read {}", path.display()), e))
}

/// Reads a number from a file of its own.
///
/// # Errors
/// It cannot be read, or is none.
pub fn number(path: impl AsRef<Path>) -> Result<u64, Failure> {
    let path = path.as_ref();
    let text = read(path)?;
    text.trim().parse().map_err(|_| {
        let what = format!("read {}", path.display());
        Failure::other(what, format!("not a number: {text:?}"))
    })
}

/// The value behind `key` in a file of "key value" lines; 0 if there is no such line.
pub fn keyed(text: &str, key: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(name, _)| *name == key)
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}

/// Total in microseconds of a "some" or "full" line of a pressure file.
pub fn stall_in(text: &str, kind: &str) -> u64 {
    text.lines()
        .find(|line| line.starts_with(kind))
        .and_then(|line| line.rsplit_once("total="))
        .and_then(|(_, total)| total.trim().parse().ok())
        .unwrap_or(0)
}

/// Runs a short command to its end.
///
/// # Errors
/// It cannot be started, or fails.
pub fn command(program: &str, args: &[&str]) -> Result<(), Failure> {
    let status = Command::new(program)
        .args(args)
        .stdout(Stdio::null())
        .status()
        .map_err(|e| Failure::new(format!("start {program}"), e))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::other(program, status.to_string()))
    }
}

/// What a device like a disk takes.
#[derive(Clone, Copy)]
pub struct Disk {
    /// Of each request, microseconds.
    pub wait_us: u64,
    /// Of all of them, MiB per second; 0: without a limit.
    pub mib_per_s: u64,
}

/// Switches swap of `bytes` on (none with 0), on zram or on a device like a disk; and pins vm.min_free_kbytes. To be called after THP was set: khugepaged, which starts with the first size, sets the
/// latter as well.
///
/// # Errors
/// The kernel lacks the device, or does not take a value.
pub fn swap(bytes: u64, slow: Option<Disk>, min_free_kbytes: u64) -> Result<(), Failure> {
    if bytes > 0 {
        let device = match slow {
            None => zram(bytes)?,
            Some(speed) => disk(bytes, speed)?,
        };
        for program in ["mkswap", "swapon"] {
            command(program, &[device])?;
        }
    }
    write("/proc/sys/vm/min_free_kbytes", &min_free_kbytes.to_string())
}

fn zram(bytes: u64) -> Result<&'static str, Failure> {
    // One page at a time from zram: reading ahead would mix a second effect in.
    write("/proc/sys/vm/page-cluster", "0")?;
    write(format!("{ZRAM}/comp_algorithm"), "lz4")?;
    write(format!("{ZRAM}/disksize"), &bytes.to_string())?;
    Ok("/dev/zram0")
}

/// Memory of the guest's that answers after a while, by the guest's own clock. The kernel reads ahead from it, as it does
/// by default: a device that waits is read by several pages at once.
fn disk(bytes: u64, speed: Disk) -> Result<&'static str, Failure> {
    let failed = |e: io::Error| Failure::new("make a disk of null_blk", e);
    mount(
        Some("configfs"),
        CONFIGFS,
        Some("configfs"),
        MsFlags::empty(),
        None::<&str>,
    )
    .map_err(|e| failed(e.into()))?;
    let disk = format!("{CONFIGFS}/nullb/disk");
    fs::create_dir(&disk).map_err(failed)?;
    for (attribute, value) in [
        ("size", bytes >> 20),
        ("blocksize", 4096),
        ("memory_backed", 1),
        // Completes by a timer.
        ("irqmode", 2),
        ("completion_nsec", speed.wait_us * 1000),
        ("mbps", speed.mib_per_s),
        ("power", 1),
    ] {
        write(format!("{disk}/{attribute}"), &value.to_string())?;
    }
    // It has the name of its directory.
    Ok("/dev/disk")
}

/// Release of the running kernel.
///
/// # Errors
/// /proc is not there.
pub fn release() -> Result<String, Failure> {
    Ok(read("/proc/sys/kernel/osrelease")?.trim().to_owned())
}

/// A cgroup of the workload.
#[derive(Clone)]
pub struct Group {
    /// Its directory.
    pub path: PathBuf,
}

impl Group {
    /// Makes the cgroup `name` (a path below the root, its parent made before) and writes its settings.
    ///
    /// # Errors
    /// It exists, or the kernel does not take a setting.
    pub fn create(name: &str, settings: &[(String, String)]) -> Result<Self, Failure> {
        let path = Path::new(CGROUP).join(name);
        if let (Some(parent), true) = (path.parent(), name.contains('/')) {
            write(parent.join("cgroup.subtree_control"), "+memory +cpu +pids")?;
        }
        fs::create_dir(&path).map_err(|e| Failure::new(format!("make {}", path.display()), e))?;
        for (file, value) in settings {
            write(path.join(file), value)?;
        }
        Ok(Self { path })
    }

    /// A file that holds one number.
    ///
    /// # Errors
    /// It does not.
    pub fn number(&self, file: &str) -> Result<u64, Failure> {
        number(self.path.join(file))
    }

    /// Total memory stall of a kind, microseconds.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn stall(&self, kind: &str) -> Result<u64, Failure> {
        Ok(stall_in(&read(self.path.join("memory.pressure"))?, kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyed_takes_whole_names() {
        let text = "pswpin_more 1\npswpin 12\npswpout 3\n";
        assert_eq!(keyed(text, "pswpin"), 12);
        assert_eq!(keyed(text, "pswp"), 0);
    }

    #[test]
    fn stall_of_each_kind() {
        let text = "some avg10=1.00 avg60=0.00 avg300=0.00 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
        assert_eq!((stall_in(text, "some"), stall_in(text, "full")), (7, 5));
        assert_eq!(stall_in("", "some"), 0);
    }
}
