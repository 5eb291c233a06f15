// SPDX-License-Identifier: GPL-2.0-only
//! What was before the first setting was set, and the file below /run that keeps it.
//!
//! Settings in sysfs end with the boot, and so does /run: a file that outlived them would put back
//! values of another boot.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::errors::{Context, Error, Result};

/// Where what was before is kept.  Not in /run/mthp_ext, which the unit removes when it stops.
const SAVED: &str = "/run/mthp_ext-settings";

/// The file in it.
const FILE: &str = "saved.json";

/// The version of its form.
const VERSION: u32 = 1;

/// What was before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    version: u32,
    boot: String,
    /// Those that were set.
    pub settings: Vec<SavedSetting>,
    /// What the kernel may have raised with them.
    pub min_free_kbytes: Option<SavedMinFree>,
    /// Each setting at the end of the last `apply`, set by it or not: with another value it is
    /// somebody else's.  One that was cut short adds none, so that the next one sets the rest.
    #[serde(default)]
    seen: BTreeMap<String, String>,
}

impl Saved {
    /// Has somebody changed it since the last `apply`?
    pub fn is_changed(&self, file: &str, now: &str) -> bool {
        self.seen.get(file).is_some_and(|seen| seen != now)
    }

    /// A setting at the end of an `apply`.
    pub fn see(&mut self, file: &str, now: &str) {
        self.seen.insert(file.to_owned(), now.to_owned());
    }
}

/// A setting before it was set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedSetting {
    /// Its file.
    pub file: String,
    /// Its value before.
    pub was: String,
    /// What it was set to.
    pub set: String,
}

/// vm.min_free_kbytes before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedMinFree {
    /// In KiB.
    pub was: u64,
    /// What the kernel made of it; `None`: not known, as `apply` did not come to its end.
    pub after: Option<u64>,
}

/// A write that was refused.
pub fn refused(path: &Path, source: io::Error) -> Error {
    match source.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Error::SettingsNotWritable {
            path: path.to_owned(),
            source,
        },
        _ => Error::System {
            what: format!("writing {}", path.display()),
            source,
        },
    }
}

/// Nobody else applies or undoes while it lives.
pub type Lock = Option<Flock<File>>;

/// Keeps what was before.
#[derive(Debug)]
pub struct Store {
    /// The directory of the file.
    pub directory: PathBuf,
    /// What is in it tells one boot from another, should /run outlive one.
    pub boot: PathBuf,
}

impl Store {
    /// That of the running machine.
    pub fn of_this_machine() -> Self {
        Store {
            directory: SAVED.into(),
            boot: "/proc/sys/kernel/random/boot_id".into(),
        }
    }

    /// The id of this boot.  Without it nobody knows whose values have been saved.
    fn boot(&self) -> Result<String> {
        let boot = fs::read_to_string(&self.boot);
        let boot = boot.context(|| format!("reading {}", self.boot.display()))?;
        Ok(boot.trim().to_owned())
    }

    /// Before anything is applied.
    pub fn nothing(&self) -> Result<Saved> {
        Ok(Saved {
            version: VERSION,
            boot: self.boot()?,
            settings: Vec::new(),
            min_free_kbytes: None,
            seen: BTreeMap::new(),
        })
    }

    /// Keeps others out.
    ///
    /// # Errors
    /// If somebody else is at work.
    pub fn lock(&self) -> Result<Lock> {
        let made = DirBuilder::new().mode(0o700).create(&self.directory);
        match made {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => {
                return Err(refused(&self.directory, e));
            }
            _ => {}
        }
        let directory = File::open(&self.directory).map_err(|e| refused(&self.directory, e))?;
        match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Some(lock)),
            // A kernel without CONFIG_FILE_LOCKING: two at once may mix, each file stays whole.
            Err((_, Errno::ENOSYS)) => Ok(None),
            Err((_, errno)) => Err(errno).context(|| {
                format!(
                    "locking {} (another `mthp_ext settings` is at work: wait for it)",
                    self.directory.display()
                )
            }),
        }
    }

    /// The file.
    pub fn file(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    /// What was kept in this boot.
    pub fn load(&self) -> Result<Option<Saved>> {
        let file = self.file();
        let text = match fs::read_to_string(&file) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.context(|| format!("reading {}", file.display()))?,
        };
        let saved: Saved = serde_json::from_str(&text)
            .map_err(io::Error::from)
            .and_then(|saved: Saved| match saved.version {
                VERSION => Ok(saved),
                other => Err(io::Error::other(format!("version {other}"))),
            })
            .context(|| {
                format!(
                    "{} cannot be read as what `settings apply` has saved; nothing was changed. \
                     Use the mthp_ext that has written it, or remove the file and give up its values",
                    file.display()
                )
            })?;
        let boot = self.boot()?;
        Ok(Some(saved).filter(|saved| saved.boot == boot))
    }

    /// Writes what was before: all of it, or nothing.
    pub fn store(&self, saved: &Saved) -> Result<()> {
        let (file, new) = (self.file(), self.directory.join("new"));
        let text = serde_json::to_vec(saved)
            .map_err(io::Error::from)
            .context(|| format!("writing {}", file.display()))?;
        let written = File::create(&new)
            .and_then(|mut out| out.write_all(&text).and_then(|()| out.sync_all()))
            .and_then(|()| fs::rename(&new, &file));
        written.map_err(|e| {
            // It may be cut short, and takes space that is short.
            let _ = fs::remove_file(&new);
            refused(&file, e)
        })
    }

    /// All is as before.
    pub fn forget(&self) -> Result<()> {
        let file = self.file();
        fs::remove_file(&file).context(|| format!("removing {}", file.display()))
    }
}
