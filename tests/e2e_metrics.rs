// SPDX-License-Identifier: GPL-2.0-only
//! `run --metrics`: both transports serve the numbers that `status` shows, and no client stops the
//! daemon.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::ext::{Ext, K64, command, fails, run_on, status_of};
use common::own::OwnFile;
use common::scrape::ask;
use common::worker::{Busy, Worker};
use common::{Group, MIB, Swap, eventually, world};
use nix::sys::signal::Signal;

const SOCKET: &str = "/run/mthp_ext_test/metrics.sock";
const PORT: &str = "127.0.0.1:9464";

/// Asks for the page, and gets it whole.
fn scrape(stream: impl Read + Write) -> String {
    let text = ask(stream).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    text
}

/// The value of a sample; 0 without it.
fn value(page: &str, sample: &str) -> u64 {
    page.lines()
        .find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))
        .map_or(0, |value| value.parse().unwrap())
}

fn with(more: &[&'static str]) -> Vec<&'static str> {
    let mut args = K64.to_vec();
    args.extend(more);
    args
}

fn loopback() {
    let up = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status();
    assert!(up.unwrap().success());
}

#[test]
#[ignore = "needs the lab's VM"]
fn both_transports_serve_what_status_shows() {
    world();
    loopback();
    std::fs::create_dir_all("/run").unwrap();
    let group = Group::new("served");
    group.set("memory.max", "64M");
    let address = format!("unix:{SOCKET}");
    let mut args = with(&["--metrics", PORT, "--metrics"]);
    args.push(address.leak());
    let mut ext = Ext::run(&group, &args);
    let mut worker = Worker::new(&group);
    worker.fill(48 * MIB);
    let line = status_of(&group);
    let (asked, narrowed) = (
        &line["requests"]["fault"],
        &line["narrowed"]["fault"]["room"],
    );
    assert!(
        asked.as_u64() > Some(0) && narrowed.as_u64() > Some(0),
        "{line}"
    );
    let name = group.name();
    for transport in ["unix", "tcp"] {
        eventually(transport, || {
            let page = match transport {
                "unix" => scrape(UnixStream::connect(SOCKET).unwrap()),
                _ => scrape(TcpStream::connect(PORT).unwrap()),
            };
            let of = |metric: &str, more: &str| {
                value(
                    &page,
                    &format!("mthp_ext_{metric}{{cgroup=\"{name}\"{more}}}"),
                )
            };
            of("requests_total", ",reason=\"fault\"") == asked.as_u64().unwrap()
                && of("narrowed_total", ",reason=\"fault\",rule=\"room\"")
                    == narrowed.as_u64().unwrap()
                && of("room_bytes", "") == line["room_bytes"].as_u64().unwrap()
        });
    }
    ext.signal(Signal::SIGTERM);
    assert_eq!(ext.wait(), Some(0));
    assert!(!Path::new(SOCKET).exists());
}

#[test]
#[ignore = "needs the lab's VM"]
fn the_pressure_policy_counts_its_scans() {
    world();
    std::fs::create_dir_all("/run").unwrap();
    let group = Group::new("scanned");
    let _ext = Ext::run(
        &group,
        &[
            "--window",
            "100ms",
            "--threshold",
            "10ms",
            "--metrics",
            "unix:/run/scans.sock",
        ],
    );
    eventually("ten scans", || {
        let page = scrape(UnixStream::connect("/run/scans.sock").unwrap());
        value(&page, "mthp_ext_scans_total") >= 10
    });
}

/// What a cgroup shows that comes under pressure, answer by answer: `make test-prometheus` has a
/// real Prometheus scrape them.
#[test]
#[ignore = "needs the lab's VM"]
fn pages_for_prometheus() {
    world();
    loopback();
    let _swap = Swap::on();
    let group = Group::new("at-work");
    let file = OwnFile::new(
        "config.toml",
        "policy = 'default'\n[[override]]\ncgroups = 'x'\npolicy = 'nobody'\n",
    );
    let ext = Ext::run(&group, &["--config", file.path(), "--metrics", PORT]);
    let mut pages = 0;
    let mut page = || {
        let page = scrape(TcpStream::connect(PORT).unwrap());
        common::record(&serde_json::json!({"name": "page", "page": page}));
        pages += 1;
        page
    };
    let pressure = format!("mthp_ext_pressure{{cgroup=\"{}\"}}", group.name());
    assert_eq!(value(&page(), &pressure), 0);
    group.set("memory.high", "16M");
    let mut worker = Worker::new(&group);
    worker.fill(64 * MIB);
    let reader = Busy::with(worker, Worker::read);
    eventually("it is under pressure", || {
        std::thread::sleep(Duration::from_secs(1));
        value(&page(), &pressure) == 1
    });
    reader.stop();
    assert!(pages > 1);
    drop(ext);
}

/// Clients that say nothing, nonsense, or do not read, many at a time.
#[test]
#[ignore = "needs the lab's VM"]
fn no_client_stops_the_daemon() {
    world();
    std::fs::create_dir_all("/run").unwrap();
    let group = Group::new("besieged");
    group.set("memory.max", "64M");
    let mut ext = Ext::run(&group, &with(&["--metrics", "unix:/run/besieged.sock"]));
    let connect = || UnixStream::connect("/run/besieged.sock").unwrap();
    let silent: Vec<UnixStream> = (0..20).map(|_| connect()).collect();
    for _ in 0..200 {
        let mut client = connect();
        let _ = client.write_all(&[0xff; 9000]);
    }
    // The loop is at work all the while.
    let mut worker = Worker::new(&group);
    worker.fill(60 * MIB);
    ext.decision(&group, "room");
    drop(silent);
    std::thread::sleep(Duration::from_millis(100));
    eventually("served again", || {
        let mut client = connect();
        let _ = client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
        let mut text = String::new();
        let _ = client.read_to_string(&mut text);
        text.starts_with("HTTP/1.1 200 ")
    });
    ext.signal(Signal::SIGTERM);
    assert_eq!(ext.wait(), Some(0));
}

#[test]
#[ignore = "needs the lab's VM"]
fn a_word_that_is_no_address_is_refused() {
    world();
    let group = Group::new("unserved");
    for address in ["unix:x", "0", "host:1"] {
        let (is, message) = fails(&run_on(&group, &["--metrics", address]));
        assert_eq!(is, 2, "{address}: {message}");
        assert!(message.contains("--metrics"), "{message}");
    }
    assert_eq!(common::ext::attached(), 0);
    assert!(command(&["metrics"]).output().unwrap().status.success());
}

/// The policy matters more than its metrics.
#[test]
#[ignore = "needs the lab's VM"]
fn an_address_that_cannot_be_had_is_said_and_tried_again() {
    world();
    let group = Group::new("late");
    std::fs::create_dir_all("/run").unwrap();
    let args = [
        "--metrics",
        "unix:/run/none/such/x.sock",
        "--metrics",
        "unix:/run/late.sock",
    ];
    let mut ext = Ext::run(&group, &with(&args));
    let line = ext.expect("unserved", |line| line["event"] == "unserved");
    assert_eq!(line["address"], "unix:/run/none/such/x.sock");
    let said = line["text"].as_str().unwrap();
    assert!(said.contains("No such file"), "{said}");
    assert_eq!(common::ext::attached(), 1);
    scrape(UnixStream::connect("/run/late.sock").unwrap());
    std::fs::create_dir_all("/run/none/such").unwrap();
    let mut served = None;
    eventually("served at last", || {
        served = UnixStream::connect("/run/none/such/x.sock").ok();
        served.is_some()
    });
    scrape(served.unwrap());
    ext.signal(Signal::SIGTERM);
    assert_eq!(ext.wait(), Some(0));
    assert!(!Path::new("/run/none/such/x.sock").exists());
}

/// What is in force is what is served: after a reload too, and after one that was refused.
#[test]
#[ignore = "needs the lab's VM"]
fn a_reload_and_a_dry_run_show() {
    world();
    std::fs::create_dir_all("/run").unwrap();
    let group = Group::new("reloaded");
    let file = OwnFile::new("config.toml", "policy = 'database'\n");
    let args = [
        "--config",
        file.path(),
        "--dry-run",
        "--metrics",
        "unix:/run/reloaded.sock",
    ];
    let mut ext = Ext::run(&group, &args);
    let configured = |is: bool| {
        let line = ext.expect("configured", |line| line["event"] == "configured");
        assert_eq!(line["in_force"], is, "{line}");
    };
    configured(true);
    let served = |policy: &str, successful: u64, left_out: u64| {
        // A page may be half a second old.
        let mut page = String::new();
        eventually(policy, || {
            page = scrape(UnixStream::connect("/run/reloaded.sock").unwrap());
            value(&page, "mthp_ext_config_last_reload_successful") == successful
                && value(&page, "mthp_ext_config_left_out") == left_out
                && page.contains(&format!("policy_info{{policy=\"{policy}\",root="))
        });
        assert_eq!(value(&page, "mthp_ext_dry_run"), 1);
    };
    served("database", 1, 0);
    file.write("policy = 'nobody'\n");
    ext.signal(Signal::SIGHUP);
    configured(false);
    served("database", 0, 0);
    file.write("policy = 'small-services'\n[[override]]\ncgroups = 'x'\npolicy = 'nobody'\n");
    ext.signal(Signal::SIGHUP);
    configured(true);
    served("small-services", 1, 1);
    ext.signal(Signal::SIGTERM);
    let last = ext.expect("detached", |line| line["event"] == "detached");
    assert_eq!(last["policy"], "small-services");
    assert_eq!(ext.wait(), Some(0));
}
