// SPDX-License-Identifier: GPL-2.0-only
//! The virtio-serial ports to the host, found by name as udev would.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use lab_guest::failure::Failure;

/// The device announces its ports some time after the driver is there.
const APPEAR: Duration = Duration::from_secs(10);

/// Opens the port that QEMU calls `name` for writing. A port has one holder: until this file is closed
/// nobody else in the guest can open it (EBUSY).
///
/// # Errors
/// It does not appear, or has a holder.
pub fn to_host(name: &str) -> Result<File, Failure> {
    open(name, OpenOptions::new().write(true))
}

/// Opens the port that QEMU calls `name` for reading.
///
/// # Errors
/// It does not appear, or has a holder.
pub fn from_host(name: &str) -> Result<File, Failure> {
    open(name, OpenOptions::new().read(true))
}

fn open(name: &str, options: &OpenOptions) -> Result<File, Failure> {
    let deadline = Instant::now() + APPEAR;
    loop {
        if let Some(path) =
            find(name).map_err(|cause| Failure::new("list the virtio ports", cause))?
        {
            return options.open(&path).map_err(|cause| {
                Failure::new(format!("open port {name} ({})", path.display()), cause)
            });
        }
        if Instant::now() >= deadline {
            return Err(Failure::new(
                format!("find virtio port {name}"),
                io::Error::other("it did not appear; is CONFIG_VIRTIO_CONSOLE on?"),
            ));
        }
        sleep(Duration::from_millis(5));
    }
}

fn find(name: &str) -> io::Result<Option<PathBuf>> {
    let entries = match std::fs::read_dir("/sys/class/virtio-ports") {
        Ok(entries) => entries,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(cause),
    };
    for entry in entries {
        let entry = entry?;
        // The name file is filled by a later message than the one that makes the entry.
        let label = std::fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if label.trim_end() == name {
            return Ok(Some(PathBuf::from("/dev").join(entry.file_name())));
        }
    }
    Ok(None)
}
