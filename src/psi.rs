// SPDX-License-Identifier: GPL-2.0-only
//! Pressure stall information: is it there, and the trigger that wakes `run`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::errors::{Context, Error, Result};

/// The host's own pressure file.
const HOST: &str = "/proc/pressure/memory";

/// The pressure file of a cgroup.  The root's may be missing on some kernels;
/// the host's says the same.
pub fn file_of(cgroup: &Path, mount: &Path) -> PathBuf {
    let own = cgroup.join("memory.pressure");
    if cgroup == mount && !own.exists() {
        HOST.into()
    } else {
        own
    }
}

/// Can the kernel tell pressure?  With `psi=0` the files may exist and refuse
/// to be read.
pub fn available(file: &Path) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.contains("total="))
}

/// An armed trigger: its file polls `POLLPRI` when the stall is reached.
#[derive(Debug)]
pub struct Trigger {
    file: File,
}

impl Trigger {
    /// Arms a trigger on `some`, whatever stall the policy judges by.
    ///
    /// The root's `full` needs every task of the whole subtree stalled at
    /// once, and may never move while one cgroup in it stands still.  `full` of
    /// any cgroup below, however, is `some` at the root: the trigger misses
    /// none, and the scan it wakes judges each cgroup by its own totals.  That
    /// also makes a false first event (the kernel may seed a new trigger's
    /// window from the wrong counter) harmless.
    ///
    /// # Errors
    /// The very errno of the open or write that failed.
    pub fn arm(file: &Path, threshold: Duration, window: Duration) -> Result<Self> {
        let spec = format!("some {} {}", threshold.as_micros(), window.as_micros());
        let refused = |e: io::Error| match e.raw_os_error() {
            Some(libc_errno) if libc_errno == nix::errno::Errno::EACCES as i32 => {
                Error::NoPrivilege {
                    what: format!("write {}", file.display()),
                }
            }
            Some(libc_errno) if libc_errno == nix::errno::Errno::EOPNOTSUPP as i32 => {
                Error::NoPsi {
                    policy: "reactive".to_owned(),
                }
            }
            _ => Error::System {
                what: format!("arming the PSI trigger '{spec}' on {}", file.display()),
                source: e,
            },
        };
        let mut opened = OpenOptions::new()
            .read(true)
            .write(true)
            .open(file)
            .map_err(refused)?;
        // One write, with the terminating NUL the kernel's parser wants.
        let written = opened
            .write(format!("{spec}\0").as_bytes())
            .map_err(refused)?;
        if written == 0 {
            return Err(io::Error::from(io::ErrorKind::WriteZero))
                .context(|| format!("arming the PSI trigger on {}", file.display()));
        }
        Ok(Trigger { file: opened })
    }
}

impl AsFd for Trigger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn availability_needs_totals() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("memory.pressure");
        assert!(!available(&file));
        fs::write(&file, "").unwrap();
        assert!(!available(&file));
        fs::write(&file, "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n").unwrap();
        assert!(available(&file));
    }

    #[test]
    fn the_cgroups_own_file_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(file_of(dir.path(), dir.path()), Path::new(HOST));
        let own = dir.path().join("memory.pressure");
        fs::write(&own, "").unwrap();
        assert_eq!(file_of(dir.path(), dir.path()), own);
        let child = dir.path().join("child");
        assert_eq!(file_of(&child, dir.path()), child.join("memory.pressure"));
    }

    #[test]
    fn a_failed_open_keeps_its_errno() {
        let second = Duration::from_secs(1);
        let error = Trigger::arm(Path::new("/proc/absent/pressure"), second, second).unwrap_err();
        match error {
            Error::System { source, .. } => assert_eq!(source.kind(), io::ErrorKind::NotFound),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn the_trigger_is_one_write() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (threshold, window) = (Duration::from_millis(100), Duration::from_secs(1));
        Trigger::arm(file.path(), threshold, window).unwrap();
        assert_eq!(fs::read(file.path()).unwrap(), b"some 100000 1000000\0");
    }
}
