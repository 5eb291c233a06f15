// SPDX-License-Identifier: GPL-2.0-only
//! The cgroup that a user means: by a path, as `status` shows it or with the mount point, or by
//! the name of a systemd unit.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::cgroup::{self, Cgroup};
use crate::errors::{Error, Result};
use crate::model::shown::shown;

/// The cgroup of this name, below the usual mount point or elsewhere.
///
/// # Errors
/// [`Error::NoCgroup2`] without any hierarchy, [`Error::NoSuchCgroup`] if there is none or more
/// than one, [`Error::NotCgroup2`] for a path of another kind.
pub fn named(word: &OsStr) -> Result<Cgroup> {
    let mount = Cgroup::open(Path::new(cgroup::DEFAULT_MOUNT))?.mount;
    Cgroup::open(&path_of(&mount, word)?)
}

/// The cgroup of a `--root`: a directory of any cgroup v2 hierarchy comes first, so that a path of
/// the file system means what it says; else its path as `status` shows it.  No name of a unit: who
/// has a subtree of his own may give a cgroup in it any name.
///
/// # Errors
/// [`Error::NotCgroup2`] for what is neither.
pub fn root(given: &Path) -> Result<Cgroup> {
    let not = match Cgroup::open(given) {
        Err(not @ Error::NotCgroup2 { .. }) => not,
        other => return other,
    };
    // Neither `.` nor `/db/..` is the whole host.
    if !given.is_absolute() || given.components().any(|part| part == Component::ParentDir) {
        return Err(not);
    }
    match named(given.as_os_str()) {
        Err(Error::NotCgroup2 { .. } | Error::NoCgroup2 { .. }) => Err(not),
        other => other,
    }
}

/// Its directory.
fn path_of(mount: &Path, word: &OsStr) -> Result<PathBuf> {
    let given = Path::new(word);
    let below = mount.join(given.strip_prefix("/").unwrap_or(given));
    if given.starts_with(mount) || (!below.is_dir() && given.is_dir()) {
        return Ok(given.to_owned());
    }
    let why = |why: String| Error::NoSuchCgroup {
        name: shown(word.as_bytes()),
        why,
    };
    if word.is_empty() {
        return Err(why("the name is empty".to_owned()));
    }
    if below.is_dir() {
        return Ok(below);
    }
    if given.components().count() != 1 || given.is_absolute() {
        return Err(why("there is nothing by this path".to_owned()));
    }
    let service = [word, OsStr::new(".service")].join(OsStr::new(""));
    let mut found = Vec::new();
    let unlisted = cgroup::walk(mount, &mut |path, _| {
        let is = path.file_name();
        if is == Some(word) || is == Some(&service) {
            found.push(path.to_owned());
        }
    });
    let names = cgroup::Names::new(mount);
    // Another one of this name may be there.
    if let Some(first) = unlisted.into_iter().next() {
        return Err(Error::reading(&first.path, first.source));
    }
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(why(
            "no cgroup has this path, and no unit this name".to_owned()
        )),
        several => {
            let paths: Vec<String> = several.iter().map(|path| names.of_path(path)).collect();
            Err(why(format!("several have this name: {}", paths.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for path in [
            "db",
            "system.slice/redis.service",
            "system.slice/web.service",
            "user.slice/web.service",
        ] {
            std::fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        dir
    }

    fn found(word: &str) -> std::result::Result<String, Error> {
        let dir = tree();
        let path = path_of(dir.path(), OsStr::new(word))?;
        Ok(cgroup::Names::new(dir.path()).of_path(&path))
    }

    #[test]
    fn a_cgroup_has_several_names() {
        for (word, path) in [
            ("/", "/"),
            ("db", "/db"),
            ("/db", "/db"),
            ("/db/", "/db/"),
            ("system.slice/redis.service", "/system.slice/redis.service"),
            ("/system.slice/redis.service", "/system.slice/redis.service"),
            ("redis.service", "/system.slice/redis.service"),
            ("redis", "/system.slice/redis.service"),
        ] {
            assert_eq!(
                found(word).unwrap().trim_end_matches('/'),
                path.trim_end_matches('/'),
                "{word}"
            );
        }
        let dir = tree();
        let given = dir.path().join("db");
        assert_eq!(path_of(dir.path(), given.as_os_str()).unwrap(), given);
    }

    /// That it exists elsewhere is said by who opens it.
    #[test]
    fn a_directory_elsewhere_is_taken_as_it_is() {
        assert_eq!(found("/proc").unwrap(), "/proc");
    }

    /// Whatever is mounted here.
    #[test]
    fn a_root_that_is_no_cgroup_is_refused_as_it_was_given() {
        for path in ["/proc", "/none/such", "/none/..", "none/such", "none", "."] {
            let error = root(Path::new(path)).unwrap_err();
            let text = error.to_string();
            let place = format!("{path}: not a cgroup v2 directory ");
            assert!(text.starts_with(&place), "{text}");
            assert_eq!(error.code(), 3);
        }
    }

    #[test]
    fn a_name_that_none_or_several_have_is_refused() {
        for (word, part) in [
            ("nothing", "no unit this name"),
            ("/none/such", "nothing by this path"),
            ("none/such", "nothing by this path"),
            ("", "empty"),
            ("a\nb", "no cgroup has this path"),
            (
                "web",
                "several have this name: /system.slice/web.service, /user.slice/web.service",
            ),
        ] {
            let error = found(word).unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains(part) && !text.contains('\n'),
                "{word}: {text}"
            );
            assert_eq!(error.code(), 3);
        }
    }
}
