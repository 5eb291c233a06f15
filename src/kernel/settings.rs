// SPDX-License-Identifier: GPL-2.0-only
//! The settings that a policy needs: what they are, setting them, and putting back what was
//! before.
//!
//! What was before is saved before the first setting is set.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use self::saved::{Saved, SavedMinFree, SavedSetting, Store, refused};
use super::thp::{self, THP_SYSFS};
use crate::errors::{Context, Error, Result};
use crate::model::baseline::BASELINE;

mod saved;

/// Where settings are; tests have another one.
#[derive(Debug)]
pub struct Place {
    /// The files of transparent huge pages.
    thp: PathBuf,
    /// The kernel raises this one when a size is switched on.
    min_free: PathBuf,
    /// What was before.
    saved: Store,
}

/// A setting as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its file below transparent_hugepage/.
    pub file: String,
    /// Its value; `None`: this kernel does not have it.
    pub now: Option<String>,
    /// What it should be.
    pub wanted: String,
    /// It does as it is.
    pub fits: bool,
    /// It does not, as somebody has changed it since the last `apply`: it is theirs.
    pub left: bool,
    /// What it is good for.
    pub why: &'static str,
}

impl Setting {
    /// Does `apply` set it?
    pub fn is_to_be_set(&self) -> bool {
        !self.fits && !self.left
    }
}

/// What became of vm.min_free_kbytes, in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MinFree {
    /// Before.
    pub before: u64,
    /// After.
    pub now: u64,
}

/// What became of a setting that was to be put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// It has the value that it had before.
    PutBack,
    /// It had that already.
    AsBefore,
    /// Somebody has changed it since, so it is theirs.
    Left,
}

/// A setting that was to be put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Undone {
    /// Its file below transparent_hugepage/, or vm.min_free_kbytes.
    pub setting: String,
    /// Its value now; `None`: it is not there any more.
    pub now: Option<String>,
    /// What it was before the first `apply`.
    pub before: String,
    /// What became of it.
    pub state: Fate,
}

/// The value in a file; `None` without the file.
fn read(file: &Path) -> Result<Option<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(thp::value(&text).to_owned())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).context(|| format!("reading {}", file.display())),
    }
}

/// The number in a file; `None` without the file, or where it says something else.
fn number(file: &Path) -> Result<Option<u64>> {
    Ok(read(file)?.and_then(|text| text.parse().ok()))
}

/// Settings at the end of an `apply`, of what is saved.
fn see(saved: &mut Saved, settings: &[Setting]) {
    // Those that are left keep the value by which they were seen to be changed.
    for setting in settings.iter().filter(|setting| !setting.left) {
        let now = match setting.fits {
            true => setting.now.as_ref(),
            false => Some(&setting.wanted),
        };
        if let Some(now) = now {
            saved.see(&setting.file, now);
        }
    }
}

fn write(file: &Path, value: &str) -> Result<()> {
    fs::write(file, value).map_err(|e| refused(file, e))
}

impl Place {
    /// That of the running machine.
    pub fn of_this_machine() -> Self {
        Place {
            thp: THP_SYSFS.into(),
            min_free: "/proc/sys/vm/min_free_kbytes".into(),
            saved: Store::of_this_machine(),
        }
    }

