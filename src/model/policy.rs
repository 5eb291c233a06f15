// SPDX-License-Identifier: GPL-2.0-only
//! Policies: which rules, by which values, and for whom.  Each is a file of policies/, built in
//! or read from a directory.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::given::Values;
use super::options::{OPTIONS, Opt};
use super::rule::{Rule, Rules};
use super::value::Unit;

/// The policies that are built in, of policies/: name, and text of the file.  `default` is the
/// first, then they are by name.
pub const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/policies.rs"));

/// What ends the name of a policy's file.
pub const ENDING: &str = "toml";

/// A policy.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// The name of its file.
    pub name: String,
    /// Its file; `None`: built in.
    pub file: Option<PathBuf>,
    /// For whom it is, in a paragraph.
    pub about: String,
    /// The rules that it applies.
    pub rules: Rules,
    /// The line of the file that names them.
    pub rules_line: Option<usize>,
    /// Options in which it differs from the table's defaults.
    pub values: Values,
}

/// What is wrong with a policy's file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Line of the file, from 1; `None`: no line of it is to blame.
    pub line: Option<usize>,
    /// In words.
    pub what: String,
}

/// Where text is not TOML, and what is said of it, with what helps against the usual mistakes.
pub(super) fn not_toml(error: &toml::de::Error) -> (usize, String) {
    let (at, what) = (error.span().map_or(0, |span| span.start), error.message());
    let what = format!(
        "this is not TOML: {what} (texts, sizes and times stand in quotes, and a key stands once)"
    );
    (at, what)
}

impl Policy {
    /// The one that is built in by this name.
    ///
    /// # Errors
    /// A mistake in a file of policies/, which a test would have found.
    pub fn built_in(name: &str) -> Option<Result<Self, Mistake>> {
        let (name, text) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
        Some(Self::parse(name, text))
    }

    /// Reads the text of a policy's file.
    ///
    /// # Errors
    /// The first mistake.
    pub fn parse(name: &str, text: &str) -> Result<Self, Mistake> {
        let line = |at: usize| Some(text[..at.min(text.len())].matches('\n').count() + 1);
        let mistake = |at: usize, what: String| Mistake {
            line: line(at),
            what,
        };
        let table = DeTable::parse(text).map_err(|e| {
            let (at, what) = not_toml(&e);
            mistake(at, what)
        })?;
        let mut policy = Policy {
            name: name.to_owned(),
            ..Policy::default()
        };
        // They come by name; the first mistake is that of the first line.
        let mut pairs: Vec<_> = table.get_ref().iter().collect();
        pairs.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in pairs {
            let name = key.get_ref().as_ref();
            policy.read_key(name, key.span().start, value, &line)?;
        }
        if policy.rules.iter().next().is_none() {
            return Err(Mistake {
                line: policy.rules_line,
                what: "rules is missing: a policy needs at least one".to_owned(),
            });
        }
        if policy.about.is_empty() {
            return Err(Mistake {
                line: None,
                what: "about is missing: say for whom it is".to_owned(),
            });
        }
        Ok(policy)
    }

    /// Reads one key of it with its value; `line`: that of a place in the text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read_key(
        &mut self,
        name: &str,
        at: usize,
        value: &Spanned<DeValue<'_>>,
        line: &dyn Fn(usize) -> Option<usize>,
    ) -> Result<(), Mistake> {
        let mistake = |at: usize, what: String| Mistake {
            line: line(at),
            what,
        };
        let wrong = |(at, what): Misplaced| mistake(at, format!("{name} {what}"));
        let value_at = value.span().start;
        match (name, value.get_ref()) {
            ("about", DeValue::String(about)) => self.about = about.trim().to_owned(),
            ("about", _) => return Err(wrong((value_at, "must be a text".to_owned()))),
            ("rules", _) => {
                self.rules = rules(value).map_err(wrong)?;
                self.rules_line = line(value_at);
            }
            _ => {
                let option = Opt::named(name).ok_or_else(|| mistake(at, unknown(name)))?;
                let text = written(option, value).map_err(wrong)?;
                let value = option
                    .parse(&text)
                    .map_err(|what| wrong((value_at, what)))?;
                self.values.add_from(option, value, line(value_at));
            }
        }
        Ok(())
    }

    /// Its file in a directory.
    pub fn path_in(directory: &Path, name: &str) -> PathBuf {
        directory.join(format!("{name}.{ENDING}"))
    }
}

