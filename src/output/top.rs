// SPDX-License-Identifier: GPL-2.0-only
//! The screen of `mthp_ext top`: the cgroups as a table to sort and filter, and what the one that
//! is selected may use, with its last minutes.  Draws what it is given, and asks nobody.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Sparkline, Table, TableState, Wrap};

use super::cgroups::CgroupLine;
use crate::model::orders::Sizes;
use crate::model::reason::Reason;
use crate::model::units::{show_duration, show_size};

/// Answers that are kept of each cgroup, for its sparklines.
const KEPT: usize = 240;

/// Lines that the cgroup that is selected takes.
const DETAILS: u16 = 11;

/// Below this height they are left to the table.
const TALL_ENOUGH: u16 = 18;

/// A column of the table, by which it can be sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Cgroup,
    Allowed,
    Requests,
    Narrowed,
    Stall,
    Room,
    Memory,
}

impl Column {
    const ALL: [Column; 7] = [
        Column::Cgroup,
        Column::Allowed,
        Column::Requests,
        Column::Narrowed,
        Column::Stall,
        Column::Room,
        Column::Memory,
    ];

    fn title(self) -> &'static str {
        match self {
            Column::Cgroup => "CGROUP",
            Column::Allowed => "ALLOWED",
            Column::Requests => "REQ/S",
            Column::Narrowed => "NARROW/S",
            Column::Stall => "STALL",
            Column::Room => "ROOM",
            Column::Memory => "MEMORY",
        }
    }

    /// Width; of the cgroup's name, at least.
    fn width(self) -> u16 {
        match self {
            Column::Cgroup => 14,
            Column::Allowed => 16,
            Column::Requests | Column::Narrowed => 9,
            Column::Stall | Column::Room | Column::Memory => 7,
        }
    }

    /// Those that fit beside each other, the first ones first.
    fn fitting(width: u16) -> &'static [Column] {
        let mut used = 0;
        let fits = |column: &&Column| {
            used += column.width() + 1;
            used <= width + 1
        };
        let count = Column::ALL.iter().take_while(fits).count();
        &Column::ALL[..count.max(1)]
    }
}

/// Requests and narrowed ones of a cgroup, each per second, the latest last.
#[derive(Default)]
struct History {
    /// Of all times, as of the last answer.
    totals: Option<(u64, u64)>,
    rates: VecDeque<(u64, u64)>,
}

impl History {
    fn add(&mut self, requests: u64, narrowed: u64, elapsed: Duration) {
        if let Some((before, narrowed_before)) = self.totals {
            let ms = elapsed.as_millis().max(1);
            // A policy that was attached anew counts from 0.
            let rate = |now: u64, before: u64| {
                let per_second = u128::from(now.saturating_sub(before)) * 1000 / ms;
                u64::try_from(per_second).unwrap_or(u64::MAX)
            };
            let rates = (rate(requests, before), rate(narrowed, narrowed_before));
            self.rates.push_back(rates);
            if self.rates.len() > KEPT {
                self.rates.pop_front();
            }
        }
        self.totals = Some((requests, narrowed));
    }

    fn last(&self) -> (u64, u64) {
        self.rates.back().copied().unwrap_or_default()
    }
}

/// What is on the screen.
pub struct Screen {
    sizes: Sizes,
    /// "policy default on /", of all.
    policies: String,
    lines: Vec<CgroupLine>,
    histories: HashMap<String, History>,
    sort: Column,
    filter: String,
    /// Keys belong to the filter.
    typing: bool,
    /// Name of the cgroup that is selected.
    selected: Option<String>,
    table: TableState,
}

impl Screen {
    /// An empty one, on a machine with these sizes.
    pub fn new(sizes: Sizes) -> Self {
        Screen {
            sizes,
            policies: String::new(),
            lines: Vec::new(),
            histories: HashMap::new(),
            sort: Column::Requests,
            filter: String::new(),
            typing: false,
            selected: None,
            table: TableState::default(),
        }
    }

    /// Takes what the kernel says now, so long after it was asked before.
    pub fn update(&mut self, policies: String, lines: Vec<CgroupLine>, elapsed: Duration) {
        let mut before = std::mem::take(&mut self.histories);
        for line in &lines {
            let mut history = before.remove(&line.cgroup).unwrap_or_default();
            history.add(line.requests_total(), line.narrowed_total(), elapsed);
            self.histories.insert(line.cgroup.clone(), history);
        }
        self.policies = policies;
        self.lines = lines;
    }

