// SPDX-License-Identifier: GPL-2.0-only
//! Policies and configurations on disk: where they are looked for, and reading a policy.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::errors::{Error, Result};
use crate::model::policy::{BUILT_IN, ENDING, Mistake, Policy};
use crate::model::resolve;

/// Where a configuration is looked for.
pub const CONFIG: &str = "/etc/mthp_ext/config.toml";

/// Where policies are looked for first.
const DIRECTORY: &str = "/etc/mthp_ext/policies";

/// Whether one was given matters: clap's own default would hide it.
const DIRECTORY_HELP: &str = "Directory of policies of your own; they override those built in \
                              [default: /etc/mthp_ext/policies]";

/// Where policies of the user's own are looked for.
#[derive(Clone, Debug, Default, Args)]
pub struct Directory {
    /// The directory; without it [`DIRECTORY`], which need not be there.
    #[arg(long = "policy-dir", value_name = "DIR", help = DIRECTORY_HELP)]
    pub policy_dir: Option<PathBuf>,
}

/// A mistake in `file`, or without any in what the user gave.
pub(super) fn wrong(file: Option<&Path>, mistake: Mistake) -> Error {
    let what = mistake.what;
    let Some(file) = file else {
        return Error::Usage(format!("{what}."));
    };
    let place = match mistake.line {
        Some(line) => format!("{}:{line}", file.display()),
        None => file.display().to_string(),
    };
    Error::Policy { place, what }
}

/// Do the values of a policy go together, whatever the user may give beside them?
///
/// # Errors
/// [`Error::Policy`].
pub fn check(policy: &Policy) -> Result<()> {
    let file = policy.file.as_deref();
    resolve::sound(policy).map_err(|mistake| wrong(file, mistake))
}

/// Reads the file of a policy.
///
/// # Errors
/// [`Error::Policy`] with its first mistake, or [`Error::Usage`] if it cannot be read.
pub fn read_policy(file: &Path) -> Result<Policy> {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let text = std::fs::read_to_string(file).map_err(|e| {
        Error::Usage(format!(
            "cannot read the policy {}: {e}. Name a file that you may read, \
             or one of the policies that `mthp_ext policies` lists.",
            file.display()
        ))
    })?;
    let policy = Policy::parse(&name, &text).map_err(|mistake| wrong(Some(file), mistake))?;
    Ok(Policy {
        file: Some(file.to_owned()),
        ..policy
    })
}

/// Is nothing there?  What cannot be looked at might be, and so might what a link on the way
/// leads to.
pub(super) fn is_absent(path: &Path) -> bool {
    match path.symlink_metadata() {
        Err(e) if e.kind() == ErrorKind::NotFound => match path.parent() {
            Some(up) if up != Path::new("") => up.is_dir() || is_absent(up),
            _ => true,
        },
        _ => false,
    }
}

impl Directory {
    /// Its path.
    pub fn path(&self) -> &Path {
        self.policy_dir.as_deref().unwrap_or(Path::new(DIRECTORY))
    }

    /// Names of the policies in it.
    ///
    /// # Errors
    /// [`Error::Usage`] if it cannot be read; none need be there if none was given.
    pub fn names(&self) -> Result<Vec<String>> {
        let path = self.path();
        if self.policy_dir.is_none() && is_absent(path) {
            return Ok(Vec::new());
        }
        let entries =
            std::fs::read_dir(path).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        let entries = entries.map_err(|e| {
            Error::Usage(format!(
                "cannot read the directory of policies {}: {e}. What is in it overrides what is \
                 built in, so nothing is taken in its place: name a directory that you may read.",
                path.display()
            ))
        })?;
        let mut names: Vec<String> = entries
            .iter()
            .map(std::fs::DirEntry::path)
            .filter(|path| path.extension().is_some_and(|ending| ending == ENDING))
            .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
            .collect();
        names.sort();
        Ok(names)
    }
}

/// Does a word name the file of a policy?
fn is_file(word: &str) -> bool {
    let ending = Path::new(word).extension();
    word.contains('/') || ending.is_some_and(|ending| ending == ENDING)
}

/// The file that [`policy`] reads for a word; where there is none, it is one that is built in.
pub(super) fn file_of(word: &str, directory: &Directory) -> PathBuf {
    match is_file(word) {
        true => PathBuf::from(word),
        false => Policy::path_in(directory.path(), word),
    }
}

