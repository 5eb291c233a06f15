// SPDX-License-Identifier: GPL-2.0-only
//! The settings that a policy needs: what they are, setting them, and putting back what was
//! before.
//!
//! What was before stands in a file below /run, written before the first setting is.  Settings
//! in sysfs end with the boot, and so does /run: a file that outlived them would put back values
//! of another boot.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::thp::{self, THP_SYSFS};
use crate::errors::{Context, Error, Result};
use crate::model::baseline::BASELINE;

/// Where what was before is kept.  Not in /run/mthp_ext, which the unit removes when it stops.
const SAVED: &str = "/run/mthp_ext-settings";

/// The file in it.
const FILE: &str = "saved.json";

/// The version of its form.
const VERSION: u32 = 1;

/// Where settings are; tests have another one.
#[derive(Debug)]
pub struct Place {
    /// The files of transparent huge pages.
    thp: PathBuf,
    /// The kernel raises this one when a size is switched on.
    min_free: PathBuf,
    /// The directory of what was before.
    saved: PathBuf,
    /// What is in it tells one boot from another, should /run outlive one.
    boot: PathBuf,
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

/// What was before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Saved {
    version: u32,
    boot: String,
    settings: Vec<SavedSetting>,
    min_free_kbytes: Option<SavedMinFree>,
    /// Each setting at the end of the last `apply`, set by it or not: with another value it is
    /// somebody else's.  One that was cut short adds none, so that the next one sets the rest.
    #[serde(default)]
    seen: BTreeMap<String, String>,
}

impl Saved {
    /// Has somebody changed it since the last `apply`?
    fn is_changed(&self, file: &str, now: &str) -> bool {
        self.seen.get(file).is_some_and(|seen| seen != now)
    }

