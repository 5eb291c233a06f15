// SPDX-License-Identifier: GPL-2.0-only
//! What a daemon serves to those that ask for its metrics.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use super::{Group, PATIENCE};

/// All that comes from a socket.
pub fn scrape(socket: &str) -> io::Result<String> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    ask(stream)
}

/// Asks for the page, and gets all that comes.
pub fn ask(mut stream: impl Read + Write) -> io::Result<String> {
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}

/// What a page of these cgroups, all of which have asked, lacks without a word.
pub fn missing(page: &str, groups: &[&Group]) -> Option<String> {
    let is_one = page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("# EOF\n");
    let has = |group: &&Group| page.contains(&format!("{{cgroup=\"{}\"", group.name()));
    let said = !page.contains("\nmthp_ext_cgroups_unread 0\n");
    let well = is_one && (said || groups.iter().all(has));
    (!well).then(|| format!("the page has {page:?}"))
}
