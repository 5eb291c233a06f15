// SPDX-License-Identifier: GPL-2.0-only
//! The screen of `mthp_ext top`: the cgroups as a table to sort and filter, and what the one that
//! is selected may use, with its last minutes.  Draws what it is given, and asks nobody.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::widgets::TableState;

use super::cgroups::CgroupLine;
use crate::model::orders::Sizes;
use crate::model::reason::Reason;

mod draw;

/// Answers that are kept of each cgroup, for its sparklines.
const KEPT: usize = 240;

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
}

#[cfg(test)]
mod tests;
