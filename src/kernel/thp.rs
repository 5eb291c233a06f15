// SPDX-License-Identifier: GPL-2.0-only
//! The host's settings of transparent huge pages, and the sizes it has.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::model::abi::ALL_ORDERS;
use crate::model::baseline::{BASELINE, SIZES, Wanted};
use crate::model::orders::Sizes;

/// Where the kernel lists the sizes it knows.
pub const THP_SYSFS: &str = "/sys/kernel/mm/transparent_hugepage";

/// The size that a directory is for; `None` for others.
fn kib_of(name: &OsStr) -> Option<u64> {
    let kib = name.to_str()?.strip_prefix("hugepages-")?;
    kib.strip_suffix("kB")?.parse().ok()
}

/// Reads `hugepages-*kB` below `dir`; those without `enabled` are sizes of
/// shared memory only.  Without any (a kernel without multi-size THP) every
/// order counts as existing.  1 GiB is a size only while somebody may have it.
pub fn sizes(dir: &Path, page_shift: u32) -> Sizes {
    let (mut orders, mut off) = (0, 0);
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let file = entry.path().join("enabled");
        let kib = kib_of(&name).filter(|_| file.exists());
        if let Some(bytes) = kib.and_then(|k| k.checked_mul(1024)).filter(|b| *b != 0) {
            let order = bytes.ilog2().saturating_sub(page_shift);
            // What is beyond a PMD.
            let is_off = order > page_shift.saturating_sub(3) && is_never(dir, &file);
            *(if is_off { &mut off } else { &mut orders }) |= 1 << order;
        }
    }
    if orders == 0 {
        orders = ALL_ORDERS & !off;
    }
    Sizes {
        orders: orders & ALL_ORDERS,
        off,
        page_shift,
    }
}

/// Is a size switched off by its `file`, or below `dir` by the setting of all that it inherits?
/// What cannot be read is not.
fn is_never(dir: &Path, file: &Path) -> bool {
    match choice(file).as_deref() {
        Some("inherit") => choice(&dir.join("enabled")).as_deref() == Some("never"),
        word => word == Some("never"),
    }
}

/// Those of the running machine.
pub fn sizes_of_this_machine() -> Sizes {
    sizes(Path::new(THP_SYSFS), page_shift())
}

/// The same, of which `sizes` were found before: only 1 GiB comes and goes.
pub fn sizes_as_of_now(sizes: &Sizes) -> Sizes {
    match sizes.pud_there() {
        Some(_) => sizes_of_this_machine(),
        None => *sizes,
    }
}

/// log2 of the base page size.
pub fn page_shift() -> u32 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)
        .ok()
        .flatten()
        .and_then(|size| u64::try_from(size).ok())
        .and_then(u64::checked_ilog2)
        .unwrap_or(12)
}

/// What a PMD maps.
fn pmd_kib() -> u64 {
    1 << (2 * page_shift() - 3 - 10)
}

/// The word in brackets of a sysfs choice.
fn chosen(text: &str) -> Option<&str> {
    Some(text.split_once('[')?.1.split_once(']')?.0)
}

/// A setting's value: the word in brackets, or else all of it.
pub(super) fn value(text: &str) -> &str {
    chosen(text).unwrap_or(text.trim())
}

/// The files of a setting below `dir`, by size; the pattern itself where no size has one.
pub(super) fn files(dir: &Path, wanted: &Wanted) -> io::Result<Vec<String>> {
    let Some(rest) = wanted.file.strip_prefix(SIZES) else {
        return Ok(vec![wanted.file.to_owned()]);
    };
    let mut sizes = Vec::new();
    for entry in fs::read_dir(dir)? {
        let kib = kib_of(&entry?.file_name()).filter(|kib| *kib <= pmd_kib());
        let file = |kib| format!("hugepages-{kib}kB{rest}");
        // Some sizes are of shared memory only.
        sizes.extend(kib.filter(|kib| dir.join(file(*kib)).exists()));
    }
    sizes.sort_unstable();
    let files: Vec<_> = sizes
        .iter()
        .map(|kib| format!("hugepages-{kib}kB{rest}"))
        .collect();
    Ok(match files.is_empty() {
        true => vec![wanted.file.to_owned()],
        false => files,
    })
}

fn choice(file: &Path) -> Option<String> {
    chosen(&fs::read_to_string(file).ok()?).map(str::to_owned)
}

/// The host's setting, which a policy narrows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thp {
    /// transparent_hugepage/enabled; `None` without THP in the kernel, and where it is not known.
    pub enabled: Option<String>,
    /// Why it is not known.
    pub unread: Option<String>,
    /// No size is on: there is nothing to narrow.
    pub off: bool,
}