/// The policy that a word of the command line means: a file, one of the directory, or one that
/// is built in.
///
/// # Errors
/// [`Error::Usage`] if there is none, or if the directory cannot be read; [`Error::Policy`] if it
/// has a mistake.
pub fn policy(word: &str, directory: &Directory) -> Result<Policy> {
    let file = file_of(word, directory);
    if is_file(word) {
        return read_policy(&file);
    }
    // A mistyped one would go unnoticed where a policy of that name is built in.
    directory.names()?;
    if !is_absent(&file) {
        return read_policy(&file);
    }
    match Policy::built_in(word) {
        Some(Ok(policy)) => Ok(policy),
        Some(Err(mistake)) => Err(wrong(
            Some(&Policy::path_in("policies".as_ref(), word)),
            mistake,
        )),
        None => {
            let known: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            Err(Error::Usage(format!(
                "there is no policy '{word}', neither built in ({}) nor in {}. \
                 For a file elsewhere give its path.",
                known.join(", "),
                directory.path().display()
            )))
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An empty directory, not that of the machine.
    pub fn nowhere() -> (tempfile::TempDir, Directory) {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory {
            policy_dir: Some(dir.path().to_owned()),
        };
        (dir, directory)
    }

    #[test]
    fn a_directory_comes_before_what_is_built_in() {
        let (dir, directory) = nowhere();
        let file = dir.path().join("headroom.toml");
        let text = "about = 'of our own'\nrules = ['room']\nroom-factor = 7\n";
        std::fs::write(&file, text).unwrap();
        let by_name = policy("headroom", &directory).unwrap();
        assert_eq!(by_name.about, "of our own");
        assert_eq!(by_name.file.as_deref(), Some(file.as_path()));
        let (_other, other) = nowhere();
        let by_path = policy(file.to_str().unwrap(), &other).unwrap();
        assert_eq!(by_path.name, "headroom");
        std::fs::write(&file, format!("{text}magic = 1\n")).unwrap();
        let error = policy("headroom", &directory).unwrap_err();
        assert_eq!(error.code(), 2);
        let place = format!("{}:4: ", file.display());
        assert!(error.to_string().contains(&place), "{error}");
    }

    #[test]
    fn a_name_may_have_dots() {
        let (dir, directory) = nowhere();
        for name in ["redis-7", "redis-7.2"] {
            let text = format!("about = 'of {name}'\nrules = ['room']\n");
            std::fs::write(dir.path().join(format!("{name}.toml")), text).unwrap();
        }
        for name in ["redis-7", "redis-7.2"] {
            let found = policy(name, &directory).unwrap();
            assert_eq!(
                (found.name.as_str(), found.about),
                (name, format!("of {name}"))
            );
        }
        assert_eq!(policy("redis-7.3", &directory).unwrap_err().code(), 2);
    }

    /// What cannot be looked at is not what is built in.  (Links: root may read all.)
    #[test]
    fn a_file_that_cannot_be_read_is_not_passed_over() {
        for target in ["default.toml", "/proc/none/default.toml"] {
            let (dir, directory) = nowhere();
            std::os::unix::fs::symlink(target, dir.path().join("default.toml")).unwrap();
            let error = policy("default", &directory).unwrap_err();
            assert!(error.to_string().contains("cannot read"), "{error}");
            assert!(
                policy("headroom", &directory).is_ok(),
                "of which there is none"
            );
        }
    }

    /// The usual place need not be there; a link that leads to it, and on to nowhere, is one.
    #[test]
    fn absent_is_what_no_link_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::os::unix::fs::symlink("/proc/none", at("link")).unwrap();
        std::fs::create_dir(at("empty")).unwrap();
        for absent in ["a", "a/b/c", "empty/a", "empty/a/b"] {
            assert!(is_absent(&at(absent)), "{absent}");
        }
        for there in ["link", "link/a", "link/a/b", "empty"] {
            assert!(!is_absent(&at(there)), "{there}");
        }
        assert!(is_absent(Path::new("a-name-that-nobody-uses")));
        std::fs::write(at("file"), "").unwrap();
        assert!(
            !is_absent(&at("file/a")),
            "a file in the place of a directory"
        );
    }
}
