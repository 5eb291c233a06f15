// SPDX-License-Identifier: GPL-2.0-only
//! Applying, undoing, and what comes in between, on files of a directory.

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
            saved: Store {
                directory: at("saved"),
                boot: at("boot"),
            },
        };
        fs::write(&place.saved.boot, "this\n").unwrap();
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
        assert!(!self.place.saved.file().exists());
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
    fs::remove_file(fake.place.saved.file()).unwrap();
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
    assert!(!fake.place.saved.file().exists());
    fake.apply().unwrap();
    assert_eq!(fake.undo(), [("enabled".to_owned(), Fate::PutBack)]);
}

/// What it has not set is not taken for changed by hand.
#[test]
fn one_that_was_cut_short_is_finished_by_the_next() {
    for written in 0..=CHANGED.len() {
        let fake = Fake::new();
        let settings = fake.place.settings().unwrap();
        fs::create_dir(&fake.place.saved.directory).unwrap();
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
            fs::create_dir(&fake.place.saved.directory).unwrap();
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
            fs::write(fake.place.saved.directory.join("new"), "{").unwrap();
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
    let mut saved = fake.place.saved.load().unwrap().unwrap();
    assert_eq!(saved.min_free_kbytes.unwrap().after, Some(2048));
    saved.min_free_kbytes.as_mut().unwrap().after = Some(9000);
    fake.place.saved.store(&saved).unwrap();
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
    fs::create_dir_all(fake.place.saved.directory.join("new")).unwrap();
    assert_eq!(fake.apply().unwrap_err().code(), 1);
    fs::remove_dir(fake.place.saved.directory.join("new")).unwrap();
    fake.is_as_booted();
    fs::write(fake.place.saved.file(), "{\"version\":1").unwrap();
    for error in [fake.apply().unwrap_err(), fake.place.undo().unwrap_err()] {
        assert!(error.to_string().contains("remove the file"), "{error}");
    }
    let other = "{\"version\":2,\"boot\":\"this\",\"settings\":[]}";
    fs::write(fake.place.saved.file(), other).unwrap();
    assert!(fake.place.undo().is_err());
    fs::remove_file(fake.place.saved.file()).unwrap();
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
    fs::write(&fake.place.saved.boot, "next").unwrap();
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
    for file in [&place.saved.boot, &place.min_free, &pmd] {
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
    let lock = fake.place.saved.lock().unwrap();
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
