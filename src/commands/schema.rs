// SPDX-License-Identifier: GPL-2.0-only
//! `mthp_ext schema`: what a program can rely on in the JSON of a command, made of the very types
//! that are printed.

use std::io::{self, Write};

use clap::Args;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

use super::{
    advise, checked, compare, config, detach, explain, metrics, options, policies, reload, set,
    settings, status, support,
};
use crate::errors::{Error, Result};
use crate::output::log::{Line, Recorded};
use crate::output::print::{VERSION, Versioned};

/// Options of `schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// The command
    #[arg(value_name = "COMMAND", value_parser = names())]
    pub command: Option<String>,
}

/// The schema of a type as it is printed.
fn of<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<T>()
}

/// A name, and the schema of what is printed by the command of that name.
type Answer = (&'static str, fn() -> Schema);

/// All commands that have `--json`, by name.
const ANSWERS: [Answer; 19] = [
    ("advise", of::<Versioned<advise::Advised>>),
    ("check-config", of::<Versioned<config::Checked<'static>>>),
    ("compare", of::<Versioned<compare::Report>>),
    ("config", of::<Versioned<config::Configuration<'static>>>),
    ("detach", of::<Versioned<detach::Report>>),
    ("events", of::<Recorded>),
    ("explain", of::<Versioned<explain::Report>>),
    ("metrics", of::<Vec<metrics::Shown>>),
    ("options", of::<Vec<options::Shown>>),
    ("policies", of::<Vec<policies::Row>>),
    ("reload", of::<Versioned<reload::Verdict>>),
    ("run", of::<Line>),
    ("run-check", of::<Versioned<checked::Checked<'static>>>),
    ("set", of::<Versioned<set::Done>>),
    ("settings", of::<Versioned<settings::Report>>),
    ("settings-undo", of::<Versioned<settings::UndoReport>>),
    ("status", of::<Versioned<status::Report>>),
    ("support", of::<Versioned<support::Report>>),
    ("unset", of::<Versioned<set::Done>>),
];

/// Their names.
pub fn names() -> [&'static str; 19] {
    ANSWERS.map(|(name, _)| name)
}

/// The schema of this name, with a name of its own.
pub fn named(name: &str) -> Option<Schema> {
    let (_, schema) = ANSWERS.iter().find(|(one, _)| *one == name)?;
    let mut schema = schema();
    // That of the type that has them is for those who read the code.
    schema.remove("description");
    let id = format!("urn:mthp_ext:{name}:{VERSION}");
    schema.insert("$id".to_owned(), id.into());
    schema.insert("title".to_owned(), format!("mthp_ext {name} --json").into());
    Some(schema)
}

/// The command.
///
/// # Errors
/// [`Error::Output`] if it cannot be written.
pub fn main(args: &SchemaArgs) -> Result<()> {
    let mut out = io::stdout().lock();
    let written = match args.command.as_deref().and_then(named) {
        Some(schema) => serde_json::to_writer_pretty(&mut out, &schema)
            .map_err(Into::into)
            .and_then(|()| writeln!(out)),
        None => names().iter().try_for_each(|name| writeln!(out, "{name}")),
    };
    written.map_err(|source| Error::Output { source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_says_what_its_keys_are() {
        let schema = serde_json::to_value(named("status").unwrap()).unwrap();
        assert_eq!(schema["$id"], "urn:mthp_ext:status:1");
        assert_eq!(schema["properties"]["version"]["type"], "integer");
        let required = schema["required"].as_array().unwrap();
        for key in ["version", "policies", "cgroups"] {
            assert!(required.iter().any(|one| one == key), "{key}: {schema}");
        }
        assert!(named("top").is_none());
    }
}
