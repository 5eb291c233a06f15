// SPDX-License-Identifier: GPL-2.0-only
//! Compares what a command prints with what a page says it prints.

/// Stands for any lines, or within a line for any text.
pub const ANY: &str = "...";

/// A line with every number as 0 and every run of spaces as one space.
fn normal(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line.trim().chars().peekable();
    while let Some(c) = rest.next() {
        if c.is_whitespace() {
            if !out.ends_with(' ') {
                out.push(' ');
            }
        } else if c.is_ascii_digit() {
            out.push('0');
            // 1,234.5 is one number, the stop behind it is not part of it.
            while let Some(&next) = rest.peek() {
                let mut ahead = rest.clone();
                ahead.next();
                let digit_behind = ahead.peek().is_some_and(char::is_ascii_digit);
                let inside = matches!(next, '.' | ',') && digit_behind;
                if !inside && !next.is_ascii_digit() {
                    break;
                }
                rest.next();
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Is `actual` the line that the page shows?
pub fn line(expected: &str, actual: &str) -> bool {
    let (expected, actual) = (normal(expected), normal(actual));
    let Some((first, others)) = expected.split_once(ANY) else {
        return expected == actual;
    };
    let Some(mut rest) = actual.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = others.split(ANY).collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// The first lines of both that do not fit: indices, the end if there is no such line.
#[derive(Debug, PartialEq, Eq)]
pub struct Mismatch {
    pub expected: usize,
    pub actual: usize,
}

/// Whether `actual` is what the page shows; with `begins`, whether it begins with it.
///
/// # Errors
/// Where they differ.
pub fn lines(expected: &[&str], actual: &[&str], begins: bool) -> Result<(), Mismatch> {
    // Parts between the lines "...": the first belongs at the start, the last at the end, and
    // each of the others wherever it comes first.
    let parts: Vec<&[&str]> = expected.split(|l| l.trim() == ANY).collect();
    let (mut index, mut at) = (0, 0);
    for (number, part) in parts.iter().enumerate() {
        let is_first = number == 0;
        let is_last = number + 1 == parts.len() && !begins;
        let fits = |start: usize| {
            let pairs = part.iter().zip(&actual[start..]);
            pairs.take_while(|(e, a)| line(e, a)).count()
        };
        let starts: Vec<usize> = match (is_first, is_last) {
            (true, _) => vec![0],
            (false, true) => vec![actual.len().saturating_sub(part.len()).max(at)],
            (false, false) => (at..=actual.len()).collect(),
        };
        let mut best = (0, starts[0]);
        for start in starts {
            let length = fits(start);
            if length > best.0 {
                best = (length, start);
            }
            if length == part.len() {
                best = (length, start);
                break;
            }
        }
        let (length, start) = best;
        let more = is_last && start + length < actual.len();
        if length < part.len() || more {
            return Err(Mismatch {
                expected: index + length,
                actual: start + length,
            });
        }
        at = start + length;
        index += part.len() + 1;
    }
    Ok(())
}