impl Thp {
    /// Reads it below `dir`.  Each size may have a setting of its own.
    pub fn read(dir: &Path) -> Self {
        let file = dir.join("enabled");
        let (enabled, unread) = match fs::read_to_string(&file) {
            Ok(text) => (chosen(&text).map(str::to_owned), None),
            Err(e) if e.kind() == ErrorKind::NotFound => (None, None),
            Err(e) => (None, Some(e.to_string())),
        };
        let sizes = fs::read_dir(dir).into_iter().flatten().flatten();
        let on = |word: Option<String>| word.is_some_and(|w| w != "never" && w != "inherit");
        let own = sizes
            .filter(|size| kib_of(&size.file_name()).is_some())
            .any(|size| on(choice(&size.path().join("enabled"))));
        Thp {
            off: unread.is_none() && !own && !on(enabled.clone()),
            enabled,
            unread,
        }
    }

    /// "always", or why there is no such word.
    pub fn word(&self) -> String {
        match (&self.enabled, &self.unread) {
            (Some(word), _) => word.clone(),
            (None, Some(why)) => format!("cannot be read ({why})"),
            (None, None) => "missing in this kernel".to_owned(),
        }
    }

    /// That of the running machine.
    pub fn of_this_machine() -> Self {
        Self::read(Path::new(THP_SYSFS))
    }

    /// "transparent_hugepage/enabled is always"
    pub fn text(&self) -> String {
        let note = if self.off { ": nothing to narrow" } else { "" };
        match (&self.enabled, &self.unread) {
            (Some(word), _) => format!("transparent_hugepage/enabled is {word}{note}"),
            (None, Some(_)) => format!("transparent_hugepage/enabled {}", self.word()),
            (None, None) => {
                "this kernel has no transparent huge pages: nothing to narrow".to_owned()
            }
        }
    }
}

/// One setting, kept open: looking again is one read.
struct Setting {
    file: File,
    word: String,
}

impl Setting {
    fn open(file: &Path) -> Option<Self> {
        let mut setting = Setting {
            file: File::open(file).ok()?,
            word: String::new(),
        };
        setting.word = setting.now()?;
        Some(setting)
    }

    fn now(&self) -> Option<String> {
        // The longest of them takes 46 bytes.
        let mut buffer = [0; 128];
        let length = self.file.read_at(&mut buffer, 0).ok()?;
        let text = std::str::from_utf8(&buffer[..length]).ok()?;
        Some(value(text).to_owned()).filter(|word| !word.is_empty())
    }
}

/// A setting that somebody has changed.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    /// Its file, below /sys/kernel/mm.
    pub file: String,
    /// The value before.
    pub from: String,
    /// The value now.
    pub to: String,
}

/// The settings of [`BASELINE`], looked at again and again.  Those that cannot be read are left
/// out: the kernel heeds them anyway.
pub struct Watched {
    settings: BTreeMap<String, Setting>,
}

impl Watched {
    /// Those below `dir`, as they are now.
    pub fn new(dir: &Path) -> Self {
        let names = BASELINE
            .iter()
            .flat_map(|wanted| files(dir, wanted).unwrap_or_default());
        Watched {
            settings: names
                .filter_map(|name| Some((name.clone(), Setting::open(&dir.join(&name))?)))
                .collect(),
        }
    }

    /// What was changed since this was asked last.
    pub fn changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for (name, setting) in &mut self.settings {
            if let Some(now) = setting.now().filter(|now| *now != setting.word) {
                changes.push(Change {
                    file: format!("transparent_hugepage/{name}"),
                    from: std::mem::replace(&mut setting.word, now.clone()),
                    to: now,
                });
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_off_when_every_size_is() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Thp::read(dir.path()).enabled, None);
        assert!(Thp::read(dir.path()).text().contains("no transparent"));
        // What cannot be read is not missing.
        let unreadable = tempfile::tempdir().unwrap();
        fs::create_dir(unreadable.path().join("enabled")).unwrap();
        let thp = Thp::read(unreadable.path());
        assert!(
            thp.text()
                .starts_with("transparent_hugepage/enabled cannot be read (")
        );
        assert!(!thp.off);
        let size = dir.path().join("hugepages-64kB");
        fs::create_dir(&size).unwrap();
        for (top, own, off) in [
            (
                "[always] madvise never",
                "always [inherit] madvise never",
                false,
            ),
            (
                "always madvise [never]",
                "always [inherit] madvise never",
                true,
            ),
            (
                "always madvise [never]",
                "[always] inherit madvise never",
                false,
            ),
            (
                "always [madvise] never",
                "always inherit madvise [never]",
                false,
            ),
        ] {
            fs::write(dir.path().join("enabled"), top).unwrap();
            fs::write(size.join("enabled"), own).unwrap();
            let thp = Thp::read(dir.path());
            assert_eq!(thp.off, off, "{top}, {own}");
            assert_eq!(thp.text().contains("nothing to narrow"), off);
        }
        assert_eq!(
            Thp::read(dir.path()).text(),
            "transparent_hugepage/enabled is madvise"
        );
    }