fn unknown(name: &str) -> String {
    // Who knows the kernel's word looks for it.
    if name == "max-order" {
        return format!(
            "'{name}' is no option: the largest folio is cap, and a size, as cap=64K, which is order 4 \
             of 4 KiB pages"
        );
    }
    let known: Vec<&str> = OPTIONS.iter().map(|option| option.name).collect();
    format!(
        "'{name}' is no option: there are about, rules, {}",
        known.join(", ")
    )
}

/// What is wrong, and where in the text.
type Misplaced = (usize, String);

fn rules(value: &Spanned<DeValue<'_>>) -> Result<Rules, Misplaced> {
    let list = value.get_ref().as_array();
    let list = list.ok_or_else(|| (value.span().start, "must be a list of rules".to_owned()))?;
    let rule = |name: &str| {
        Rule::named(name).ok_or_else(|| {
            let known = Rule::ALL.map(Rule::name).join(", ");
            format!("has an unknown rule '{name}': there are {known}")
        })
    };
    let one = |item: &Spanned<DeValue<'_>>| {
        let name = item.get_ref().as_str();
        let name = name.ok_or_else(|| "must be a list of names".to_owned());
        name.and_then(rule)
            .map_err(|what| (item.span().start, what))
    };
    list.iter().map(one).collect()
}

/// A value as it would stand on the command line.  Each unit takes what TOML has for it, and
/// nothing else: a boolean is no number.  The parts of a list or table may stand on lines of
/// their own, so each is read by itself.
fn written(option: &Opt, value: &Spanned<DeValue<'_>>) -> Result<String, Misplaced> {
    let part = |at: usize, text: String| match option.parse(&text) {
        Ok(_) => Ok(text),
        Err(what) => Err((at, what)),
    };
    let parts: Vec<String> = match (option.unit, value.get_ref()) {
        (Unit::Switch, DeValue::Boolean(on)) => return Ok(on.to_string()),
        (Unit::Set(_), DeValue::Array(items)) => {
            let name = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
                DeValue::String(name) => part(item.span().start, name.to_string()),
                _ => Err(another(option, item)),
            };
            items.iter().map(name).collect::<Result<_, _>>()?
        }
        (Unit::Caps, DeValue::Table(table)) => {
            let mut pairs: Vec<_> = table.iter().collect();
            pairs.sort_by_key(|(key, _)| key.span().start);
            let pair = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
                let name: &std::borrow::Cow<'_, str> = key.get_ref();
                part(
                    key.span().start,
                    format!("{name}={}", plain(option, value)?),
                )
            };
            pairs.into_iter().map(pair).collect::<Result<_, _>>()?
        }
        _ => return plain(option, value),
    };
    match parts.as_slice() {
        [] => Ok("none".to_owned()),
        parts => Ok(parts.join(",")),
    }
}

/// A text or a whole number, in whatever base it stands.
fn plain(option: &Opt, value: &Spanned<DeValue<'_>>) -> Result<String, Misplaced> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .map(|number| number.to_string())
            .map_err(|_| {
                let what = format!("has '{number}', which is too large");
                (value.span().start, what)
            }),
        _ => Err(another(option, value)),
    }
}

