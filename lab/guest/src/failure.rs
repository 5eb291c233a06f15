// SPDX-License-Identifier: GPL-2.0-only
//! What stops a workload before there is a result.

use std::fmt;
use std::io;
use std::process::ExitStatus;

/// A step that failed, and why.
#[derive(Debug)]
pub struct Failure {
    what: String,
    cause: io::Error,
    said: Option<String>,
}

impl Failure {
    /// Names the step that `cause` stopped.
    pub fn new(what: impl Into<String>, cause: impl Into<io::Error>) -> Self {
        Self {
            what: what.into(),
            cause: cause.into(),
            said: None,
        }
    }

    /// A failure that no system call reported.
    pub fn other(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(what, io::Error::other(why.into()))
    }

    /// A failure of `program`, whose last line was `said`; `why` is what is known without it.
    pub fn of(what: impl Into<String>, why: impl Into<String>, program: &str, said: &str) -> Self {
        let mut failure = Self::other(what, why);
        if !said.is_empty() {
            // Many programs put their name before what they say.
            let named = said.starts_with(program);
            failure.said = Some(if named {
                said.to_owned()
            } else {
                format!("{program}: {said}")
            });
        }
        failure
    }

    /// The same for a program that has ended.
    pub fn ended(what: impl Into<String>, status: ExitStatus, program: &str, said: &str) -> Self {
        Self::of(what, format!("{program} ended: {status}"), program, said)
    }

    /// Why, in one line: the words of the program that failed if it said any.
    pub fn cause(&self) -> String {
        self.said
            .clone()
            .unwrap_or_else(|| format!("{}: {}", self.what, self.cause))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.cause)?;
        self.said
            .as_ref()
            .map_or(Ok(()), |said| write!(f, "; it said: {said}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_what_the_program_said() {
        let failure = |said| Failure::of("attach", "it ended", "mthp_ext", said);
        assert_eq!(failure("mthp_ext: no BTF").cause(), "mthp_ext: no BTF");
        assert_eq!(failure("no BTF").cause(), "mthp_ext: no BTF");
        assert_eq!(failure("").cause(), "attach: it ended");
        assert_eq!(
            failure("no BTF").to_string(),
            "attach: it ended; it said: mthp_ext: no BTF"
        );
        assert_eq!(failure("").to_string(), "attach: it ended");
    }
}
