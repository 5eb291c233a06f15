// SPDX-License-Identifier: GPL-2.0-only
//! What is printed as JSON is as its schema says: no more, and no less.  Knows as much of JSON
//! Schema as those of `mthp_ext schema` use, and refuses the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use mthp_ext::commands::schema;
use serde_json::Value;

/// The answer, which is as the schema of the command says.
pub fn checked(command: &str, answer: Value) -> Value {
    // Made once: there are thousands of lines.
    static MADE: Mutex<BTreeMap<String, Value>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let schema = made.entry(command.to_owned()).or_insert_with(|| {
        let schema = schema::named(command).expect("a schema of that name");
        serde_json::to_value(schema).unwrap()
    });
    if let Err(why) = whole(schema, schema, &answer) {
        panic!("{command}: {why}\n{answer:#}");
    }
    answer
}

/// The answer that a program has printed, which is as the schema of the command says.
pub fn answer(command: &str, printed: &[u8]) -> Value {
    checked(
        command,
        serde_json::from_slice(printed).expect("one JSON value"),
    )
}

/// Of a value of its own: each key of an object must be known.
pub fn whole(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let known = part(root, schema, value)?;
    let keys = value
        .as_object()
        .into_iter()
        .flat_map(|object| object.keys());
    match keys.into_iter().find(|key| !known.contains(*key)) {
        Some(key) => Err(format!("the schema has no {key}")),
        None => Ok(()),
    }
}

fn is(ty: &str, value: &Value) -> bool {
    match ty {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type of JSON Schema: {other}"),
    }
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

/// One of several parts of a schema: the keys that it knows.
fn part(root: &Value, schema: &Value, value: &Value) -> Result<BTreeSet<String>, String> {
    let mut known = BTreeSet::new();
    let Some(schema) = schema.as_object() else {
        // `true`: anything.
        assert_eq!(schema, &Value::Bool(true));
        known.extend(
            value
                .as_object()
                .into_iter()
                .flat_map(|o| o.keys().cloned()),
        );
        return Ok(known);
    };
    // The rest of the schema's words, where their value is an object's.
    let nothing = serde_json::Map::new();
    let object = value.as_object().unwrap_or(&nothing);
    for (word, says) in schema {
        let wrong = || Err(format!("{value} is not {word} {says}"));
        match word.as_str() {
            "$schema" | "$id" | "$defs" | "title" | "description" | "format" | "default" => {}
            "type" => {
                let types = says
                    .as_array()
                    .cloned()
                    .unwrap_or_else(|| vec![says.clone()]);
                if !types.iter().any(|ty| is(ty.as_str().unwrap(), value)) {
                    return wrong();
                }
            }
            "const" if says != value => return wrong(),
            "enum" if !list(says).contains(value) => return wrong(),
            "minimum" if value.as_f64().is_some_and(|v| Some(v) < says.as_f64()) => return wrong(),
            "maximum" if value.as_f64().is_some_and(|v| Some(v) > says.as_f64()) => return wrong(),
            "const" | "enum" | "minimum" | "maximum" => {}
            "required" => {
                let missing = |key: &&Value| !object.contains_key(key.as_str().unwrap());
                if let (true, Some(key)) = (value.is_object(), list(says).iter().find(missing)) {
                    return Err(format!("there is no {key}"));
                }
            }
            "properties" => {
                for (key, of) in says.as_object().unwrap() {
                    if let Some(value) = object.get(key) {
                        whole(root, of, value).map_err(|why| format!("{key}: {why}"))?;
                        known.insert(key.clone());
                    }
                }
            }
            "additionalProperties" => {
                let named = schema.get("properties");
                for (key, value) in object {
                    if named.is_none_or(|named| named.get(key).is_none()) {
                        whole(root, says, value).map_err(|why| format!("{key}: {why}"))?;
                        known.insert(key.clone());
                    }
                }
            }
            "items" => {
                for value in value.as_array().into_iter().flatten() {
                    whole(root, says, value)?;
                }
            }
            "$ref" => {
                let at = says.as_str().unwrap().strip_prefix('#').unwrap();
                known.extend(part(root, root.pointer(at).unwrap(), value)?);
            }
            "allOf" => {
                for of in list(says) {
                    known.extend(part(root, of, value)?);
                }
            }
            "anyOf" | "oneOf" => {
                let mut fits = list(says).iter().map(|of| part(root, of, value));
                let mut most: Option<BTreeSet<String>> = None;
                let mut why = String::new();
                for found in fits.by_ref() {
                    match found {
                        Ok(keys) if most.as_ref().is_none_or(|m| m.len() < keys.len()) => {
                            most = Some(keys);
                        }
                        Ok(_) => {}
                        Err(e) => why = e,
                    }
                }
                known.extend(most.ok_or(why)?);
            }
            other => panic!("a word that is not known here: {other}: {says}"),
        }
    }
    Ok(known)
}
