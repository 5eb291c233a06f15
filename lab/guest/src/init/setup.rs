// SPDX-License-Identifier: GPL-2.0-only
//! File systems, cgroup controllers and network of the guest.

use std::process::Command;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};

use super::Failure;

/// Mounts that the rest of the start needs: the device files of the virtio ports and their names.
pub fn mount_devices() -> Result<(), Failure> {
    must("devtmpfs", "/dev", None)?;
    must("sysfs", "/sys", None)?;
    must("proc", "/proc", None)
}

/// The mounts a job may count on, and those a kernel may lack.
pub fn mount_rest() -> Result<(), Failure> {
    scratch("/tmp", "mode=1777")?;
    scratch("/run", "mode=755")?;
    must("cgroup2", "/sys/fs/cgroup", None)?;
    for (kind, target) in [
        ("bpf", "/sys/fs/bpf"),
        ("tracefs", "/sys/kernel/tracing"),
        ("debugfs", "/sys/kernel/debug"),
        ("tmpfs", "/dev/shm"),
        ("devpts", "/dev/pts"),
    ] {
        let _ = std::fs::create_dir_all(target);
        match mount(
            Some(kind),
            target,
            Some(kind),
            MsFlags::empty(),
            None::<&str>,
        ) {
            // The kernel was built without it; the job finds the directory empty.
            Ok(()) | Err(Errno::ENODEV | Errno::ENOENT) => {}
            Err(cause) => return Err(Failure::new(format!("mount {kind} on {target}"), cause)),
        }
    }
    for (link, target) in [
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
    ] {
        std::os::unix::fs::symlink(target, link)
            .map_err(|cause| Failure::new(format!("link {link}"), cause))?;
    }
    Ok(())
}

/// A tmpfs of its own, unless programs of the job lie there: they keep their host paths, and a mount would hide
/// them. The root is in memory as well.
fn scratch(target: &str, data: &str) -> Result<(), Failure> {
    let holds_files = std::fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_some());
    if holds_files {
        return Ok(());
    }
    must("tmpfs", target, Some(data))
}

fn must(kind: &str, target: &str, data: Option<&str>) -> Result<(), Failure> {
    std::fs::create_dir_all(target)
        .map_err(|cause| Failure::new(format!("make {target}"), cause))?;
    match mount(Some(kind), target, Some(kind), MsFlags::empty(), data) {
        // The kernel may have mounted devtmpfs by itself.
        Ok(()) | Err(Errno::EBUSY) => Ok(()),
        Err(cause) => Err(Failure::new(format!("mount {kind} on {target}"), cause)),
    }
}

/// Enables each controller that this boot has; a missing one is a case that tests want, so only noted.
pub fn controllers(names: &[String]) {
    for name in names {
        if let Err(cause) =
            std::fs::write("/sys/fs/cgroup/cgroup.subtree_control", format!("+{name}"))
        {
            eprintln!("lab-guest init: controller {name} stays off: {cause}");
        }
    }
}

/// Brings 127.0.0.1 up, in a kernel with a network.
pub fn loopback() -> Result<(), Failure> {
    if !std::path::Path::new("/proc/net").exists() {
        return Ok(());
    }
    let status = Command::new("/bin/ip")
        .args(["link", "set", "lo", "up"])
        .status()
        .map_err(|cause| Failure::new("start /bin/ip", cause))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::new(
            "bring the loopback up",
            std::io::Error::other(format!("ip: {status}")),
        ))
    }
}

/// Closes this process's memory, and with it the nonce, to ptrace and core dumps.
pub fn protect() {
    if let Err(cause) = nix::sys::prctl::set_dumpable(false) {
        eprintln!("lab-guest init: stays dumpable: {cause}");
    }
}
