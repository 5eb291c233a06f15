// SPDX-License-Identifier: GPL-2.0-only
//! Pressure stall information: is it there, and the trigger that wakes `run`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;

use crate::errors::{Context, Error, Result};
use crate::model::shown;

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

/// Does the kernel report pressure?  With `psi=0` the files may exist and refuse
/// to be read.
///
/// # Errors
/// Those of a read that failed for another reason, so that nobody knows.
pub fn available(file: &Path) -> io::Result<bool> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(text.contains("total=")),
        Err(e) if e.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) => Ok(false),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Why it does not, where the file has a reason.
pub fn why_not(file: &Path) -> String {
    match fs::read_to_string(file) {
        Ok(_) => String::new(),
        Err(e) => why(file, &e),
    }
}

fn why(file: &Path, error: &io::Error) -> String {
    format!(" ({}: {error})", shown::path(file))
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
    /// `policy` needs the trigger, and is named where there is no PSI.
    ///
    /// # Errors
    /// The very errno of the open or write that failed.
    pub fn arm(file: &Path, threshold: Duration, window: Duration, policy: &str) -> Result<Self> {
        let spec = format!("some {} {}", threshold.as_micros(), window.as_micros());
        let refused = |e| refused(e, file, &spec, policy);
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
                .context(|| format!("arming the PSI trigger on {}", shown::path(file)));
        }
        Ok(Trigger { file: opened })
    }
}

/// The error for a trigger that could not be armed.
fn refused(source: io::Error, file: &Path, spec: &str, policy: &str) -> Error {
    match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EACCES | Errno::EPERM) => Error::NoPrivilege {
            what: format!("write {}", shown::path(file)),
        },
        Some(Errno::EOPNOTSUPP) => Error::NoPsi {
            policy: policy.to_owned(),
            why: why(file, &source),
        },
        _ => Error::System {
            what: format!("arming the PSI trigger '{spec}' on {}", shown::path(file)),
            source,
        },
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
        assert!(!available(&file).unwrap());
        fs::write(&file, "").unwrap();
        assert!(!available(&file).unwrap());
        fs::write(&file, "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n").unwrap();
        assert!(available(&file).unwrap());
        assert!(
            available(dir.path()).is_err(),
            "whether it is on is unknown"
        );
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
        let error = Trigger::arm(
            Path::new("/proc/absent/pressure"),
            second,
            second,
            "default",
        )
        .unwrap_err();
        match error {
            Error::System { source, .. } => assert_eq!(source.kind(), io::ErrorKind::NotFound),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn without_psi_the_running_policy_is_named() {
        for policy in ["default", "reactive"] {
            let source = io::Error::from(Errno::EOPNOTSUPP);
            let error = refused(source, Path::new(HOST), "some 1 2", policy);
            assert_eq!(error.code(), 6);
            assert!(error.to_string().contains(policy), "{error}");
        }
    }

    #[test]
    fn the_trigger_is_one_write() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (threshold, window) = (Duration::from_millis(100), Duration::from_secs(1));
        Trigger::arm(file.path(), threshold, window, "default").unwrap();
        assert_eq!(fs::read(file.path()).unwrap(), b"some 100000 1000000\0");
    }
}
