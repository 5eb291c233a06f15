// SPDX-License-Identifier: GPL-2.0-only
//! Values of options: what each unit counts, and how it is written.

use serde_json::json;

use super::abi::Bind;
use super::caps::Caps;
use super::units;

/// What is counted, and so how a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// `100ms`; nanoseconds inside.
    Time,
    /// `16M`; bytes inside.
    Size,
    /// `50`; 1024ths inside.
    Percent,
    /// `1024`.
    Number,
    /// `16`; one less inside, as the programs mask instead of dividing.
    PowerOfTwo,
    /// `1` or `0`; `true` and `false` are the same.
    Switch,
    /// `64K`, or `fault=64K,swapin=4K`.
    Caps,
    /// `advised,collapse`: names of bits.
    Set(&'static [Bit]),
}

/// A bit of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bit {
    /// As options call it.
    pub name: &'static str,
    /// As the programs know it.
    pub bit: Bind,
    /// In words.
    pub what: &'static str,
}

/// A value, as the programs know it; only caps do not, as they depend on the base page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// In the unit's inner form.
    Number(u64),
    /// Largest sizes.
    Caps(Caps),
}

impl Unit {
    /// Reads a value; `range`: least and largest, as written.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence that begins with the option.
    pub fn parse(self, text: &str, range: Option<(&str, &str)>) -> Result<Value, String> {
        let written = match self {
            Unit::Caps => return Caps::parse(text).map(Value::Caps),
            Unit::Set(bits) => return set(bits, text).map(Value::Number),
            unit => read(unit, text)?,
        };
        if let Some((least, most)) = range {
            let bound = |text| read(self, text);
            if !(bound(least)?..=bound(most)?).contains(&written) {
                return Err(format!("must be from {least} to {most}"));
            }
        }
        Ok(Value::Number(match self {
            Unit::Percent => units::share(written),
            Unit::PowerOfTwo if !written.is_power_of_two() => {
                return Err("must be a power of two".to_owned());
            }
            Unit::PowerOfTwo => written - 1,
            _ => written,
        }))
    }

    /// A value as it is written.
    pub fn text(self, value: Value) -> String {
        match (self, value) {
            (_, Value::Caps(caps)) => caps.text(true),
            (Unit::Time, Value::Number(ns)) => units::show_duration(ns),
            (Unit::Size, Value::Number(bytes)) => units::show_size(bytes),
            (Unit::Percent, Value::Number(share)) => units::percent(share).to_string(),
            (Unit::PowerOfTwo, Value::Number(mask)) => (mask + 1).to_string(),
            (Unit::Set(bits), Value::Number(n)) => match names(bits, n).as_slice() {
                [] => "none".to_owned(),
                names => names.join(","),
            },
            (_, Value::Number(n)) => n.to_string(),
        }
    }

    /// Key and value in JSON, of the option with this name: the unit is part of the key.
    pub fn json(self, name: &str, value: Value) -> (String, serde_json::Value) {
        let name = name.replace('-', "_");
        match (self, value) {
            (Unit::Time, Value::Number(ns)) => (name + "_us", json!(ns / 1_000)),
            (Unit::Size, Value::Number(bytes)) => (name + "_bytes", json!(bytes)),
            (Unit::Percent, Value::Number(n)) => (name + "_percent", json!(units::percent(n))),
            (Unit::PowerOfTwo, Value::Number(mask)) => (name, json!(mask + 1)),
            (Unit::Switch, Value::Number(n)) => (name, json!(n != 0)),
            (Unit::Set(bits), Value::Number(n)) => (name, json!(names(bits, n))),
            (_, Value::Caps(caps)) => (name + "_bytes", json!(caps)),
            (_, Value::Number(n)) => (name, json!(n)),
        }
    }

    /// What there is, in words, where no range is given.
    pub fn all_text(self) -> String {
        match self {
            Unit::Set(bits) => bits
                .iter()
                .map(|bit| bit.name)
                .collect::<Vec<_>>()
                .join(", "),
            Unit::Caps => "4K and larger, or none".to_owned(),
            _ => "any".to_owned(),
        }
    }
}

/// A number as it is written, in the unit's smallest part.
fn read(unit: Unit, text: &str) -> Result<u64, String> {
    match unit {
        Unit::Time => {
            let nanos = units::duration(text)?.as_nanos();
            u64::try_from(nanos).map_err(|_| "is too large".to_owned())
        }
        Unit::Size => units::size(text),
        Unit::Switch => match text {
            "0" | "false" => Ok(0),
            "1" | "true" => Ok(1),
            _ => Err(format!("has '{text}': it must be 0 or 1")),
        },
        _ => text
            .parse()
            .map_err(|_| format!("has '{text}', which is no number")),
    }
}

fn set(bits: &[Bit], text: &str) -> Result<u64, String> {
    let mut all = 0;
    for word in text.split(',').filter(|_| text != "none") {
        let bit = bits.iter().find(|bit| bit.name == word);
        let bit = bit.ok_or_else(|| {
            let known: Vec<&str> = bits.iter().map(|bit| bit.name).collect();
            format!("has '{word}': there are {}, none", known.join(", "))
        })?;
        all |= u64::from(bit.bit.0);
    }
    Ok(all)
}

/// The bits that are on.
pub fn on(bits: &[Bit], value: u64) -> impl Iterator<Item = &Bit> {
    bits.iter()
        .filter(move |bit| value & u64::from(bit.bit.0) != 0)
}

fn names(bits: &'static [Bit], value: u64) -> Vec<&'static str> {
    on(bits, value).map(|bit| bit.name).collect()
}
