// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel's verifier has to do for each program of each policy.
//!
//! The record is the table of docs/internals/verifier-cost.md.  A program that suddenly costs a
//! multiple is one change of the compiler or of a loop away from being refused.

mod common;

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use common::ext::Ext;
use common::own::OwnFile;
use common::{Group, record, world};
use nix::time::{ClockId, clock_gettime};

const RECORD: &str = include_str!("../docs/internals/verifier-cost.md");

/// By how much a program may have grown.
const GROWTH_PERCENT: u64 = 10;

/// A row of the table.
#[derive(Debug)]
struct Row {
    policy: String,
    options: String,
    program: String,
    verified: u64,
}

/// `| policy | options | program | verified |`; other lines are not rows of it.
fn rows() -> Vec<Row> {
    let rows = RECORD.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
        let &[policy, options, program, verified, ..] = &cells[..] else {
            return None;
        };
        let word = |cell: &str| cell.trim_matches('`').to_owned();
        Some(Row {
            policy: word(policy),
            options: word(options),
            program: word(program),
            verified: verified.replace(',', "").parse().ok()?,
        })
    });
    rows.collect()
}

/// What the kernel shows about a program.
struct Program {
    name: String,
    verified: u64,
    machine_bytes: u32,
}

/// All loaded programs by id.
fn programs() -> BTreeMap<u32, Program> {
    let mut found = BTreeMap::new();
    let mut id = 0;
    // SAFETY: takes a number and writes one.
    while unsafe { libbpf_sys::bpf_prog_get_next_id(id, &raw mut id) } == 0 {
        // SAFETY: takes a number, returns a descriptor or an error.
        let fd = unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) };
        if fd < 0 {
            continue;
        }
        // SAFETY: just made by the kernel, owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut info = libbpf_sys::bpf_prog_info::default();
        let mut len = size_of::<libbpf_sys::bpf_prog_info>() as u32;
        // SAFETY: `info` is zeroed and of the length given.
        let ret = unsafe {
            libbpf_sys::bpf_obj_get_info_by_fd(fd.as_raw_fd(), (&raw mut info).cast(), &raw mut len)
        };
        assert_eq!(ret, 0, "program {id}");
        let name = info.name.iter().take_while(|&&c| c != 0);
        found.insert(
            id,
            Program {
                name: name.map(|&c| c as u8 as char).collect(),
                verified: info.verified_insns.into(),
                machine_bytes: info.jited_prog_len,
            },
        );
    }
    found
}

#[test]
#[ignore = "needs the lab's VM"]
fn the_verifier_has_no_more_to_do_than_recorded() {
    world();
    let rows = rows();
    let mut cases: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| (row.policy.as_str(), row.options.as_str()))
        .collect();
    cases.dedup();
    assert!(!cases.is_empty(), "the record has rows");
    let mut complaints = Vec::new();
    for (policy, options) in cases {
        let group = Group::new("verified");
        let before = programs();
        let mut args = vec!["--policy", policy];
        args.extend(options.split_whitespace());
        let ext = Ext::run(&group, &args);
        let mut expected: Vec<&Row> = rows
            .iter()
            .filter(|row| (row.policy.as_str(), row.options.as_str()) == (policy, options))
            .collect();
        for (_, program) in programs().iter().filter(|(id, _)| !before.contains_key(id)) {
            record(&serde_json::json!({
                "name": "verifier_cost", "policy": policy, "options": options,
                "program": program.name, "verified": program.verified,
                "machine_bytes": program.machine_bytes, "load_ms": ext.load_ms,
            }));
            println!(
                "| `{policy}` | `{options}` | `{}` | {} | {} | load {} ms",
                program.name, program.verified, program.machine_bytes, ext.load_ms
            );
            let at = expected.iter().position(|row| row.program == program.name);
            let Some(row) = at.map(|at| expected.remove(at)) else {
                complaints.push(format!(
                    "{policy} {options}: {} is not recorded",
                    program.name
                ));
                continue;
            };
            if program.verified > row.verified + row.verified * GROWTH_PERCENT / 100 {
                complaints.push(format!("{row:?}: now {}", program.verified));
            }
        }
        for row in expected {
            complaints.push(format!("{row:?}: there is no such program"));
        }
    }
    assert!(
        complaints.is_empty(),
        "docs/internals/verifier-cost.md, or the program: {complaints:#?}"
    );
}

/// From its start to a policy in force.  The guest counts its time in instructions.
#[test]
#[ignore = "needs the lab's VM"]
fn a_policy_is_in_force_soon() {
    /// Measured: 227 ms, and 234 ms with a configuration; runs differ by 1 ms.  With all that is
    /// loaded later it is 390 ms.
    const SOON_MS: u64 = 300;
    world();
    let group = Group::new("soon");
    let file = OwnFile::new(
        "config.toml",
        "[[override]]\ncgroups = 'soon/a'\npolicy = 'off'\n",
    );
    for args in [&[][..], &["--config", file.path()]] {
        for _ in 0..3 {
            let begun = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap());
            let ext = Ext::run(&group, args);
            let since = ext.in_force_ms - begun.as_millis() as u64;
            record(&serde_json::json!({
                "name": "in_force", "args": args, "ms": since, "load_ms": ext.load_ms,
            }));
            println!(
                "{args:?}: in force after {since} ms, loaded after {} ms",
                ext.load_ms
            );
            assert!(since < SOON_MS, "{args:?}: {since} ms until it is in force");
        }
    }
}
