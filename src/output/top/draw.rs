// SPDX-License-Identifier: GPL-2.0-only
//! Draws the screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Sparkline, Table, Wrap};

use super::{Column, History, Screen};
use crate::model::reason::Reason;
use crate::model::units::{show_duration, show_size};
use crate::output::cgroups::CgroupLine;

/// Lines that the cgroup that is selected takes.
const DETAILS: u16 = 11;

/// Below this height they are left to the table.
const TALL_ENOUGH: u16 = 18;

impl Screen {
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
            Span::raw(format!(" {}", self.sizes.mask_name(reason, orders))),
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
