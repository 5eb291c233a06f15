// SPDX-License-Identifier: GPL-2.0-only
//! What each rule does by its values, in a sentence.  An option that a sentence leaves out shows
//! all the same, as output/settings.rs goes through the table.

use super::abi::{self, Tunables};
use super::rule::{Rule, Rules};

/// The stall that counts: of all tasks, or of some.
pub fn stall(tunables: &Tunables) -> &'static str {
    if tunables.some_stall == 0 {
        "full"
    } else {
        "some"
    }
}

/// Whether large folios are given up to a limit while all fits below it: `mthp_never_fits()` of
/// `bpf/decide.h`; tests/change.rs compares.
pub fn what_fits_is_given(t: &Tunables) -> bool {
    let seen = Rules(t.rules).has(Rule::Sparse) && t.sparse_bytes != 0;
    t.takes_back != 0 && t.limit_share != 0 && seen
}

/// A rule in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// With `{names}` of options in the place of their values.
    pub text: String,
    /// Options that it has other words for.
    reworded: &'static [&'static str],
}

impl Sentence {
    /// Does it say the value of this option?
    pub fn says(&self, option: &str) -> bool {
        self.text.contains(&format!("{{{option}}}")) || self.reworded.contains(&option)
    }
}

/// What a rule does; `None` for a cap that there is not.
pub fn sentence(rule: Rule, t: &Tunables) -> Option<Sentence> {
    let empty = if t.bind_khugepaged != 0 {
        "base pages on fault and by khugepaged"
    } else {
        "base pages on fault"
    };
    let off = || "off".to_owned();
    let (text, reworded): (String, &[&str]) = match rule {
        Rule::Pressure => (
            format!(
                "base pages from {{threshold}} of {} stall in {{window}}, until a window has less",
                stall(t),
            ),
            &["some-stall"],
        ),
        Rule::Small => (
            match t.min_memory {
                0 => off(),
                _ => format!("{empty} below {{min-memory}} of anon+shmem"),
            },
            &["min-memory", "bind-khugepaged"],
        ),
        Rule::Sparse => (
            match t.sparse_bytes {
                0 => off(),
                _ => format!(
                    "{empty} for a process that fills less than a quarter of what it grew by, or \
                     less than half of all that it spans if that wastes {{sparse-waste}}"
                ),
            },
            &["sparse-waste", "bind-khugepaged"],
        ),
        Rule::Room => (
            format!(
                "a folio may take 1/{{room-factor}} of what a limit or the machine has left, once \
                 {{limit-share}}% of it is in use{}",
                if what_fits_is_given(t) {
                    "; a limit below which all fits is none"
                } else {
                    ""
                }
            ),
            &[],
        ),
        Rule::Cap if t.cap[1..].iter().all(|cap| *cap == abi::NO_CAP) => return None,
        Rule::Cap => ("at most {cap}".to_owned(), &[]),
    };
    Some(Sentence { text, reworded })
}
