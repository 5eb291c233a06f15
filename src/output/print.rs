// SPDX-License-Identifier: GPL-2.0-only
//! How a command that shows something prints its answer.

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;

use crate::errors::{Error, Result};

/// The version of all answers in JSON: another one when a name or its meaning changes.  New keys
/// may come at any time.
pub const VERSION: u32 = 1;

/// An answer as it is printed.
#[derive(Serialize, JsonSchema)]
pub struct Versioned<T> {
    /// 1: what these keys mean.
    version: u32,
    #[serde(flatten)]
    answer: T,
}

/// Prints `answer` on standard output: as one line of JSON, or by `text`.
///
/// # Errors
/// [`Error::Output`] if it cannot be written.
pub fn print<T: Serialize>(
    answer: &T,
    json: bool,
    text: impl FnOnce(&T, &mut io::StdoutLock<'static>) -> io::Result<()>,
) -> Result<()> {
    let version = VERSION;
    let versioned = Versioned { version, answer };
    print_as(&versioned, json, |of, out| text(of.answer, out))
}

/// The same of rows, which have no version of their own.
///
/// # Errors
/// [`Error::Output`] if they cannot be written.
pub fn rows<T: Serialize>(
    rows: &Vec<T>,
    json: bool,
    text: impl FnOnce(&Vec<T>, &mut io::StdoutLock<'static>) -> io::Result<()>,
) -> Result<()> {
    print_as(rows, json, text)
}

fn print_as<T: Serialize>(
    answer: &T,
    json: bool,
    text: impl FnOnce(&T, &mut io::StdoutLock<'static>) -> io::Result<()>,
) -> Result<()> {
    let mut out = io::stdout().lock();
    let written = if json {
        serde_json::to_writer(&mut out, answer)
            .map_err(Into::into)
            .and_then(|()| writeln!(out))
    } else {
        text(answer, &mut out)
    };
    written.map_err(|source| Error::Output { source })
}

/// Keys of an answer that docs/use.md does not have.
#[cfg(test)]
pub fn undocumented(answer: &serde_json::Value) -> Vec<String> {
    /// What these have inside is told elsewhere: options, reasons, files of the kernel.
    const LEAVES: [&str; 11] = [
        "decisions",
        "settings",
        "options",
        "orders",
        "requests",
        "narrowed",
        "by_rule",
        "by_size",
        "spared_bytes",
        "neighbours",
        "features",
    ];
    fn keys(value: &serde_json::Value, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
            serde_json::Value::Object(pairs) => {
                for (key, value) in pairs {
                    found.push(key.clone());
                    if !LEAVES.contains(&key.as_str()) {
                        keys(value, found);
                    }
                }
            }
            _ => {}
        }
    }
    let page = include_str!("../../docs/use.md");
    let section = page.split("\n## JSON\n").nth(1).unwrap_or_default();
    let named = |key: &str| {
        // Every other part is between backticks; `policies[].settings` has two keys.
        let spans = section.split('`').skip(1).step_by(2);
        spans
            .flat_map(|span| span.split('.'))
            .any(|name| name.trim_end_matches("[]") == key)
    };
    let mut found = Vec::new();
    keys(answer, &mut found);
    found.sort();
    found.dedup();
    found.retain(|key| !named(key));
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_that_the_page_lacks_is_found() {
        let answer = json!({"policy": 1, "level": [{"limit": 1, "magic": {"level": 2}}]});
        assert_eq!(undocumented(&answer), ["magic"]);
        let inside = json!({"settings": {"magic": 1}});
        assert_eq!(undocumented(&inside), [""; 0]);
    }
}