    /// All settings that a policy needs, as they are.
    ///
    /// # Errors
    /// [`Error::System`] without transparent huge pages, or if one cannot be read.
    pub fn settings(&self) -> Result<Vec<Setting>> {
        if read(&self.thp.join("enabled"))?.is_none() {
            return Err(Error::System {
                what: format!(
                    "this system has no settings of transparent huge pages: {} is missing \
                     (a kernel without CONFIG_TRANSPARENT_HUGEPAGE, or /sys is not mounted)",
                    self.thp.display()
                ),
                source: ErrorKind::NotFound.into(),
            });
        }
        let pages = self.pages()?;
        // Root's alone.  Where it cannot be read, `apply` says so and sets nothing.
        let saved = self.saved.load().ok().flatten();
        let mut found = Vec::new();
        for wanted in &BASELINE {
            let files = thp::files(&self.thp, wanted);
            for file in files.context(|| format!("reading {}", self.thp.display()))? {
                let now = read(&self.thp.join(&file))?;
                let fits = |now: &String| wanted.value.fits(now, pages);
                let fits = now.as_ref().is_none_or(fits);
                let changed = saved.as_ref().zip(now.as_ref());
                let changed = changed.is_some_and(|(saved, now)| saved.is_changed(&file, now));
                found.push(Setting {
                    file,
                    fits,
                    left: !fits && changed,
                    now,
                    wanted: wanted.value.set(pages),
                    why: wanted.why,
                });
            }
        }
        Ok(found)
    }

    /// Pages in a huge page.
    fn pages(&self) -> Result<u64> {
        let bytes = number(&self.thp.join("hpage_pmd_size"))?;
        Ok(bytes.map_or(512, |bytes| (bytes >> thp::page_shift()).max(2)))
    }

