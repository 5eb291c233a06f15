// SPDX-License-Identifier: GPL-2.0-only
//! The guest's knobs: THP sizes, swap, and the cgroup of the server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Failure;
use super::cell::{Cell, Limit};

const THP: &str = "/sys/kernel/mm/transparent_hugepage";
const ZRAM: &str = "/sys/block/zram0";

fn write(path: impl AsRef<Path>, value: &str) -> Result<(), Failure> {
    let path = path.as_ref();
    fs::write(path, value)
        .map_err(|e| Failure::new(format!("write {value:?} to {}", path.display()), e))
}

/// Reads a whole small file.
pub fn read(path: impl AsRef<Path>) -> Result<String, Failure> {
    let path = path.as_ref();
    fs::read_to_string(path).map_err(|e| Failure::new(format!("read {}", path.display()), e))
}

fn number_in(text: &str, what: &str) -> Result<u64, Failure> {
    text.trim()
        .parse()
        .map_err(|_| Failure::other(format!("read {what}"), format!("not a number: {text:?}")))
}

/// The value behind `key` in a file of "key value" lines; 0 if there is no such line.
pub fn keyed(text: &str, key: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(name, _)| *name == key)
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}

/// Total in microseconds of a "some" or "full" line of a pressure file.
pub fn stall_in(text: &str, kind: &str) -> u64 {
    text.lines()
        .find(|line| line.starts_with(kind))
        .and_then(|line| line.rsplit_once("total="))
        .and_then(|(_, total)| total.trim().parse().ok())
        .unwrap_or(0)
}

/// Sets every THP size, swap and the watermarks as the cell wants them.
pub fn prepare(cell: &Cell) -> Result<(), Failure> {
    write(format!("{THP}/enabled"), &cell.thp)?;
    let sizes = fs::read_dir(THP).map_err(|e| Failure::new(format!("list {THP}"), e))?;
    for size in sizes.flatten() {
        let enabled = size.path().join("enabled");
        // Sizes of file memory have no such file.
        if size.file_name().to_string_lossy().starts_with("hugepages-") && enabled.exists() {
            write(enabled, &cell.thp)?;
        }
    }
    // One page at a time from zram: reading ahead would mix a second effect in.
    write("/proc/sys/vm/page-cluster", "0")?;
    write(format!("{ZRAM}/comp_algorithm"), "lz4")?;
    write(format!("{ZRAM}/disksize"), &cell.swap_bytes.to_string())?;
    for program in ["mkswap", "swapon"] {
        let status = Command::new(format!("/bin/{program}"))
            .arg("/dev/zram0")
            .stdout(std::process::Stdio::null())
            .status()
            .map_err(|e| Failure::new(format!("start {program}"), e))?;
        if !status.success() {
            return Err(Failure::other(program, status.to_string()));
        }
    }
    // Last: khugepaged, which starts with the first size, sets it as well.
    write(
        "/proc/sys/vm/min_free_kbytes",
        &cell.min_free_kbytes.to_string(),
    )
}

/// Release of the running kernel.
pub fn release() -> Result<String, Failure> {
    Ok(read("/proc/sys/kernel/osrelease")?.trim().to_owned())
}

/// Pages swapped in and out since boot.
#[derive(Clone, Copy)]
pub struct Swapped {
    /// pswpin
    pub pagein: u64,
    /// pswpout
    pub pageout: u64,
}

impl Swapped {
    /// Reads /proc/vmstat.
    pub fn read() -> Result<Self, Failure> {
        let text = read("/proc/vmstat")?;
        Ok(Self {
            pagein: keyed(&text, "pswpin"),
            pageout: keyed(&text, "pswpout"),
        })
    }
}

/// The cgroup of the server.
pub struct Group {
    /// Its directory.
    pub path: PathBuf,
}

impl Group {
    /// Makes the cgroup and sets its limit.
    pub fn create(name: &str, cell: &Cell) -> Result<Self, Failure> {
        let path = Path::new("/sys/fs/cgroup").join(name);
        fs::create_dir(&path).map_err(|e| Failure::new(format!("make {}", path.display()), e))?;
        match cell.limit {
            Limit::None => {}
            Limit::High => write(path.join("memory.high"), &cell.limit_bytes.to_string())?,
            Limit::Max => write(path.join("memory.max"), &cell.limit_bytes.to_string())?,
        }
        Ok(Self { path })
    }

    /// A file that holds one number.
    pub fn number(&self, file: &str) -> Result<u64, Failure> {
        number_in(&read(self.path.join(file))?, file)
    }

    /// A count of memory.events.
    pub fn event(&self, name: &str) -> Result<u64, Failure> {
        Ok(keyed(&read(self.path.join("memory.events"))?, name))
    }

    /// Total memory stall of a kind, microseconds.
    pub fn stall(&self, kind: &str) -> Result<u64, Failure> {
        Ok(stall_in(&read(self.path.join("memory.pressure"))?, kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyed_takes_whole_names() {
        let text = "pswpin_more 1\npswpin 12\npswpout 3\n";
        assert_eq!(keyed(text, "pswpin"), 12);
        assert_eq!(keyed(text, "pswp"), 0);
    }

    #[test]
    fn stall_of_each_kind() {
        let text = "some avg10=1.00 avg60=0.00 avg300=0.00 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
        assert_eq!((stall_in(text, "some"), stall_in(text, "full")), (7, 5));
        assert_eq!(stall_in("", "some"), 0);
    }
}
