// SPDX-License-Identifier: GPL-2.0-only
//! The JSON of commands that need no kernel in question is as their schemas say.  That of the others
//! is compared by the tests that run in the VM, wherever they read it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

#[path = "common/schema.rs"]
mod schema;

use std::process::Command;

#[test]
fn what_is_not_as_the_schema_says_is_found() {
    let object = |schema: serde_json::Value, value: serde_json::Value| {
        schema::whole(&schema, &schema, &value)
    };
    let schema = serde_json::json!({
        "type": "object", "required": ["a"],
        "properties": { "a": { "$ref": "#/$defs/a" }, "b": { "type": ["string", "null"] } },
        "$defs": { "a": { "oneOf": [{ "const": 1 }, { "type": "array", "items": { "enum": ["x"] } }] } },
    });
    for (value, fits) in [
        (serde_json::json!({ "a": 1 }), true),
        (serde_json::json!({ "a": ["x"], "b": null }), true),
        (serde_json::json!({ "a": ["y"] }), false),
        (serde_json::json!({ "a": 2 }), false),
        (serde_json::json!({ "b": "c" }), false),
        (serde_json::json!({ "a": 1, "c": 1 }), false),
        (serde_json::json!({ "a": 1, "b": 1 }), false),
        (serde_json::json!([]), false),
    ] {
        assert_eq!(
            object(schema.clone(), value.clone()).is_ok(),
            fits,
            "{value}"
        );
    }
}

/// What the program prints.
fn printed(args: &[&str]) -> Vec<u8> {
    let out = Command::new(env!("CARGO_BIN_EXE_mthp_ext"))
        .args(args)
        .output();
    out.unwrap().stdout
}

#[test]
fn what_needs_no_kernel_is_as_its_schema_says() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.toml");
    let text = "policy = 'default'\n[[override]]\ncgroups = 'a/**'\npolicy = 'fixed'\ncap = '64K'\n\
                [[override]]\ncgroups = 'b'\npolicy = 'nobody'\n";
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    for (name, args) in [
        ("check-config", &["check-config", file, "--json"][..]),
        ("config", &["config", "--show", file, "--json"]),
        ("metrics", &["metrics", "--json"]),
        ("options", &["options", "--json"]),
        ("policies", &["policies", "--json"]),
        (
            "run-check",
            &["run", "--check", "--policy", "default", "--json"],
        ),
        ("support", &["support", "--json"]),
    ] {
        let answer = schema::answer(name, &printed(args));
        let rows = answer.as_array();
        assert!(
            rows.is_some_and(|rows| !rows.is_empty()) || answer["version"] == 1,
            "{answer}"
        );
    }
}

#[test]
fn a_schema_is_printed_by_name() {
    let text = String::from_utf8(printed(&["schema"])).unwrap();
    let names: Vec<&str> = text.lines().collect();
    assert!(
        names.contains(&"status") && names.contains(&"events"),
        "{text}"
    );
    for name in names {
        let schema: serde_json::Value =
            serde_json::from_slice(&printed(&["schema", name])).unwrap();
        assert_eq!(schema["$id"], format!("urn:mthp_ext:{name}:1"));
    }
}
