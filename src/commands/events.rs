// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext events`: what the daemons have reported.  Each keeps its newest lines in a file of its
//! own, as it prints them; whoever reads that asks no daemon, and no daemon waits for him.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::args::EventsArgs;
use crate::errors::{Error, Result};
use crate::kernel::clock::now_ms;
use crate::kernel::recorded::{self, Reader, Writer};
use crate::output::log::{self, Line};

/// Where daemons keep their events, each by the id of its cgroup.
const DIRECTORY: &str = "/run/mthp_ext/events";

/// Bytes of each of a daemon's two files: some thousand events.
const MOST_BYTES: u64 = 1 << 20;

/// Daemons that are gone whose events are kept.
const KEPT: usize = 32;

/// Time between two looks of `--follow`.
const INTERVAL: Duration = Duration::from_millis(200);

/// Keeps what a daemon reports.
pub struct Recorder {
    /// `None`: there has been no place for it yet.
    writer: Option<Writer>,
    id: u64,
    root: String,
    number: u64,
}

impl Recorder {
    /// For the daemon on a cgroup, by its name and id.  Without a place the policy goes on: its log
    /// has all that is reported, too.
    pub fn open(root: &str, id: u64) -> Self {
        let directory = Path::new(DIRECTORY);
        // What stays too long is no reason to do without the new ones.
        let _ = files(directory).and_then(|paths| recorded::remove_old(paths, KEPT));
        Recorder {
            writer: place(id)
                .map_err(|e| eprintln!("mthp_ext: no events in {DIRECTORY}: {e}; the log has them"))
                .ok(),
            id,
            root: root.to_owned(),
            number: 0,
        }
    }

    /// Adds a line.  Where that fails, the numbers of the next ones show it.
    pub fn add(&mut self, line: &Line) {
        self.number += 1;
        if self.writer.is_none() {
            self.writer = place(self.id).ok();
        }
        if let Some(writer) = &mut self.writer {
            let _ = writer.add(&log::record(line, &self.root, self.number));
        }
    }
}

fn place(id: u64) -> io::Result<Writer> {
    Writer::open(Path::new(DIRECTORY), &id.to_string(), MOST_BYTES)
}

/// An event of a file.
#[derive(Debug)]
struct Event {
    t_ms: u64,
    at: DateTime<Utc>,
    /// No less than that of the one before: an event of the kernel may be older than what was
    /// reported when it was read, and keeps its place.
    order_ms: u64,
    number: u64,
    /// In words.
    text: String,
    /// As it is there.
    json: String,
}

impl Event {
    /// `None` for what is no event of this version.
    fn read(json: String) -> Option<Self> {
        let value: Value = serde_json::from_str(&json).ok()?;
        (value["version"] == log::VERSION).then_some(())?;
        let t_ms = value["t_ms"].as_u64()?;
        Some(Event {
            t_ms,
            at: DateTime::from_timestamp_millis(value["unix_ms"].as_i64()?)?,
            order_ms: t_ms,
            number: value["number"].as_u64()?,
            text: value["text"].as_str()?.to_owned(),
            json,
        })
    }
}

/// The events of one daemon after the other on a cgroup.
struct Events {
    reader: Reader,
    last: Option<u64>,
    latest_ms: u64,
}

impl Events {
    /// Those that have come, and how many are missing between them.
    fn take(&mut self) -> io::Result<(Vec<Event>, u64)> {
        let lines = self.reader.lines()?;
        let mut found: Vec<Event> = lines.into_iter().filter_map(Event::read).collect();
        let mut missing = 0;
        for event in &mut found {
            self.latest_ms = self.latest_ms.max(event.t_ms);
            event.order_ms = self.latest_ms;
            missing += match self.last {
                // The oldest that is kept.
                None => 0,
                Some(last) if event.number > last => event.number - last - 1,
                // Those of another daemon begin with 1.
                Some(_) => event.number.saturating_sub(1),
            };
            self.last = Some(event.number);
        }
        Ok((found, missing))
    }
}

fn reading(error: io::Error) -> Error {
    if error.kind() == ErrorKind::PermissionDenied {
        return Error::NoPrivilege {
            what: format!("read the events in {DIRECTORY}"),
        };
    }
    Error::System {
        what: format!("reading the events in {DIRECTORY}"),
        source: error,
    }
}

/// The files that there are.
fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|ending| ending == recorded::ENDING)
        {
            found.push(path);
        }
    }
    Ok(found)
}

/// What has come of all daemons, in the order of time, and how many are missing.
fn come(directory: &Path, all: &mut BTreeMap<PathBuf, Events>) -> io::Result<(Vec<Event>, u64)> {
    for path in files(directory)? {
        if let Entry::Vacant(new) = all.entry(path) {
            let reader = Reader::open(new.key())?;
            new.insert(Events {
                reader,
                last: None,
                latest_ms: 0,
            });
        }
    }
    let (mut found, mut missing) = (Vec::new(), 0);
    for events in all.values_mut() {
        let (more, gap) = events.take()?;
        found.extend(more);
        missing += gap;
    }
    found.sort_by_key(|event| event.order_ms);
    Ok((found, missing))
}