    /// Of settings that are set.
    fn see(&mut self, settings: &[Setting]) {
        // Those that are left keep the value by which they were seen to be changed.
        for setting in settings.iter().filter(|setting| !setting.left) {
            let now = match setting.fits {
                true => setting.now.as_ref(),
                false => Some(&setting.wanted),
            };
            if let Some(now) = now {
                self.seen.insert(setting.file.clone(), now.clone());
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavedSetting {
    file: String,
    was: String,
    set: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavedMinFree {
    was: u64,
    /// What the kernel made of it; `None`: not known, as `apply` did not come to its end.
    after: Option<u64>,
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

/// A write that was refused.
fn refused(path: &Path, source: io::Error) -> Error {
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

fn write(file: &Path, value: &str) -> Result<()> {
    fs::write(file, value).map_err(|e| refused(file, e))
}

/// Nobody else applies or undoes while it lives.
type Lock = Option<Flock<File>>;

impl Place {
    /// That of the running machine.
    pub fn of_this_machine() -> Self {
        Place {
            thp: THP_SYSFS.into(),
            min_free: "/proc/sys/vm/min_free_kbytes".into(),
            saved: SAVED.into(),
            boot: "/proc/sys/kernel/random/boot_id".into(),
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
        let saved = self.load().ok().flatten();
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

    /// The id of this boot.  Without it nobody knows whose values have been saved.
    fn boot(&self) -> Result<String> {
        let boot = fs::read_to_string(&self.boot);
        let boot = boot.context(|| format!("reading {}", self.boot.display()))?;
        Ok(boot.trim().to_owned())
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
        let _lock = self.lock()?;
        let former = self.load()?;
        let before = self.min_free()?;
        let mut saved = self.save(former.clone(), settings, before)?;
        if let Err(error) = self.set(settings) {
            // What cannot be put back either is left to `undo`.
            if self.unset(settings, before).is_ok() {
                match former {
                    Some(former) => self.store(&former)?,
                    None => self.forget()?,
                }
            }
            return Err(error);
        }
        // What is changed stays changed, whether or not that can be read.
        let now = self.min_free().ok().flatten();
        if let Some(min_free) = &mut saved.min_free_kbytes {
            min_free.after = now;
        }
        saved.see(settings);
        // Without it `undo` takes any other value than the former one for the kernel's, and the
        // next `apply` sets what somebody changes in between.
        let _ = self.store(&saved);
        let changed = before.zip(now).filter(|(before, now)| before != now);
        Ok(changed.map(|(before, now)| MinFree { before, now }))
    }

    /// Keeps how the settings are where none is to be set.
    fn keep_seen(&self, settings: &[Setting]) -> Result<()> {
        let _lock = self.lock()?;
        let former = self.load()?;
        let mut saved = match &former {
            Some(former) => former.clone(),
            None => self.nothing_saved()?,
        };
        saved.see(settings);
        if former.as_ref() == Some(&saved) {
            return Ok(());
        }
        self.store(&saved)
    }

    fn nothing_saved(&self) -> Result<Saved> {
        Ok(Saved {
            version: VERSION,
            boot: self.boot()?,
            settings: Vec::new(),
            min_free_kbytes: None,
            seen: BTreeMap::new(),
        })
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
            None => self.nothing_saved()?,
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
        self.store(&saved)?;
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
        if let Ok(false) = fs::exists(&self.saved) {
            return Ok(None);
        }
        let _lock = self.lock()?;
        let Some(saved) = self.load()? else {
            return Ok(None);
        };
        if saved.settings.is_empty() {
            // `apply` found nothing to set.
            self.forget()?;
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
        self.forget()?;
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

    fn lock(&self) -> Result<Lock> {
        let made = DirBuilder::new().mode(0o700).create(&self.saved);
        match made {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(refused(&self.saved, e)),
            _ => {}
        }
        let directory = File::open(&self.saved).map_err(|e| refused(&self.saved, e))?;
        match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Some(lock)),
            // A kernel without CONFIG_FILE_LOCKING: two at once may mix, each file stays whole.
            Err((_, Errno::ENOSYS)) => Ok(None),
            Err((_, errno)) => Err(errno).context(|| {
                format!(
                    "locking {} (another `mthp_ext settings` is at work: wait for it)",
                    self.saved.display()
                )
            }),
        }
    }

    fn file(&self) -> PathBuf {
        self.saved.join(FILE)
    }

    /// What was kept in this boot.
    fn load(&self) -> Result<Option<Saved>> {
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
    fn store(&self, saved: &Saved) -> Result<()> {
        let (file, new) = (self.file(), self.saved.join("new"));
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

    fn forget(&self) -> Result<()> {
        let file = self.file();
        fs::remove_file(&file).context(|| format!("removing {}", file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOTED: [(&str, &str); 7] = [
        ("enabled", "always [madvise] never\n"),
        ("defrag", "[always] defer defer+madvise madvise never\n"),
        ("shrink_underused", "0\n"),
        ("khugepaged/max_ptes_none", "511\n"),
        ("hugepages-16kB/enabled", "always inherit madvise [never]\n"),
        (
            "hugepages-2048kB/enabled",
            "always [inherit] madvise never\n",
        ),
        // Of shared memory only.
        ("hugepages-8kB/shmem_enabled", "never\n"),
    ];

    /// Those that are changed, as they are written.
    const CHANGED: [(&str, &str, &str); 5] = [
        ("khugepaged/max_ptes_none", "511", "409"),
        ("shrink_underused", "0", "1"),
        ("defrag", "always", "madvise"),
        ("hugepages-16kB/enabled", "never", "inherit"),
        ("enabled", "madvise", "always"),
    ];

    struct Fake {
        _directory: tempfile::TempDir,
        place: Place,
    }

    impl Fake {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let at = |name: &str| directory.path().join(name);
            for (file, text) in BOOTED {
                let file = at("thp").join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            fs::write(at("min_free"), "2048\n").unwrap();
            let place = Place {
                thp: at("thp"),
                min_free: at("min_free"),
                saved: at("saved"),
                boot: at("boot"),
            };
            fs::write(&place.boot, "this\n").unwrap();
            Fake {
                _directory: directory,
                place,
            }
        }

        fn value(&self, file: &str) -> String {
            read(&self.place.thp.join(file)).unwrap().unwrap()
        }

        fn write(&self, file: &str, value: &str) {
            fs::write(self.place.thp.join(file), value).unwrap();
        }

        fn min_free(&self, kib: u64) {
            fs::write(&self.place.min_free, kib.to_string()).unwrap();
        }

        fn apply(&self) -> Result<Option<MinFree>> {
            self.place.apply(&self.place.settings().unwrap())
        }

        fn is_as_booted(&self) {
            for (file, was, _) in CHANGED {
                assert_eq!(self.value(file), was, "{file}");
            }
            assert_eq!(self.place.min_free().unwrap(), Some(2048));
            assert!(!self.place.file().exists());
        }

        fn is_applied(&self) {
            for (file, _, set) in CHANGED {
                assert_eq!(self.value(file), set, "{file}");
            }
        }

        fn undo(&self) -> Vec<(String, Fate)> {
            let undone = self.place.undo().unwrap().unwrap();
            undone.into_iter().map(|u| (u.setting, u.state)).collect()
        }
    }

    #[test]
    fn what_differs_is_seen_and_what_does_is_left() {
        let fake = Fake::new();
        let settings = fake.place.settings().unwrap();
        let differ: Vec<_> = settings
            .iter()
            .filter(|setting| !setting.fits)
            .map(|s| (&*s.file, s.now.as_deref().unwrap(), &*s.wanted))
            .collect();
        assert_eq!(differ, CHANGED);
        // The PMD size, which fits.
        assert_eq!(settings.len(), CHANGED.len() + 1);
        fake.write("hugepages-16kB/enabled", "[always] inherit madvise never");
        fake.write("khugepaged/max_ptes_none", "0");
        fake.apply().unwrap();
        assert_eq!(fake.value("hugepages-16kB/enabled"), "always");
        assert_eq!(fake.value("khugepaged/max_ptes_none"), "0");
    }

    #[test]
    fn undo_restores_what_was_before() {
        let fake = Fake::new();
        assert_eq!(fake.place.undo().unwrap(), None);
        fake.apply().unwrap();
        fake.is_applied();
        let undone = fake.undo();
        assert_eq!(undone.len(), CHANGED.len());
        assert_eq!(undone[0], ("enabled".to_owned(), Fate::PutBack));
        fake.is_as_booted();
        assert_eq!(fake.place.undo().unwrap(), None);
    }

    #[test]
    fn applied_twice_the_first_values_are_those_of_before() {
        let fake = Fake::new();
        fake.apply().unwrap();
        // One that was not there, so that the second one sets something.
        let size = "hugepages-32kB/enabled";
        fs::create_dir(fake.place.thp.join("hugepages-32kB")).unwrap();
        fake.write(size, "never");
        fake.min_free(3000);
        fake.apply().unwrap();
        fake.is_applied();
        assert_eq!(fake.value(size), "inherit");
        fake.apply().unwrap();
        fake.undo();
        fake.is_as_booted();
        assert_eq!(fake.value(size), "never");
    }

    #[test]
    fn what_was_changed_since_is_left_by_the_next_apply() {
        // Set by `apply`, back to what it was before, and one that `apply` found as wanted.
        let by_hand = [
            ("enabled", "never", "always"),
            ("defrag", "always", "madvise"),
            ("hugepages-2048kB/enabled", "never", "inherit"),
        ];
        let fake = Fake::new();
        fake.apply().unwrap();
        for (file, value, _) in by_hand {
            fake.write(file, value);
        }
        for _ in 0..2 {
            let settings = fake.place.settings().unwrap();
            let left = settings.iter().filter(|setting| setting.left);
            assert_eq!(left.count(), by_hand.len());
            assert!(!settings.iter().any(Setting::is_to_be_set));
            fake.apply().unwrap();
            for (file, value, _) in by_hand {
                assert_eq!(fake.value(file), value, "{file}");
            }
        }
        // Beside one that is set, too.
        fs::create_dir(fake.place.thp.join("hugepages-32kB")).unwrap();
        fake.write("hugepages-32kB/enabled", "never");
        fake.apply().unwrap();
        assert_eq!(fake.value("hugepages-32kB/enabled"), "inherit");
        assert_eq!(fake.value("enabled"), "never");
        // `undo` ends that, and what it then finds is what was before.
        assert!(fake.undo().contains(&("enabled".to_owned(), Fate::Left)));
        fake.apply().unwrap();
        for (file, _, wanted) in by_hand {
            assert_eq!(fake.value(file), wanted, "{file}");
        }
        fake.undo();
        for (file, value, _) in by_hand {
            assert_eq!(fake.value(file), value, "{file}");
        }
    }

    #[test]
    fn what_was_as_wanted_and_is_changed_is_left_as_well() {
        let fake = Fake::new();
        fake.apply().unwrap();
        fs::remove_file(fake.place.file()).unwrap();
        fake.apply().unwrap();
        fake.write("enabled", "never");
        fake.apply().unwrap();
        assert_eq!(fake.value("enabled"), "never");
        // As wanted again, it can be changed again.
        fake.write("enabled", "always");
        fake.apply().unwrap();
        fake.write("enabled", "madvise");
        fake.apply().unwrap();
        assert_eq!(fake.value("enabled"), "madvise");
        // Nothing was set.
        assert_eq!(fake.place.undo().unwrap(), None);
        assert!(!fake.place.file().exists());
        fake.apply().unwrap();
        assert_eq!(fake.undo(), [("enabled".to_owned(), Fate::PutBack)]);
    }

    /// What it has not set is not taken for changed by hand.
    #[test]
    fn one_that_was_cut_short_is_finished_by_the_next() {
        for written in 0..=CHANGED.len() {
            let fake = Fake::new();
            let settings = fake.place.settings().unwrap();
            fs::create_dir(&fake.place.saved).unwrap();
            let min_free = fake.place.min_free().unwrap();
            fake.place.save(None, &settings, min_free).unwrap();
            for (file, _, set) in &CHANGED[..written] {
                fake.write(file, set);
            }
            fake.apply().unwrap();
            fake.is_applied();
            fake.undo();
            fake.is_as_booted();
        }
    }

    #[test]
    fn what_was_changed_by_hand_is_left() {
        let fake = Fake::new();
        fake.apply().unwrap();
        fake.write("enabled", "never");
        fake.write("defrag", "[always] madvise never");
        fake.min_free(5000);
        let undone = fake.undo();
        let fate = |name: &str| undone.iter().find(|(file, _)| file == name).unwrap().1;
        assert_eq!(fate("enabled"), Fate::Left);
        assert_eq!(fate("defrag"), Fate::AsBefore);
        assert_eq!(fate("vm.min_free_kbytes"), Fate::Left);
        assert_eq!(fate("shrink_underused"), Fate::PutBack);
        assert_eq!(fake.value("enabled"), "never");
        assert_eq!(fake.place.min_free().unwrap(), Some(5000));
    }

    /// After each write that a crash can come behind, of `apply` and then of `undo`.
    #[test]
    fn a_crash_at_any_moment_leaves_what_undo_needs() {
        for written in 0..=CHANGED.len() {
            for raised in [2048, 9000] {
                let fake = Fake::new();
                let settings = fake.place.settings().unwrap();
                fs::create_dir(&fake.place.saved).unwrap();
                fake.place
                    .save(None, &settings, fake.place.min_free().unwrap())
                    .unwrap();
                for (file, _, set) in &CHANGED[..written] {
                    fake.write(file, set);
                }
                fake.min_free(raised);
                for (file, was, _) in CHANGED[..written].iter().rev().take(2) {
                    fake.write(file, was);
                }
                fs::write(fake.place.saved.join("new"), "{").unwrap();
                fake.undo();
                fake.is_as_booted();
            }
        }
    }

    #[test]
    fn what_the_kernel_raised_is_lowered() {
        let fake = Fake::new();
        let settings = fake.place.settings().unwrap();
        fake.apply().unwrap();
        // As the kernel does it: in the middle of the writes.
        fake.min_free(9000);
        let mut saved = fake.place.load().unwrap().unwrap();
        assert_eq!(saved.min_free_kbytes.unwrap().after, Some(2048));
        saved.min_free_kbytes.as_mut().unwrap().after = Some(9000);
        fake.place.store(&saved).unwrap();
        assert!(
            fake.undo()
                .contains(&("vm.min_free_kbytes".to_owned(), Fate::PutBack))
        );
        fake.is_as_booted();
        assert_eq!(fake.place.settings().unwrap(), settings);
    }

    #[test]
    fn what_cannot_be_saved_is_not_changed() {
        let fake = Fake::new();
        fs::create_dir_all(fake.place.saved.join("new")).unwrap();
        assert_eq!(fake.apply().unwrap_err().code(), 1);
        fs::remove_dir(fake.place.saved.join("new")).unwrap();
        fake.is_as_booted();
        fs::write(fake.place.file(), "{\"version\":1").unwrap();
        for error in [fake.apply().unwrap_err(), fake.place.undo().unwrap_err()] {
            assert!(error.to_string().contains("remove the file"), "{error}");
        }
        let other = "{\"version\":2,\"boot\":\"this\",\"settings\":[]}";
        fs::write(fake.place.file(), other).unwrap();
        assert!(fake.place.undo().is_err());
        fs::remove_file(fake.place.file()).unwrap();
        fake.is_as_booted();
    }

    /// The last one cannot be written: those before it are put back.
    #[test]
    fn what_cannot_be_set_leaves_all_as_it_was() {
        let fake = Fake::new();
        let mut settings = fake.place.settings().unwrap();
        let mut odd = settings[0].clone();
        odd.file = "none/file".to_owned();
        settings.push(odd.clone());
        assert!(fake.place.apply(&settings).is_err());
        fake.is_as_booted();
        // What an earlier one has saved stays.
        fake.apply().unwrap();
        fake.write("enabled", "never");
        let mut settings = fake.place.settings().unwrap();
        settings.push(odd);
        assert!(fake.place.apply(&settings).is_err());
        assert_eq!(fake.value("enabled"), "never");
        fake.write("enabled", "always");
        fake.undo();
        fake.is_as_booted();
    }

    #[test]
    fn values_of_another_boot_are_not_put_back() {
        let fake = Fake::new();
        fake.apply().unwrap();
        fs::write(&fake.place.boot, "next").unwrap();
        assert_eq!(fake.place.undo().unwrap(), None);
        fake.write("defrag", "always");
        fake.apply().unwrap();
        assert_eq!(fake.undo(), [("defrag".to_owned(), Fate::PutBack)]);
        assert_eq!(fake.value("enabled"), "always");
    }

    /// Else `undo` would take it for done, or for another boot's, and forget it.
    #[test]
    fn what_cannot_be_read_is_not_given_up() {
        let fake = Fake::new();
        let unreadable = |file: &Path, then: &dyn Fn()| {
            let text = fs::read(file).unwrap();
            fs::remove_file(file).unwrap();
            fs::create_dir(file).unwrap();
            then();
            fs::remove_dir(file).unwrap();
            fs::write(file, text).unwrap();
        };
        let place = &fake.place;
        let pmd = place.thp.join("hpage_pmd_size");
        fs::write(&pmd, "2097152").unwrap();
        for file in [&place.boot, &place.min_free, &pmd] {
            let settings = place.settings().unwrap();
            let failing = || {
                let error = match file == &pmd {
                    true => place.settings().unwrap_err(),
                    false => place.apply(&settings).unwrap_err(),
                };
                assert!(error.to_string().contains("Is a directory"), "{error}");
            };
            unreadable(file, &failing);
            fake.is_as_booted();
            fake.apply().unwrap();
            unreadable(file, &|| assert_eq!(place.undo().is_err(), file != &pmd));
            if file != &pmd {
                fake.is_applied();
                fake.undo();
            }
            fake.is_as_booted();
        }
    }

    #[test]
    fn two_at_once_do_not_mix() {
        let fake = Fake::new();
        let lock = fake.place.lock().unwrap();
        let error = fake.apply().unwrap_err();
        assert!(error.to_string().contains("at work"), "{error}");
        drop(lock);
        fake.is_as_booted();
        fake.apply().unwrap();
    }

    #[test]
    fn files_of_other_kernels_are_passed_over() {
        let fake = Fake::new();
        for file in [
            "shrink_underused",
            "hugepages-16kB/enabled",
            "hugepages-2048kB/enabled",
        ] {
            fs::remove_file(fake.place.thp.join(file)).unwrap();
        }
        let settings = fake.place.settings().unwrap();
        let absent: Vec<_> = settings.iter().filter(|s| s.now.is_none()).collect();
        let names: Vec<_> = absent.iter().map(|s| &*s.file).collect();
        assert_eq!(names, ["shrink_underused", "hugepages-*kB/enabled"]);
        fake.apply().unwrap();
        assert_eq!(fake.value("enabled"), "always");
        assert_eq!(fake.undo().len(), 3);
        fs::remove_file(fake.place.thp.join("enabled")).unwrap();
        assert_eq!(fake.place.settings().unwrap_err().code(), 1);
    }
}