    /// A key; true: the user wants to leave.
    pub fn key(&mut self, key: KeyEvent) -> bool {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return key.code == KeyCode::Char('c');
        }
        if self.typing {
            match key.code {
                KeyCode::Enter => self.typing = false,
                KeyCode::Esc => {
                    self.typing = false;
                    self.filter.clear();
                }
                KeyCode::Backspace => {
                    self.filter.pop();
                }
                KeyCode::Char(c) => self.filter.push(c),
                _ => {}
            }
            return false;
        }
        match key.code {
            KeyCode::Char('q') => return true,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Left | KeyCode::Char('<') => self.sort_by(-1),
            KeyCode::Right | KeyCode::Char('>') => self.sort_by(1),
            KeyCode::Up | KeyCode::Char('k') => self.select(-1),
            KeyCode::Down | KeyCode::Char('j') => self.select(1),
            KeyCode::PageUp => self.select(-10),
            KeyCode::PageDown => self.select(10),
            KeyCode::Home => self.select(isize::MIN),
            KeyCode::End => self.select(isize::MAX),
            _ => {}
        }
        false
    }

    fn sort_by(&mut self, step: isize) {
        let columns = Column::ALL.len();
        let at = Column::ALL.iter().position(|column| *column == self.sort);
        let at = (at.unwrap_or(0) + columns).saturating_add_signed(step) % columns;
        self.sort = Column::ALL[at];
    }

    /// Moves the selection by so many rows.
    fn select(&mut self, by: isize) {
        let rows = self.rows();
        let last = rows.len().saturating_sub(1);
        let at = match self.place(&rows) {
            Some(at) => at.saturating_add_signed(by).min(last),
            None => 0,
        };
        self.selected = rows.get(at).map(|line| line.cgroup.clone());
    }

    fn place(&self, rows: &[&CgroupLine]) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        rows.iter().position(|line| line.cgroup == *selected)
    }

    fn rates(&self, line: &CgroupLine) -> (u64, u64) {
        let history = self.histories.get(&line.cgroup);
        history.map_or((0, 0), History::last)
    }

    /// The cgroups that the filter leaves, in order: the busiest, or the shortest of room, first.
    fn rows(&self) -> Vec<&CgroupLine> {
        let wanted = self
            .lines
            .iter()
            .filter(|line| line.cgroup.contains(&self.filter));
        let mut rows: Vec<&CgroupLine> = wanted.collect();
        // Lines come by name; those that are equal stay so.
        match self.sort {
            Column::Cgroup => {}
            Column::Allowed => rows.sort_by_key(|line| line.orders[Reason::Fault]),
            Column::Requests => rows.sort_by_key(|line| std::cmp::Reverse(self.rates(line).0)),
            Column::Narrowed => rows.sort_by_key(|line| std::cmp::Reverse(self.rates(line).1)),
            Column::Stall => rows.sort_by_key(|line| std::cmp::Reverse(line.stall_ms)),
            Column::Room => rows.sort_by_key(|line| line.room_bytes.unwrap_or(u64::MAX)),
            Column::Memory => rows.sort_by_key(|line| std::cmp::Reverse(line.memory_bytes)),
        }
        rows
    }

    /// Draws it.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let details = if area.height < TALL_ENOUGH {
            0
        } else {
            DETAILS
        };
        let parts = [
            Constraint::Length(1),
            Constraint::Min(2),
            Constraint::Length(details),
            Constraint::Length(1),
        ];
        let [head, table, below, keys] = Layout::vertical(parts).areas(area);
        if self.place(&self.rows()).is_none() {
            self.selected = self.rows().first().map(|line| line.cgroup.clone());
        }
        let (shown, all) = (self.rows().len(), self.lines.len());
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let title = format!("mthp_ext top  {shown} of {all} cgroups  {}", self.policies);
        frame.render_widget(Line::styled(title, bold), head);
        self.draw_table(frame, table);
        if details > 0 {
            self.draw_details(frame, below);
        }
        let text = match (self.typing, self.filter.is_empty()) {
            (true, _) => format!("filter: {}_   Enter: done  Esc: none", self.filter),
            (false, true) => "q quit  / filter  < > sort by  up down select".to_owned(),
            (false, false) => format!(
                "q quit  / filter ({})  Esc no filter  < > sort by",
                self.filter
            ),
        };
        frame.render_widget(
            Line::styled(text, Style::new().add_modifier(Modifier::DIM)),
            keys,
        );
    }

    fn draw_table(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let columns = Column::fitting(area.width);
        let others: u16 = columns[1..].iter().map(|column| column.width() + 1).sum();
        let name = area.width.saturating_sub(others);
        let widths = columns.iter().map(|column| match column {
            Column::Cgroup => Constraint::Length(name),
            other => Constraint::Length(other.width()),
        });
        let head = columns.iter().map(|column| {
            let style = match *column == self.sort {
                true => Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
                false => Style::new().add_modifier(Modifier::BOLD),
            };
            Cell::new(aligned(*column, column.title().to_owned())).style(style)
        });
        let lines = self.rows();
        let rows = lines.iter().map(|line| {
            let cells = columns.iter().map(|column| {
                let text = self.cell(*column, line);
                let text = match column {
                    Column::Cgroup => end_of(&text, name),
                    _ => text,
                };
                Cell::new(aligned(*column, text))
            });
            let style = match line.pressure {
                true => Style::new().fg(Color::Red),
                false => Style::new(),
            };
            Row::new(cells).style(style)
        });
        let table = Table::new(rows, widths)
            .header(Row::new(head))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let place = self.place(&lines);
        self.table.select(place);
        frame.render_stateful_widget(table, area, &mut self.table);
    }

    fn cell(&self, column: Column, line: &CgroupLine) -> String {
        let (requests, narrowed) = self.rates(line);
        let size = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), show_size);
        match column {
            Column::Cgroup => line.cgroup.clone(),
            Column::Allowed => line.allowed.clone(),
            Column::Requests => requests.to_string(),
            Column::Narrowed => narrowed.to_string(),
            Column::Stall => line.stall_ms.map_or_else(
                || "-".to_owned(),
                |ms| show_duration(ms.saturating_mul(1_000_000)),
            ),
            Column::Room => size(line.room_bytes),
            Column::Memory => size(line.memory_bytes),
        }
    }

    fn draw_details(&self, frame: &mut Frame<'_>, area: Rect) {
        let rows = self.rows();
        let Some(line) = self.place(&rows).and_then(|at| rows.get(at)) else {
            return;
        };
        let title = end_of(&line.cgroup, area.width.saturating_sub(2));
        let block = Block::new().borders(Borders::TOP).title(title);
        let inner = block.inner(area);
        frame.render_widget(block, area);
        let parts = [
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(Reason::ALL.len() as u16),
            Constraint::Min(1),
        ];
        let [requests, narrowed, sizes, why] = Layout::vertical(parts).areas(inner);
        let empty = History::default();
        let history = self.histories.get(&line.cgroup).unwrap_or(&empty);
        let all: Vec<(u64, u64)> = history.rates.iter().copied().collect();
        let (last_asked, last_narrowed) = history.last();
        spark(
            frame,
            requests,
            "requests/s",
            last_asked,
            all.iter().map(|rate| rate.0),
        );
        spark(
            frame,
            narrowed,
            "narrowed/s",
            last_narrowed,
            all.iter().map(|rate| rate.1),
        );
        let bars: Vec<Line<'_>> = Reason::ALL
            .into_iter()
            .map(|reason| self.bar(reason, line.orders[reason]))
            .collect();
        frame.render_widget(Paragraph::new(bars), sizes);
        let why_text = Paragraph::new(line.why_text()).wrap(Wrap { trim: true });
        frame.render_widget(why_text, why);
    }

    /// "fault      ####.... 64K-max": a place for each size, from the smallest large one.
    fn bar(&self, reason: Reason, orders: u64) -> Line<'static> {
        let places = (0..u64::BITS).filter(|order| self.sizes.orders & (1 << order) != 0);
        let bar: String = places
            .take(16)
            .map(|order| if orders & (1 << order) != 0 { '#' } else { '.' })
            .collect();
        Line::from(vec![
            Span::raw(format!("{:11}", reason.name())),
            Span::styled(bar, Style::new().fg(Color::Green)),
            Span::raw(format!(" {}", self.sizes.mask_name(orders))),
        ])
    }
}

