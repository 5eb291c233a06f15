// SPDX-License-Identifier: GPL-2.0-only
//! A thread that samples at a fixed interval of guest time.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use lab_guest::failure::Failure;

/// A running sampler.
pub struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Result<(), Failure>>,
}

impl Sampler {
    /// Calls `sample` now and once every `interval`, until `stop`.
    pub fn start(
        interval: Duration,
        mut sample: impl FnMut() -> Result<(), Failure> + Send + 'static,
    ) -> Self {
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            loop {
                sample()?;
                match stopped.recv_timeout(interval) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return sample(),
                }
            }
        });
        Self { stop, thread }
    }

    /// Takes a last sample and ends.
    ///
    /// # Errors
    /// A sample could not be taken.
    pub fn stop(self) -> Result<(), Failure> {
        // The thread may have ended with an error of its own, which join reports.
        let _ = self.stop.send(());
        self.thread
            .join()
            .unwrap_or_else(|_| Err(Failure::other("take a sample", "the sampler panicked")))
    }
}

/// Bytes of a line of /proc/meminfo, which counts in kB; 0 if there is no such line.
pub fn meminfo(text: &str, name: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.strip_prefix(name))
        .find_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kilobytes| kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::meminfo;

    #[test]
    fn meminfo_in_bytes() {
        let text = "MemTotal:  8 kB\nAnonPages:       12 kB\nAnonHugePages:  4 kB\n";
        assert_eq!(meminfo(text, "AnonPages:"), 12 << 10);
        assert_eq!(meminfo(text, "AnonHugePages:"), 4 << 10);
        assert_eq!(meminfo(text, "SwapTotal:"), 0);
    }
}