    /// vm.min_free_kbytes; `None` without it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn min_free(&self) -> Result<Option<u64>> {
        number(&self.min_free)
    }

    /// Sets those of `settings` that do not fit, but for what somebody has changed since the last
    /// `apply`: a service may run it at each start.  Returns what became of vm.min_free_kbytes, if
    /// anything.
    ///
    /// # Errors
    /// [`Error::SettingsNotWritable`], or another one of the system; then all is as before.
    pub fn apply(&self, settings: &[Setting]) -> Result<Option<MinFree>> {
        if !settings.iter().any(Setting::is_to_be_set) {
            if let Err(e) = self.keep_seen(settings) {
                eprintln!(
                    "mthp_ext: the next `settings apply` may set what is changed by hand until then: {e}"
                );
            }
            return Ok(None);
        }
        let _lock = self.saved.lock()?;
        let former = self.saved.load()?;
        let before = self.min_free()?;
        let mut saved = self.save(former.clone(), settings, before)?;
        if let Err(error) = self.set(settings) {
            // What cannot be put back either is left to `undo`.
            if self.unset(settings, before).is_ok() {
                match former {
                    Some(former) => self.saved.store(&former)?,
                    None => self.saved.forget()?,
                }
            }
            return Err(error);
        }
        // What is changed stays changed, whether or not that can be read.
        let now = self.min_free().ok().flatten();
        if let Some(min_free) = &mut saved.min_free_kbytes {
            min_free.after = now;
        }
        see(&mut saved, settings);
        // Without it `undo` takes any other value than the former one for the kernel's, and the
        // next `apply` sets what somebody changes in between.
        let _ = self.saved.store(&saved);
        let changed = before.zip(now).filter(|(before, now)| before != now);
        Ok(changed.map(|(before, now)| MinFree { before, now }))
    }

    /// Keeps how the settings are where none is to be set.
    fn keep_seen(&self, settings: &[Setting]) -> Result<()> {
        let _lock = self.saved.lock()?;
        let former = self.saved.load()?;
        let mut saved = match &former {
            Some(former) => former.clone(),
            None => self.saved.nothing()?,
        };
        see(&mut saved, settings);
        if former.as_ref() == Some(&saved) {
            return Ok(());
        }
        self.saved.store(&saved)
    }

    /// Keeps what is, before it is changed.  What an earlier `apply` has kept of a setting is
    /// older, so it stays.
    fn save(
        &self,
        former: Option<Saved>,
        settings: &[Setting],
        min_free: Option<u64>,
    ) -> Result<Saved> {
        let mut saved = match former {
            Some(former) => former,
            None => self.saved.nothing()?,
        };
        for setting in settings.iter().filter(|setting| setting.is_to_be_set()) {
            let Some(now) = &setting.now else { continue };
            let kept = saved.settings.iter_mut().find(|s| s.file == setting.file);
            match kept {
                Some(kept) => kept.set.clone_from(&setting.wanted),
                None => saved.settings.push(SavedSetting {
                    file: setting.file.clone(),
                    was: now.clone(),
                    set: setting.wanted.clone(),
                }),
            }
        }
        saved.min_free_kbytes = match saved.min_free_kbytes {
            Some(kept) => Some(SavedMinFree {
                after: None,
                ..kept
            }),
            None => min_free.map(|was| SavedMinFree { was, after: None }),
        };
        self.saved.store(&saved)?;
        Ok(saved)
    }

    fn set(&self, settings: &[Setting]) -> Result<()> {
        for setting in settings.iter().filter(|setting| setting.is_to_be_set()) {
            write(&self.thp.join(&setting.file), &setting.wanted)?;
        }
        Ok(())
    }

    /// The reverse, after an error.
    fn unset(&self, settings: &[Setting], min_free: Option<u64>) -> Result<()> {
        let set = settings.iter().filter(|setting| setting.is_to_be_set());
        for setting in set.rev() {
            let file = self.thp.join(&setting.file);
            match &setting.now {
                // Not the one that was refused, nor those behind it.
                Some(now) if read(&file)?.as_ref() == Some(&setting.wanted) => write(&file, now)?,
                _ => {}
            }
        }
        match min_free {
            Some(before) if self.min_free().ok() != Some(min_free) => {
                write(&self.min_free, &before.to_string())
            }
            _ => Ok(()),
        }
    }

    /// Puts back what was before the first `apply`; `None`: nothing was applied.  Begun and not
    /// finished, it can be repeated.
    ///
    /// # Errors
    /// [`Error::SettingsNotWritable`], or another one of the system.
    pub fn undo(&self) -> Result<Option<Vec<Undone>>> {
        if let Ok(false) = fs::exists(&self.saved.directory) {
            return Ok(None);
        }
        let _lock = self.saved.lock()?;
        let Some(saved) = self.saved.load()? else {
            return Ok(None);
        };
        if saved.settings.is_empty() {
            // `apply` found nothing to set.
            self.saved.forget()?;
            return Ok(None);
        }
        // Before anything is put back: what cannot be read now would be given up in the end.
        let min_free = self.min_free()?;
        let mut undone = Vec::new();
        for SavedSetting { file, was, set } in saved.settings.iter().rev() {
            let path = self.thp.join(file);
            let mut now = read(&path)?;
            let state = if now.as_ref() == Some(was) {
                Fate::AsBefore
            } else if now.as_ref() == Some(set) {
                write(&path, was)?;
                now = Some(was.clone());
                Fate::PutBack
            } else {
                Fate::Left
            };
            undone.push(Undone {
                setting: file.clone(),
                now,
                before: was.clone(),
                state,
            });
        }
        if let (Some(kept), Some(found)) = (saved.min_free_kbytes, min_free) {
            undone.extend(self.undo_min_free(kept, found)?);
        }
        self.saved.forget()?;
        Ok(Some(undone))
    }

    /// Of vm.min_free_kbytes, which was `found` before `undo` wrote anything.  The kernel does not
    /// lower it again while a size is on, and raises it at each write.
    fn undo_min_free(&self, kept: SavedMinFree, found: u64) -> Result<Option<Undone>> {
        let by_kernel = kept.after.is_none_or(|after| after == found);
        let wanted = if by_kernel { kept.was } else { found };
        let put_back = self.min_free()? != Some(wanted);
        if put_back {
            // The kernel takes it for the administrator's from here on; before, it need not have.
            write(&self.min_free, &wanted.to_string())?;
        }
        let state = if !by_kernel && found != kept.was {
            Fate::Left
        } else if found != kept.was {
            Fate::PutBack
        } else {
            return Ok(None);
        };
        Ok(Some(Undone {
            setting: "vm.min_free_kbytes".to_owned(),
            now: Some(wanted.to_string()),
            before: kept.was.to_string(),
            state,
        }))
    }
}

#[cfg(test)]
mod tests;
