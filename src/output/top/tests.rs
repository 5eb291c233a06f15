// SPDX-License-Identifier: GPL-2.0-only
//! The screen, drawn on a terminal of the tests.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::Position;

use super::*;
use crate::kernel::cgroup::Names;
use crate::model::abi::RuleNumber;
use crate::model::orders::X86;
use crate::model::rule::Rule;
use crate::output::cgroups::tests::verdict;

/// A cgroup that has asked so often, with so much room.
fn line(name: &str, requests: u64, room: u64) -> CgroupLine {
    let dir = tempfile::tempdir().unwrap();
    let mut line = CgroupLine::new(&dir.path().join(name), &Names::new(dir.path()));
    let mut verdict = verdict(0x1c, !1, RuleNumber::MTHP_ROOM);
    verdict.explained.now.room_bytes = room;
    verdict.explained.now.seen = 1;
    verdict.explained.now.stall_ns = 7_000_000;
    verdict.explained.allowed[Reason::Fault as usize][0] = requests;
    verdict.explained.narrowed[Reason::Fault as usize][Rule::Room as usize] = requests / 2;
    line.add(&verdict, &X86);
    line
}

/// Three cgroups, looked at twice in two seconds.
fn screen() -> Screen {
    let mut screen = Screen::new(X86);
    for busy in [100, 300] {
        let lines = vec![
            line("idle", 5, 64 << 20),
            line("system.slice/redis.service", busy * 10, 8 << 20),
            line("web", busy, 1 << 20),
        ];
        let policies = "policy default on /".to_owned();
        screen.update(policies, lines, Duration::from_secs(2));
    }
    screen
}

/// What is on a terminal of this size.
fn drawn(screen: &mut Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y| {
        let cells = (0..width).map(|x| buffer.cell(Position { x, y }).unwrap().symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    (0..height).map(row).collect()
}

fn press(screen: &mut Screen, keys: &str) -> bool {
    let mut left = false;
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            c => KeyCode::Char(c),
        };
        left = screen.key(KeyEvent::from(code));
    }
    left
}

/// The names in the table.
fn names(screen: &Screen) -> Vec<&str> {
    screen
        .rows()
        .iter()
        .map(|line| line.cgroup.as_str())
        .collect()
}

#[test]
fn it_fits_a_terminal_of_80_by_24() {
    let rows = drawn(&mut screen(), 80, 24);
    assert_eq!(rows[0], "mthp_ext top  3 of 3 cgroups  policy default on /");
    assert_eq!(
        rows[1],
        "CGROUP              ALLOWED              REQ/S  NARROW/S   STALL    ROOM  MEMORY"
    );
    assert_eq!(
        rows[2],
        "..ice/redis.service 64K-max-on-fault      1000       500     7ms      8M       -"
    );
    assert!(
        rows[3].starts_with("/web  ") && rows[4].starts_with("/idle  "),
        "{rows:#?}"
    );
    let below = &rows[12..];
    assert!(
        below[0].starts_with("/system.slice/redis.service─"),
        "{rows:#?}"
    );
    assert!(
        below[1].starts_with("requests/s      1000 ") && below[1].ends_with('█'),
        "{rows:#?}"
    );
    assert!(below[2].starts_with("narrowed/s       500 "), "{rows:#?}");
    assert_eq!(below[3], "fault      ###..... 64K-max");
    assert_eq!(below[6], "collapse   ######## all");
    assert!(
        below[8].starts_with("room: 8M left below the machine's 64M"),
        "{rows:#?}"
    );
    assert!(rows[23].starts_with("q quit  / filter"), "{rows:#?}");
}

/// Columns and details go before the cgroups do, and nothing panics.
#[test]
fn a_small_terminal_shows_what_fits() {
    let rows = drawn(&mut screen(), 40, 10);
    assert_eq!(rows[1], "CGROUP                  ALLOWED");
    assert!(rows.iter().any(|row| row.starts_with("/web")), "{rows:#?}");
    assert!(!rows.iter().any(|row| row.contains('#')), "{rows:#?}");
    for width in 1..100 {
        for height in [1, 2, 3, 5, 17, 18, 24, 60] {
            drawn(&mut screen(), width, height);
            drawn(&mut Screen::new(X86), width, height);
        }
    }
}

#[test]
fn keys_sort_filter_and_select() {
    let mut screen = screen();
    assert_eq!(
        names(&screen),
        ["/system.slice/redis.service", "/web", "/idle"]
    );
    press(&mut screen, ">>>");
    assert_eq!(screen.sort, Column::Room);
    assert_eq!(
        names(&screen),
        ["/web", "/system.slice/redis.service", "/idle"]
    );
    press(&mut screen, "<<<<<");
    assert_eq!(screen.sort, Column::Cgroup);
    press(&mut screen, "<");
    assert_eq!(screen.sort, Column::Memory);
    drawn(&mut screen, 80, 24);
    press(&mut screen, "j");
    let second = screen.rows()[1].cgroup.clone();
    assert_eq!(screen.selected.as_deref(), Some(second.as_str()));
    press(&mut screen, "kkk");
    assert_eq!(screen.place(&screen.rows()), Some(0));
    // q is a letter like any other while the filter is typed.
    assert!(!press(&mut screen, "/qe"));
    assert_eq!(names(&screen), [""; 0]);
    screen.key(KeyEvent::from(KeyCode::Backspace));
    screen.key(KeyEvent::from(KeyCode::Backspace));
    press(&mut screen, "web\n");
    assert_eq!(names(&screen), ["/web"]);
    let rows = drawn(&mut screen, 80, 24);
    assert!(
        rows[0].contains("1 of 3") && rows[23].contains("(web)"),
        "{rows:#?}"
    );
    press(&mut screen, "\x1b");
    assert_eq!(names(&screen).len(), 3);
    assert!(press(&mut screen, "q"));
    let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert!(screen.key(ctrl_c));
}

#[test]
fn a_policy_that_is_attached_anew_is_no_negative_rate() {
    let mut history = History::default();
    for (requests, narrowed) in [(100, 10), (300, 30), (5, 0), (5, 0)] {
        history.add(requests, narrowed, Duration::from_millis(500));
    }
    assert_eq!(history.rates, [(400, 40), (0, 0), (0, 0)]);
    for n in 0..2 * KEPT as u64 {
        history.add(n, n, Duration::ZERO);
    }
    assert_eq!(history.rates.len(), KEPT);
}

#[test]
fn a_cgroup_that_is_gone_is_forgotten() {
    let mut screen = screen();
    drawn(&mut screen, 80, 24);
    screen.update(
        String::new(),
        vec![line("web", 1, 1)],
        Duration::from_secs(1),
    );
    assert_eq!(screen.histories.len(), 1);
    drawn(&mut screen, 80, 24);
    assert_eq!(screen.selected.as_deref(), Some("/web"));
}
