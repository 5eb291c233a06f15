// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the BPF object, and writes down its types for Rust; and lists the policies.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use libbpf_cargo::SkeletonBuilder;

/// Oldest clang that compiles the object into something the verifier takes.
const OLDEST_CLANG: u32 = 17;

fn major_version(clang: &Path) -> Option<u32> {
    let out = Command::new(clang).arg("-dumpversion").output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    text.trim().split('.').next()?.parse().ok()
}

/// `$CLANG` if set, else clang-19, else any clang that is new enough.
fn find_clang() -> Result<PathBuf, String> {
    println!("cargo:rerun-if-env-changed=CLANG");
    if let Some(chosen) = env::var_os("CLANG") {
        return Ok(chosen.into());
    }
    for name in ["clang-19", "clang"] {
        let path = PathBuf::from(name);
        if major_version(&path).is_some_and(|v| v >= OLDEST_CLANG) {
            return Ok(path);
        }
    }
    Err(format!(
        "no clang >= {OLDEST_CLANG} found: install clang-19, or name one in $CLANG"
    ))
}

/// Each file of policies/ as name and text: `default` first, then by name.
fn built_in() -> std::io::Result<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir("policies")? {
        let file = entry?.file_name();
        let name = file.to_str().and_then(|file| file.strip_suffix(".toml"));
        names.extend(name.map(str::to_owned));
    }
    names.sort_by_key(|name| (name != "default", name.clone()));
    let row = |name: &String| {
        let file = format!("/policies/{name}.toml");
        format!("({name:?}, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {file:?}))),\n")
    };
    let rows: String = names.iter().map(row).collect();
    Ok(format!("&[\n{rows}]\n"))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let clang = find_clang()?;
    // Unit tests make type information with it.
    println!("cargo:rustc-env=CLANG_OF_THE_BUILD={}", clang.display());

    for directory in ["bpf", "bpf/facts", "policies"] {
        println!("cargo:rerun-if-changed={directory}");
        for entry in fs::read_dir(directory)? {
            println!("cargo:rerun-if-changed={}", entry?.path().display());
        }
    }

    fs::write(out.join("policies.rs"), built_in()?)?;

    SkeletonBuilder::new()
        .source("bpf/mthp.bpf.c")
        .obj(out.join("mthp.bpf.o"))
        .clang(&clang)
        // v3: atomics with a result, and 32-bit arithmetic
        .clang_args([
            "-mcpu=v3",
            "-Ibpf",
            // The names of sources are in the object: without the directory of the build, it is the same from any.
            "-fdebug-compilation-dir=.",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-unused-parameter",
        ])
        .reference_obj(true)
        .build_and_generate(out.join("mthp.skel.rs"))?;
    Ok(())
}