fn print(found: &[Event], from_ms: u64, json: bool, out: &mut impl Write) -> io::Result<()> {
    for event in found.iter().filter(|event| event.t_ms >= from_ms) {
        match json {
            true => writeln!(out, "{}", event.json)?,
            false => writeln!(out, "{}", log::dated(event.at, &event.text))?,
        }
    }
    out.flush()
}

fn none(what: &str) -> Error {
    Error::NoEvents {
        what: what.to_owned(),
        directory: DIRECTORY.into(),
    }
}

/// The command.
///
/// # Errors
/// [`Error::NoEvents`] if no daemon has run, and with `--follow` if none runs; otherwise if the
/// files cannot be read.
pub fn main(args: &EventsArgs) -> Result<()> {
    let since_ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let from_ms = args
        .since
        .map_or(0, |time| now_ms().saturating_sub(since_ms(time)));
    let directory = Path::new(DIRECTORY);
    let mut all = BTreeMap::new();
    let mut first = true;
    loop {
        let (found, missing) = come(directory, &mut all).map_err(reading)?;
        print(&found, from_ms, args.json, &mut io::stdout().lock())
            .map_err(|source| Error::Output { source })?;
        if missing != 0 {
            eprintln!(
                "mthp_ext: {missing} events are missing: they were overwritten before they were \
                 read, or there was no room for them"
            );
        }
        if first && all.is_empty() {
            return Err(none("no daemon has run"));
        }
        if !args.follow {
            return Ok(());
        }
        if first && !all.keys().any(|path| recorded::is_written(path)) {
            return Err(none("no daemon runs"));
        }
        first = false;
        thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(t_ms: u64, number: u64) -> String {
        let version = log::VERSION;
        let unix_ms = 1_795_000_000_000 + t_ms;
        format!(
            "{{\"version\":{version},\"t_ms\":{t_ms},\"unix_ms\":{unix_ms},\"number\":{number},\
             \"text\":\"n{number}\"}}\n"
        )
    }

    #[test]
    fn those_of_all_daemons_come_in_the_order_of_time() {
        let dir = tempfile::tempdir().unwrap();
        let mut one = Writer::open(dir.path(), "1", 1000).unwrap();
        let mut two = Writer::open(dir.path(), "2", 1000).unwrap();
        one.add(&line(1000, 1)).unwrap();
        one.add(&line(3000, 2)).unwrap();
        two.add(&line(2000, 1)).unwrap();
        let mut all = BTreeMap::new();
        let (found, missing) = come(dir.path(), &mut all).unwrap();
        let text = |from_ms: u64, json: bool| {
            let mut out = Vec::new();
            print(&found, from_ms, json, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        // In whatever zone this runs.
        let told = |from_ms| {
            let text = text(from_ms, false);
            let one = |line: &str| {
                let (at, words) = line.rsplit_once(' ').unwrap();
                let at = DateTime::parse_from_str(at, "%Y-%m-%d %H:%M:%S%.3f%:z").unwrap();
                (at.timestamp_millis() - 1_795_000_000_000, words.to_owned())
            };
            text.lines().map(one).collect::<Vec<_>>()
        };
        let wanted = [(1000, "n1"), (2000, "n1"), (3000, "n2")].map(|(ms, n)| (ms, n.to_owned()));
        assert_eq!((&told(0)[..], missing), (&wanted[..], 0));
        assert_eq!(told(2500), wanted[2..]);
        assert_eq!(text(2500, true), line(3000, 2));
        // Only what is new, and what one daemon has reported stays in its order.
        two.add(&line(4000, 2)).unwrap();
        two.add(&line(3900, 3)).unwrap();
        one.add(&line(3950, 3)).unwrap();
        let (found, _) = come(dir.path(), &mut all).unwrap();
        let times: Vec<u64> = found.iter().map(|event| event.t_ms).collect();
        assert_eq!(times, [3950, 4000, 3900]);
    }

    #[test]
    fn what_is_missing_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::open(dir.path(), "1", 1 << 20).unwrap();
        let mut all = BTreeMap::new();
        let mut missing = |numbers: &[u64], more: &str| {
            for number in numbers {
                writer.add(&line(1, *number)).unwrap();
            }
            writer.add(more).unwrap();
            come(dir.path(), &mut all).unwrap().1
        };
        assert_eq!(missing(&[7, 8], "no event\n"), 0);
        assert_eq!(missing(&[9, 12], "{\"version\":0}\n"), 2);
        // Another daemon.
        assert_eq!(missing(&[1, 2], "{}\n"), 0);
        assert_eq!(missing(&[2], "\n"), 1);
    }

    #[test]
    fn without_a_directory_there_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let (found, _) = come(&dir.path().join("none"), &mut BTreeMap::new()).unwrap();
        assert!(found.is_empty());
    }
}