    #[test]
    fn sizes_are_read_from_a_tree() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "hugepages-16kB",
            "hugepages-2048kB",
            "defrag",
            "hugepages-xkB",
        ] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("enabled"), "").unwrap();
        }
        fs::create_dir(dir.path().join("hugepages-8kB")).unwrap();
        assert_eq!(
            sizes(dir.path(), 12),
            Sizes {
                orders: 0x204,
                off: 0,
                page_shift: 12
            }
        );
        let none = sizes(&dir.path().join("absent"), 12);
        assert_eq!(none.orders, ALL_ORDERS);
    }

    #[test]
    fn a_size_beyond_that_of_a_pmd_is_there_and_nobody_sets_it() {
        let dir = tempfile::tempdir().unwrap();
        let beyond = 1 << (2 * page_shift() - 3);
        for kib in [64, pmd_kib(), beyond] {
            let size = dir.path().join(format!("hugepages-{kib}kB"));
            fs::create_dir(&size).unwrap();
            fs::write(size.join("enabled"), "always inherit madvise [never]\n").unwrap();
        }
        let own = dir.path().join(format!("hugepages-{beyond}kB/enabled"));
        let all = dir.path().join("enabled");
        let is_on = |own_word: &str, all_word: &str| {
            fs::write(&own, own_word).unwrap();
            fs::write(&all, all_word).unwrap();
            let found = sizes(dir.path(), page_shift());
            assert!(found.pud_there().is_some() && found.largest() == page_shift() - 3);
            found.pud().is_some()
        };
        assert!(!is_on(
            "always inherit madvise [never]",
            "[always] madvise never"
        ));
        assert!(is_on(
            "always inherit [madvise] never",
            "always madvise [never]"
        ));
        assert!(is_on(
            "always [inherit] madvise never",
            "always [madvise] never"
        ));
        assert!(!is_on(
            "always [inherit] madvise never",
            "always madvise [never]"
        ));
        assert!(is_on("", "always madvise [never]"), "nobody knows");
        let wanted = BASELINE
            .iter()
            .find(|wanted| wanted.file.starts_with(SIZES));
        let wanted = [64, pmd_kib()].map(|kib| (wanted.unwrap(), kib));
        let names = wanted.map(|(_, kib)| format!("hugepages-{kib}kB/enabled"));
        assert_eq!(files(dir.path(), wanted[0].0).unwrap(), names);
    }

    #[test]
    fn a_change_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Watched::new(dir.path()).changes(), []);
        let size = dir.path().join("hugepages-64kB");
        fs::create_dir(&size).unwrap();
        fs::write(dir.path().join("enabled"), "[always] madvise never\n").unwrap();
        let own = size.join("enabled");
        fs::write(&own, "always [inherit] madvise never\n").unwrap();
        let mut watched = Watched::new(dir.path());
        assert_eq!(watched.changes(), []);
        fs::write(&own, "always inherit madvise [never]\n").unwrap();
        let change = Change {
            file: "transparent_hugepage/hugepages-64kB/enabled".to_owned(),
            from: "inherit".to_owned(),
            to: "never".to_owned(),
        };
        assert_eq!(watched.changes(), [change]);
        assert_eq!(watched.changes(), []);
        // Cut off: nothing is known of it.
        fs::write(&own, "").unwrap();
        assert_eq!(watched.changes(), []);
    }

    #[test]
    fn each_setting_that_a_policy_needs_is_watched() {
        let dir = tempfile::tempdir().unwrap();
        let files: Vec<_> = BASELINE
            .iter()
            .map(|wanted| wanted.file.replace(SIZES, "hugepages-64kB"))
            .collect();
        for file in &files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "511\n").unwrap();
        }
        let mut watched = Watched::new(dir.path());
        for file in &files {
            fs::write(dir.path().join(file), "409\n").unwrap();
            let change = Change {
                file: format!("transparent_hugepage/{file}"),
                from: "511".to_owned(),
                to: "409".to_owned(),
            };
            assert_eq!(watched.changes(), [change]);
        }
    }
}