/// It is of another kind than the option's values.
fn another(option: &Opt, value: &Spanned<DeValue<'_>>) -> Misplaced {
    let wanted = match option.unit {
        Unit::Time => "a text like '100ms'",
        Unit::Size => "a text like '16M'",
        Unit::Percent | Unit::Number | Unit::PowerOfTwo => "a whole number",
        Unit::Switch => "true or false",
        Unit::Caps => "a size, or a table of a size for each reason",
        Unit::Set(_) => "a list of names",
    };
    let kind = value.get_ref().type_str();
    let article = match kind.starts_with(['a', 'i']) {
        true => "an",
        false => "a",
    };
    let what = format!("must be {wanted}, and has {article} {kind}");
    (value.span().start, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built_in(name: &str) -> Policy {
        Policy::built_in(name).unwrap().unwrap()
    }

    #[test]
    fn what_is_built_in_is_what_there_is() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/policies");
        let mut files: Vec<String> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|file| file != "default.toml")
            .collect();
        files.sort();
        files.insert(0, "default.toml".to_owned());
        let names: Vec<String> = BUILT_IN.iter().map(|(n, _)| format!("{n}.toml")).collect();
        assert_eq!(names, files);
        for (name, _) in BUILT_IN {
            let policy = built_in(name);
            assert!(policy.about.split_whitespace().count() > 10, "{name}");
        }
    }

    #[test]
    fn the_default_is_the_table() {
        let policy = built_in("default");
        assert_eq!(policy.rules, Rule::ALL.into_iter().collect());
        assert_eq!(policy.values.iter().count(), 0);
    }

    #[test]
    fn a_mistake_has_its_line() {
        let good = "about = 'for a test'\nrules = ['cap']\n";
        assert!(Policy::parse("a", good).is_ok());
        for (text, line, part) in [
            ("about = 'x'\nrules = ['magic']", 2, "unknown rule 'magic'"),
            ("about = 'x'\n\nrules = 1", 3, "must be a list"),
            ("about = 'x'\nrules = [1]", 2, "list of names"),
            (
                "about = 'x'\nrules = ['cap']\nmagic = 1",
                3,
                "'magic' is no option",
            ),
            (
                "about = 'x'\nrules = ['cap']\nwindow = '1x'",
                3,
                "window has an unknown unit",
            ),
            (
                "about = 'x'\nrules = ['cap']\nwindow = 1.5",
                3,
                "window must be a text like '100ms', and has a float",
            ),
            (
                "about = 'x'\nrules = ['cap']\ncap = { fault = '5K' }",
                3,
                "cap has the size",
            ),
            ("about = 1\nrules = ['cap']", 1, "about must be"),
            (
                "about = 'x'\nrules = [\n 'cap',\n 'magic',\n]",
                4,
                "unknown rule 'magic'",
            ),
            (
                "about = 'x'\nrules = ['cap']\nzeal = 1\nalpha = 1",
                3,
                "'zeal' is no option",
            ),
            (
                "about = 'x'\nrules = ['cap']\nbind = [\n 'advised',\n 'swapin',\n]",
                5,
                "bind has 'swapin'",
            ),
            (
                "about = 'x'\nrules = ['cap']\n[cap]\nfault = '64K'\nswapin = '5K'",
                5,
                "cap has the size '5K'",
            ),
            (
                "about = 'x'\nrules = ['cap']\n[cap]\nfault = '64K'\nmagic = '4K'",
                5,
                "cap has an unknown reason 'magic'",
            ),
            (
                "about = 'x'\nrules = ['room']\nroom-factor = true",
                3,
                "room-factor must be a whole number, and has a boolean",
            ),
            (
                "about = 'x'\nrules = ['room']\nspare-cache = []",
                3,
                "spare-cache must be true or false, and has an array",
            ),
            ("about = 'x'\nrules = []", 2, "rules is missing"),
            ("about = 'x'\nrules = [", 2, ""),
            ("about = 'x'\nabout = 'y'", 2, ""),
        ] {
            let mistake = Policy::parse("a", text).unwrap_err();
            assert_eq!(mistake.line, line.into(), "{text}: {mistake:?}");
            assert!(mistake.what.contains(part), "{text}: {mistake:?}");
        }
    }

    #[test]
    fn what_is_not_there_has_no_line() {
        for (text, part) in [
            ("about = 'x'", "rules is missing"),
            ("rules = ['cap']", "about is missing"),
        ] {
            let mistake = Policy::parse("a", text).unwrap_err();
            assert_eq!(mistake.line, None, "{text}: {mistake:?}");
            assert!(mistake.what.contains(part), "{text}: {mistake:?}");
        }
    }
}
