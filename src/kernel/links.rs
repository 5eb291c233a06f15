// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's own list of BPF links: which policies are attached where.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// What the kernel shows about a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// `BPF_LINK_TYPE_*`.
    pub kind: u32,
    /// Id of the link.
    pub id: u32,
    /// struct_ops: id of the map with the ops.
    pub map_id: u32,
    /// struct_ops: id of the cgroup; 0 if none, or if it is gone.
    pub cgroup_id: u64,
}

impl LinkInfo {
    /// From `struct bpf_link_info`, which ends earlier on kernels without
    /// cgroup links: what is missing reads as 0.
    fn parse(raw: &[u8; INFO_SIZE]) -> Self {
        let word = |at: usize| u32::from_ne_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        let mut id = [0; 8];
        id.copy_from_slice(&raw[24..32]);
        LinkInfo {
            kind: word(0),
            id: word(4),
            // the union of the types begins at 16: map_id, padding, cgroup_id
            map_id: word(16),
            cgroup_id: u64::from_ne_bytes(id),
        }
    }
}

/// More than any kernel's `struct bpf_link_info`.
const INFO_SIZE: usize = 256;

/// Info of an open link.
///
/// # Errors
/// The kernel's errno.
pub fn info(link: BorrowedFd<'_>) -> io::Result<LinkInfo> {
    let mut raw = [0u8; INFO_SIZE];
    let mut len = INFO_SIZE as u32;
    // SAFETY: the buffer has `len` bytes, zeroed as the kernel demands.
    let ret = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(link.as_raw_fd(), raw.as_mut_ptr().cast(), &raw mut len)
    };
    if ret != 0 {
        return Err(io::Error::from_raw_os_error(-ret));
    }
    Ok(LinkInfo::parse(&raw))
}

/// All struct_ops links of the system.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN; a link that comes or goes meanwhile is left out.
pub fn struct_ops_links() -> io::Result<Vec<LinkInfo>> {
    let mut found = Vec::new();
    let mut id = 0;
    loop {
        // SAFETY: `id` is a valid place for the result.
        let ret = unsafe { libbpf_sys::bpf_link_get_next_id(id, &raw mut id) };
        if ret != 0 {
            let error = io::Error::from_raw_os_error(-ret);
            return if error.kind() == io::ErrorKind::NotFound {
                Ok(found)
            } else {
                Err(error)
            };
        }
        // SAFETY: takes a number, returns a descriptor or an error.
        let fd = unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) };
        if fd < 0 {
            match io::Error::from_raw_os_error(-fd) {
                // It has gone, or is not yet: the kernel has EAGAIN for one that is being made.
                e if matches!(
                    e.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::WouldBlock
                ) =>
                {
                    continue;
                }
                e => return Err(e),
            }
        }
        // SAFETY: just made by the kernel, owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let link = info(std::os::fd::AsFd::as_fd(&fd))?;
        if link.kind == libbpf_sys::BPF_LINK_TYPE_STRUCT_OPS {
            found.push(link);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_info_is_read_at_its_offsets() {
        let mut raw = [0u8; INFO_SIZE];
        raw[0..4].copy_from_slice(&10u32.to_ne_bytes());
        raw[4..8].copy_from_slice(&7u32.to_ne_bytes());
        raw[16..20].copy_from_slice(&42u32.to_ne_bytes());
        raw[24..32].copy_from_slice(&(1u64 << 40).to_ne_bytes());
        let expected = LinkInfo {
            kind: 10,
            id: 7,
            map_id: 42,
            cgroup_id: 1 << 40,
        };
        assert_eq!(LinkInfo::parse(&raw), expected);
    }
}
