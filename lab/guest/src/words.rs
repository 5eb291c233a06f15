// SPDX-License-Identifier: GPL-2.0-only
//! What a program printed, line by line, and its last words: the line that says why it failed.

use std::io::Read;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Bytes of a line that are kept.
const LINE_BYTES: usize = 2_000;
/// Guest time to wait for the rest of what an ended program printed.
const PATIENCE: Duration = Duration::from_secs(5);

/// A thread that reads what a program prints.
pub struct Words {
    last: Arc<Mutex<String>>,
    ended: Receiver<()>,
}

impl Words {
    /// Calls `each` for each line that comes through `pipe`.
    pub fn follow(
        pipe: impl Read + Send + 'static,
        mut each: impl FnMut(&str) + Send + 'static,
    ) -> Self {
        let last = Arc::new(Mutex::new(String::new()));
        let (done, ended) = channel();
        let kept = Arc::clone(&last);
        std::thread::spawn(move || {
            lines(pipe, |line| {
                each(line);
                line.clone_into(&mut kept.lock().unwrap_or_else(PoisonError::into_inner));
            });
            let _ = done.send(());
        });
        Self { last, ended }
    }

    /// Waits until the ended program's output has run dry. What a child of it still holds open is not waited for.
    pub fn finish(&self) {
        let _ = self.ended.recv_timeout(PATIENCE);
    }

    /// The last line so far, without what Redis puts before its messages; empty if there was none.
    pub fn last(&self) -> String {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        message(&last).to_owned()
    }
}

/// Calls `each` for each line that is not empty. Progress that overwrites itself with '\r' counts as lines.
pub fn lines(mut pipe: impl Read, mut each: impl FnMut(&str)) {
    let mut line = Vec::new();
    let mut chunk = [0; 4096];
    // What cannot be read counts as the end.
    while let Ok(count @ 1..) = pipe.read(&mut chunk) {
        for &byte in &chunk[..count] {
            if byte == b'\r' || byte == b'\n' {
                take(&mut line, &mut each);
            } else if line.len() < LINE_BYTES {
                line.push(byte);
            }
        }
    }
    take(&mut line, &mut each);
}

fn take(line: &mut Vec<u8>, each: &mut impl FnMut(&str)) {
    if !line.is_empty() {
        each(&String::from_utf8_lossy(line));
        line.clear();
    }
}

/// A line without the "PID:ROLE DATE LEVEL " with which Redis begins those of its log.
fn message(line: &str) -> &str {
    let line = line.trim();
    let stamped = line.split_once(':').is_some_and(|(pid, rest)| {
        pid.parse::<u32>().is_ok() && rest.starts_with(|role: char| role.is_ascii_uppercase())
    });
    if !stamped {
        return line;
    }
    // Its levels: warning, notice, verbose, debug.
    [" # ", " * ", " - ", " . "]
        .iter()
        .filter_map(|level| line.split_once(level))
        .min_by_key(|(stamp, _)| stamp.len())
        .map_or(line, |(_, text)| text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(printed: &'static str) -> Vec<String> {
        let mut found = Vec::new();
        lines(printed.as_bytes(), |line| found.push(line.to_owned()));
        found
    }

    #[test]
    fn progress_that_overwrites_itself_becomes_lines() {
        assert_eq!(
            lines_of("a 1\ra 2\r\n\nlast\nunfinished"),
            ["a 1", "a 2", "last", "unfinished"]
        );
    }

    #[test]
    fn the_last_words_are_a_message_without_its_stamp() {
        let log = "7:C 22 Nov 2026 21:00:00.123 * oO0OoO0OoO0Oo Redis is starting oO0OoO0OoO0Oo\n\
            7:M 22 Nov 2026 21:00:00.124 # Failed to configure LOCALE for invalid locale name.\n\n";
        let said = "Failed to configure LOCALE for invalid locale name.";
        let words = Words::follow(log.as_bytes(), |_| {});
        words.finish();
        assert_eq!(words.last(), said);
        assert_eq!(message("plain - words # here"), "plain - words # here");
        assert_eq!(message("7:M no level"), "7:M no level");
        assert_eq!(message(""), "");
    }
}
