// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the programs that serve as yardsticks.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-changed=../../bpf/hook.h");
    println!("cargo:rerun-if-changed=../../bpf/kernel.h");
    for name in ["yardstick", "recorder", "figures"] {
        SkeletonBuilder::new()
            .source(format!("bpf/{name}.bpf.c"))
            .obj(out.join(format!("{name}.bpf.o")))
            .clang(env::var_os("CLANG").unwrap_or_else(|| "clang-19".into()))
            .clang_args([
                "-I../../bpf",
                "-mcpu=v3",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-Wno-unused-parameter",
            ])
            .build()?;
    }
    Ok(())
}
