// SPDX-License-Identifier: GPL-2.0-only
//! Tables of text.

use std::io::{self, Write};
use std::ops::Range;

/// Prints columns as wide as their widest cell; those of `numbers` to the right, words to the
/// left.
///
/// # Errors
/// If it cannot be written.
pub fn print<const N: usize>(
    rows: &[[String; N]],
    numbers: &Range<usize>,
    out: &mut impl Write,
) -> io::Result<()> {
    let width = |column: usize| {
        rows.iter()
            .map(|r| r[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(i, (cell, &w))| {
                if numbers.contains(&i) {
                    format!("{cell:>w$}")
                } else {
                    format!("{cell:<w$}")
                }
            })
            .collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right() {
        let rows = [["A", "B", "C"], ["long", "7", "x"]].map(|row| row.map(str::to_owned));
        let mut out = Vec::new();
        print(&rows, &(1..2), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "A     B  C\nlong  7  x\n");
    }
}
