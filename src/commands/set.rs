// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext set` and `unset`: the override that a cgroup has of its own.  It stands on the cgroup
//! itself, so it ends with it, and outlives daemons; those that run are asked to look.

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;

use super::args::{SetArgs, UnsetArgs};
use super::reload::{self, Verdict};
use super::xattrs::ROUND;
use crate::errors::{Error, Result};
use crate::kernel::cgroup::{self, Cgroup, Names};
use crate::kernel::named::named;
use crate::kernel::xattr;
use crate::model::config::{self, XATTR};
use crate::output::print;

/// What was done, and what daemons say of it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Done {
    cgroup: String,
    /// Null: it has none now.
    value: Option<String>,
    /// What it was.
    before: Option<String>,
    /// Of each daemon that has answered.
    daemons: Vec<Verdict>,
    /// Why others that may be there have not, each reason once.
    unanswered: Vec<String>,
}

fn text(done: &Done, out: &mut impl Write) -> io::Result<()> {
    let cgroup = &done.cgroup;
    let was = match &done.before {
        Some(before) => format!("; it was {before}"),
        None => String::new(),
    };
    match &done.value {
        Some(value) => writeln!(out, "{cgroup}: {XATTR} is {value}{was}")?,
        None => writeln!(out, "{cgroup}: no {XATTR}{was}")?,
    }
    // What is not in force is on standard error, below.
    for one in done.daemons.iter().filter(|one| one.code == 0) {
        writeln!(out, "{cgroup}: {}", one.text)?;
    }
    for why in &done.unanswered {
        writeln!(
            out,
            "{cgroup}: whether a daemon has taken it over is unknown: {why}; one that has a \
             configuration looks again within {ROUND} of its windows"
        )?;
    }
    if done.daemons.is_empty() && done.unanswered.is_empty() {
        writeln!(
            out,
            "no daemon answers: one that runs looks again within {ROUND} of its windows, and each \
             when it starts"
        )?;
    }
    Ok(())
}

/// Writes it, or takes it away.
fn put(args: &UnsetArgs, value: Option<&str>) -> Result<()> {
    let cgroup = match &args.cgroup {
        Some(word) => named(word)?,
        None => {
            let mount = Cgroup::open(cgroup::DEFAULT_MOUNT.as_ref())?.mount;
            Cgroup::open(&xattr::own_cgroup(&mount)?)?
        }
    };
    let before = xattr::replaced(&cgroup.path)?.map(|xattr| xattr.shown());
    match value {
        Some(value) => xattr::write(&cgroup.path, value)?,
        None => xattr::remove(&cgroup.path)?,
    }
    let answers = reload::look(&cgroup.path);
    let done = Done {
        cgroup: Names::new(&cgroup.mount).of_path(&cgroup.path),
        value: value.map(str::to_owned),
        before,
        daemons: answers.verdicts,
        unanswered: answers.unanswered,
    };
    print::print(&done, args.json, text)?;
    let refused = done.daemons.into_iter().find(|one| one.code != 0);
    match refused {
        Some(Verdict { text, code, .. }) => Err(Error::Refused {
            text: format!("{}: {text}", done.cgroup),
            code,
        }),
        None => Ok(()),
    }
}

/// `set`.
///
/// # Errors
/// [`Error::Usage`] for a value with a mistake: nothing is written then.  Without such a cgroup, or
/// the right to write it.  [`Error::Refused`] if a daemon leaves it out: it stays written.
pub fn set(args: &SetArgs) -> Result<()> {
    let value = args.words.join(" ");
    // What the words name, only a daemon knows: its configuration has policies, too.
    let read = config::of_xattr(value.as_bytes());
    read.map_err(|what| Error::Usage(format!("'{value}' is no override: {what}.")))?;
    put(&args.of, Some(&value))
}

/// `unset`.
///
/// # Errors
/// As of [`set`].
pub fn unset(args: &UnsetArgs) -> Result<()> {
    put(args, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(value: Option<&str>, before: Option<&str>, daemons: Vec<Verdict>) -> Done {
        Done {
            cgroup: "/db".to_owned(),
            value: value.map(str::to_owned),
            before: before.map(str::to_owned),
            daemons,
            unanswered: Vec::new(),
        }
    }

    fn printed(done: &Done) -> String {
        let mut out = Vec::new();
        text(done, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn it_says_what_was_set_and_what_came_of_it() {
        let verdict = |in_force: bool, code: u8, text: &str| Verdict {
            in_force,
            text: text.to_owned(),
            code,
        };
        let daemons = vec![
            verdict(true, 0, "policy database"),
            verdict(false, 0, "it is not below /x"),
            verdict(false, 2, "left out"),
        ];
        let set = done(Some("off"), Some("cap=64K"), daemons);
        assert_eq!(
            printed(&set),
            "/db: user.mthp_ext is off; it was cap=64K\n/db: policy database\n\
             /db: it is not below /x\n"
        );
        let json = serde_json::to_value(&set).unwrap();
        assert_eq!(print::undocumented(&json), [""; 0]);
        let unset = printed(&done(None, None, Vec::new()));
        assert!(
            unset.starts_with("/db: no user.mthp_ext\nno daemon answers"),
            "{unset}"
        );
    }

    /// It is written, and whether it is in force only root can ask.
    #[test]
    fn one_that_may_not_be_asked_is_not_taken_for_none() {
        let mut set = done(Some("cap=64K"), None, Vec::new());
        set.unanswered = vec!["only root may ask it (Permission denied (os error 13))".to_owned()];
        assert_eq!(
            printed(&set),
            "/db: user.mthp_ext is cap=64K\n/db: whether a daemon has taken it over is unknown: only \
             root may ask it (Permission denied (os error 13)); one that has a configuration looks \
             again within 60 of its windows\n"
        );
        let json = serde_json::to_value(&set).unwrap();
        assert_eq!(print::undocumented(&json), [""; 0]);
    }

    #[test]
    fn a_value_with_a_mistake_is_not_written() {
        let args = |words: &[&str]| SetArgs {
            words: words.iter().map(|&word| word.to_owned()).collect(),
            of: UnsetArgs {
                cgroup: Some("/no such cgroup".into()),
                json: false,
            },
        };
        for words in [&["cap=5K"][..], &["magic"], &["off", "off"], &[""]] {
            let error = set(&args(words)).unwrap_err();
            assert_eq!(error.code(), 2, "{error}");
        }
        // It would be tried.
        assert_ne!(set(&args(&["cap=64K"])).unwrap_err().code(), 2);
    }
}