/// A line: what it is, the latest value, and the ones before it, the latest to the right.
fn spark(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    last: u64,
    values: impl DoubleEndedIterator<Item = u64>,
) {
    let parts = [Constraint::Length(22), Constraint::Min(0)];
    let [left, right] = Layout::horizontal(parts).areas(area);
    frame.render_widget(Line::raw(format!("{title:11}{last:>9} ")), left);
    let width = usize::from(right.width);
    let mut kept: Vec<u64> = values.rev().take(width).collect();
    kept.resize(width, 0);
    kept.reverse();
    frame.render_widget(Sparkline::default().data(&kept), right);
}

/// Numbers stand to the right.
fn aligned(column: Column, text: String) -> Line<'static> {
    match column {
        Column::Cgroup | Column::Allowed => Line::raw(text),
        _ => Line::raw(text).right_aligned(),
    }
}

/// The end of a path tells more than its beginning.
fn end_of(text: &str, width: u16) -> String {
    let (count, width) = (text.chars().count(), usize::from(width));
    if count <= width {
        return text.to_owned();
    }
    let rest = text.chars().skip(count - width.saturating_sub(2));
    std::iter::once("..".to_owned())
        .chain(rest.map(String::from))
        .collect()
}

#[cfg(test)]
mod tests {
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
}
