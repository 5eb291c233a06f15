// SPDX-License-Identifier: GPL-2.0-only
//! The host's request to stop: its clock bounds a cell, too, and what was served until then is still a result.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::ports;

const PORT: &str = "control";
/// QEMU announces that the host's end is open some time after the port is there; until then a read finds the end.
const OPENS: Duration = Duration::from_millis(50);

/// Whether the host has asked to stop.
#[derive(Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens from now on, if the host has said that it may ask (LAB_CONTROL).
    pub fn listen() -> Self {
        let asked = Self::never();
        if std::env::var_os("LAB_CONTROL").is_some() {
            let stop = asked.clone();
            std::thread::spawn(move || match ports::from_host(PORT) {
                Ok(port) => stop.wait(port),
                // The host kills a guest that does not listen.
                Err(failure) => eprintln!("lab-guest: {failure}"),
            });
        }
        asked
    }

    /// For what must come to its end even then.
    pub fn never() -> Self {
        Self(Arc::default())
    }

    fn wait(&self, mut port: impl Read) {
        let mut byte = [0];
        loop {
            match port.read(&mut byte) {
                Ok(0) => std::thread::sleep(OPENS),
                Ok(_) => break self.0.store(true, Ordering::Relaxed),
                Err(cause) => break eprintln!("lab-guest: read port {PORT}: {cause}"),
            }
        }
    }

    /// Has it?
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A port whose host end opens late.
    struct Late(u8);

    impl Read for Late {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.0 += 1;
            if self.0 < 3 {
                return Ok(0);
            }
            buffer[0] = b's';
            Ok(1)
        }
    }

    #[test]
    fn a_word_from_the_host_is_a_request() {
        let stop = Stop::never();
        assert!(!stop.asked());
        stop.wait(Late(0));
        assert!(stop.asked());
    }

    #[test]
    fn a_port_that_breaks_is_none() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(std::io::Error::other("gone"))
            }
        }
        let stop = Stop::never();
        stop.wait(Broken);
        assert!(!stop.asked());
    }
}
