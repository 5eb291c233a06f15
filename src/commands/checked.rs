// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext run --check`: what would be attached, and by which values.

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;

use crate::errors::Result;
use crate::kernel::carrier::Carrier;
use crate::model::abi::Tunables;
use crate::model::ending::{Ending, ON_EXIT};
use crate::model::rule::Rules;
use crate::output::log::Source;
use crate::output::print;
use crate::output::settings::{self, Settings};

/// The answer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Checked<'a> {
    #[serde(flatten)]
    what: &'a Source,
    #[serde(flatten)]
    ending: &'a Ending,
    rules: Rules,
    /// Null for an object that takes no values.
    settings: Option<Settings>,
    #[serde(skip)]
    tunables: Option<Tunables>,
}

fn text(checked: &Checked<'_>, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}: nothing is attached", checked.what)?;
    writeln!(out, "  {ON_EXIT}: {}", checked.ending)?;
    match &checked.tunables {
        Some(tunables) => settings::text(tunables, out),
        None => writeln!(out, "  the object takes no values"),
    }
}

/// Prints what was found to be right.
///
/// # Errors
/// If it cannot be written.
pub fn main(
    what: &Source,
    tunables: &Tunables,
    tunable: bool,
    ending: &Ending,
    json: bool,
) -> Result<()> {
    let mut tunables = *tunables;
    // As on this kernel, if it has the hook; no privilege is needed to look.
    tunables.takes_back = Carrier::probe()
        .is_ok_and(|kernel| kernel.takes_back())
        .into();
    let tunables = tunable.then_some(tunables);
    let checked = Checked {
        what,
        ending,
        rules: Rules(tunables.map_or(0, |t| t.rules)),
        settings: tunables.as_ref().map(Settings::from),
        tunables,
    };
    print::print(&checked, json, |checked, out| text(checked, out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::orders::X86;
    use crate::model::resolve;

    #[test]
    fn it_says_what_would_be_attached() {
        let tunables = resolve::defaults(&X86).unwrap();
        let what = Source {
            policy: Some("web".to_owned()),
            file: Some("/e/web.toml".into()),
            object: None,
            dry_run: false,
        };
        let checked = Checked {
            what: &what,
            ending: &Ending::chosen(None, None),
            rules: Rules(tunables.rules),
            settings: Some(Settings::from(&tunables)),
            tunables: Some(tunables),
        };
        let mut out = Vec::new();
        text(&checked, &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(
            out.starts_with("policy web (/e/web.toml): nothing is attached\n  on-exit: detach (default)\n  pressure: "),
            "{out}"
        );
        let json = serde_json::to_value(&checked).unwrap();
        assert_eq!(json["policy"], "web");
        assert_eq!(print::undocumented(&json), [""; 0]);
        assert_eq!(json["settings"]["threshold_us"], 100_000);
        let bare = Checked {
            settings: None,
            tunables: None,
            ..checked
        };
        let mut out = Vec::new();
        text(&bare, &mut out).unwrap();
        assert!(
            String::from_utf8(out)
                .unwrap()
                .ends_with("takes no values\n")
        );
    }
}
