// SPDX-License-Identifier: GPL-2.0-only
//! Threads that carry the job's output and results to the host's ports.
//!
//! A port can be opened once only, so a job that had it as its stdout could not reopen /dev/stdout, and two
//! of its processes could not both report results. A pipe and a FIFO have no such limit.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::thread::{self, JoinHandle};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;

use super::Failure;

/// Where a job writes its results, one JSON object a line; one write of up to 4096 bytes stays whole
/// however many processes write.
pub const RESULTS: &str = "/run/lab/results";

/// One running relay.
pub struct Relay {
    thread: JoinHandle<io::Result<()>>,
    /// Closing it tells the thread to end when its source has run dry.
    stop: OwnedFd,
}

impl Relay {
    /// Waits until everything written so far has reached the host.
    pub fn finish(self) -> Result<(), Failure> {
        drop(self.stop);
        match self.thread.join() {
            Ok(result) => result.map_err(|cause| Failure::new("relay to the host", cause)),
            Err(_) => Err(Failure::new(
                "relay to the host",
                io::Error::other("its thread panicked"),
            )),
        }
    }
}

/// A relay with a pipe in front; the returned file is its writing end.
pub fn pipe(port: File) -> Result<(Relay, File), Failure> {
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)
        .map_err(|cause| Failure::new("make the output pipe", cause))?;
    Ok((start(File::from(read), port)?, File::from(write)))
}

/// A relay with a FIFO in front, made at `path`.
pub fn fifo(path: &str, port: File) -> Result<Relay, Failure> {
    let fail = |cause: io::Error| Failure::new(format!("make {path}"), cause);
    if let Some(parent) = std::path::Path::new(path).parent() {
        std::fs::create_dir_all(parent).map_err(fail)?;
    }
    nix::unistd::mkfifo(path, Mode::from_bits_truncate(0o622))
        .map_err(|cause| fail(cause.into()))?;
    // Open for both, so that it neither blocks now nor reports an end whenever a writer closes.
    let source = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)
        .map_err(fail)?;
    start(source, port)
}

fn start(source: File, port: File) -> Result<Relay, Failure> {
    let (woken, stop) = nix::unistd::pipe2(OFlag::O_CLOEXEC)
        .map_err(|cause| Failure::new("make a wake pipe", cause))?;
    let thread = thread::Builder::new()
        .name("relay".to_owned())
        .spawn(move || copy(source, port, &woken))
        .map_err(|cause| Failure::new("start a relay", cause))?;
    Ok(Relay { thread, stop })
}

fn copy(mut source: File, mut port: File, woken: &OwnedFd) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    let mut last = false;
    loop {
        let mut fds = [
            PollFd::new(source.as_fd(), PollFlags::POLLIN),
            PollFd::new(woken.as_fd(), PollFlags::POLLIN),
        ];
        let (watched, timeout) = if last {
            (1, PollTimeout::ZERO)
        } else {
            (2, PollTimeout::NONE)
        };
        match poll(&mut fds[..watched], timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(cause) => return Err(cause.into()),
        }
        let ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        let (data, end) = (ready(&fds[0]), !last && ready(&fds[1]));
        if data {
            match source.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(length) => port.write_all(&buffer[..length])?,
                Err(cause)
                    if matches!(
                        cause.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) => {}
                Err(cause) => return Err(cause),
            }
        } else if last {
            return Ok(());
        }
        last |= end;
    }
}
