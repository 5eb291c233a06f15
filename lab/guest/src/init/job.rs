// SPDX-License-Identifier: GPL-2.0-only
//! The job description the host puts into the initramfs: NUL-terminated `key=value` records.

use std::collections::BTreeMap;
use std::io;

use super::Failure;
use super::relay::RESULTS;

/// What to run, and the number that makes this boot's verdict genuine.
#[derive(Debug, PartialEq, Eq)]
pub struct Job {
    /// Drawn by the host for this boot; never leaves this process but in the verdict.
    pub nonce: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    env: BTreeMap<String, String>,
}

impl Job {
    /// Reads the job and removes it, so that what it starts cannot read the nonce.
    pub fn take(path: &str) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|cause| Failure::new(format!("read {path}"), cause))?;
        std::fs::remove_file(path)
            .map_err(|cause| Failure::new(format!("remove {path}"), cause))?;
        Self::parse(&text).map_err(|cause| Failure::new(format!("parse {path}"), cause))
    }

    /// Parses the records `nonce=N`, `arg=WORD` (in order) and `env=NAME=VALUE`.
    fn parse(text: &str) -> io::Result<Self> {
        let mut job = Self {
            nonce: String::new(),
            argv: Vec::new(),
            env: BTreeMap::new(),
        };
        for record in text.split_terminator('\0') {
            match record.split_once('=') {
                Some(("nonce", value)) => job.nonce = value.to_owned(),
                Some(("arg", value)) => job.argv.push(value.to_owned()),
                Some(("env", value)) => {
                    let (name, value) = value.split_once('=').ok_or_else(|| {
                        io::Error::other(format!("environment without '=': {value}"))
                    })?;
                    job.env.insert(name.to_owned(), value.to_owned());
                }
                _ => return Err(io::Error::other(format!("unknown record: {record}"))),
            }
        }
        if job.nonce.is_empty() {
            return Err(io::Error::other("no nonce"));
        }
        Ok(job)
    }

    /// The environment of argv: a plain root shell's, where LAB_RESULTS is, and what the job adds.
    pub fn environment(&self) -> BTreeMap<String, String> {
        let mut all: BTreeMap<String, String> = [
            (
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            ),
            ("HOME", "/root"),
            // The one locale that needs no file: Redis 8 refuses to start in one that is missing.
            ("LC_ALL", "C"),
            ("LAB_RESULTS", RESULTS),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
        all.extend(self.env.clone());
        all
    }

    /// cgroup v2 controllers to switch on below the root: LAB_CONTROLLERS of the job, else the usual four.
    /// A test that mounts a v1 hierarchy must leave that controller out, or the mount is busy.
    pub fn controllers(&self) -> Vec<String> {
        self.env
            .get("LAB_CONTROLLERS")
            .map_or("memory cpu pids cpuset", String::as_str)
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_keep_order_and_odd_characters() {
        let job =
            Job::parse("nonce=ab\0arg=/bin/sh\0arg=-c\0arg=echo a=b\nc\0env=X=1=2\0").unwrap();
        assert_eq!(job.nonce, "ab");
        assert_eq!(job.argv, ["/bin/sh", "-c", "echo a=b\nc"]);
        assert_eq!(job.environment()["X"], "1=2");
        assert_eq!(job.environment()["LAB_RESULTS"], RESULTS);
        assert_eq!(job.environment()["LC_ALL"], "C");
    }

    #[test]
    fn no_nonce_and_unknown_records_are_refused() {
        assert!(Job::parse("arg=/bin/true\0").is_err());
        assert!(Job::parse("nonce=1\0what=ever\0").is_err());
        assert!(Job::parse("nonce=1\0env=X\0").is_err());
    }

    #[test]
    fn controllers_can_be_chosen() {
        let usual = Job::parse("nonce=1\0").unwrap();
        assert_eq!(usual.controllers(), ["memory", "cpu", "pids", "cpuset"]);
        let none = Job::parse("nonce=1\0env=LAB_CONTROLLERS=\0").unwrap();
        assert!(none.controllers().is_empty());
    }
}
