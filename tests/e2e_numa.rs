// SPDX-License-Identifier: GPL-2.0-only
//! On a host of two NUMA nodes: page cache is room wherever it lies.

mod common;

use common::ext::{Ext, SELDOM};
use common::worker::{Worker, mostly_huge};
use common::{Defrag, Group, MIB, disk, read, world};

#[test]
#[ignore = "needs the lab's VM"]
fn page_cache_of_every_node_is_room() {
    world();
    assert_eq!(read("/sys/devices/system/node/online").trim(), "0-1");
    let _defrag = Defrag::always();
    for node in ["0", "1"] {
        let group = Group::new("noded");
        group.set("memory.max", "256M");
        group.set("cpuset.mems", node);
        let _disk = disk();
        let mut worker = Worker::new(&group);
        let _ext = Ext::run(&group, &SELDOM);
        worker.read_disk(512 * MIB);
        assert!(group.files_on(node) > 200 * MIB);
        group.set("cpuset.mems", "0-1");
        worker.fill(64 * MIB);
        mostly_huge(&mut worker, 64 * MIB);
    }
}
