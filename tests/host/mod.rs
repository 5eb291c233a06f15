// SPDX-License-Identifier: GPL-2.0-only
//! C programs on the host, made of the headers that the kernel side is made of.

#![allow(clippy::expect_used, reason = "a failed step fails the test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use mthp_ext::model::orders::Sizes;
use mthp_ext::model::{abi, resolve};

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
const HEADERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/bpf");

/// The defaults of the table of options, on a machine with 4 KiB pages and 2 MiB folios.
fn defaults() -> String {
    let sizes = Sizes {
        orders: 0x3fc,
        off: 0,
        page_shift: 12,
    };
    let tunables = resolve::defaults(&sizes).expect("the table");
    let bytes: Vec<String> = abi::as_bytes(&tunables).iter().map(u8::to_string).collect();
    format!(
        "static const unsigned char default_tunables[] = {{ {} }};\n",
        bytes.join(", ")
    )
}

/// A C program with the headers of the decision, compiled when first used.  Undefined behaviour
/// ends it with a failure.
pub struct Program {
    name: &'static str,
    path: OnceLock<PathBuf>,
}

impl Program {
    /// Of the file tests/NAME.c.
    pub const fn new(name: &'static str) -> Self {
        Program {
            name,
            path: OnceLock::new(),
        }
    }

    fn compile(&self) -> PathBuf {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.d", self.name));
        std::fs::create_dir_all(&place).expect("a directory for the program");
        std::fs::write(place.join("defaults.h"), defaults()).expect("the defaults");
        let path = place.join(self.name);
        let out = Command::new("cc")
            .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror"])
            .args(["-fsanitize=undefined", "-fno-sanitize-recover=undefined"])
            .args(["-I", HEADERS, "-I", TESTS, "-I"])
            .arg(&place)
            .arg("-o")
            .arg(&path)
            .arg(format!("{TESTS}/{}.c", self.name))
            .output()
            .expect("a C compiler");
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        path
    }

    /// Runs it with these arguments.
    pub fn run(&self, args: &[&str]) -> Output {
        Command::new(self.path.get_or_init(|| self.compile()))
            .args(args)
            .output()
            .expect("the compiled tests")
    }
}
