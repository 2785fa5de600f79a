//! Tables with aligned columns.

use pulldown_cmark::Alignment;

use super::row::{self, Row, Style, styled};

/// Cells row by row; the first row is the header.
pub(super) struct Table {
    alignments: Vec<Alignment>,
    rows: Vec<Vec<Row>>,
}

impl Table {
    pub fn new(alignments: Vec<Alignment>) -> Self {
        Self {
            alignments,
            rows: vec![],
        }
    }

    pub fn begin_row(&mut self) {
        self.rows.push(vec![]);
    }

    /// Adds a cell to the last row.
    pub fn push(&mut self, cell: Row) {
        if let Some(row) = self.rows.last_mut() {
            row.push(cell);
        }
    }

    /// Whether no source line has more cells than the header; the parser drops extra cells.
    pub fn has_all(&self, lines: &[&str]) -> bool {
        let cells = |line: &str| {
            let line = line.replace("\\|", "");
            let line = line.trim();
            let line = line.strip_prefix('|').unwrap_or(line);
            line.strip_suffix('|').unwrap_or(line).matches('|').count() + 1
        };
        lines.iter().all(|line| cells(line) <= self.alignments.len())
    }

    /// Returns the rows, or `None` if the table is wider than `room` columns.
    pub fn rows(&self, room: usize) -> Option<Vec<Row>> {
        let columns = 0..self.alignments.len();
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let widths: Vec<usize> = columns
            .map(|column| cells(column).map(|cell| row::width(cell)).max().unwrap_or(0))
            .collect();
        if widths.iter().sum::<usize>() + 3 * widths.len().saturating_sub(1) > room {
            return None;
        }
        let mut rows: Vec<Row> = self.rows.iter().map(|row| self.row(row, &widths)).collect();
        for (_, style) in rows.iter_mut().take(1).flatten().filter(|(c, _)| *c != '│') {
            style.bold = true;
        }
        let lines: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
        rows.insert(1.min(rows.len()), styled(&lines.join("─┼─"), Style::DIM));
        Some(rows)
    }

    fn row(&self, cells: &[Row], widths: &[usize]) -> Row {
        let mut row = Row::new();
        for (column, (alignment, width)) in self.alignments.iter().zip(widths).enumerate() {
            if column > 0 {
                row.extend(styled(" │ ", Style::DIM));
            }
            let cell = cells.get(column).map_or(&[][..], Vec::as_slice);
            let free = width.saturating_sub(row::width(cell));
            let left = match alignment {
                Alignment::None | Alignment::Left => 0,
                Alignment::Center => free / 2,
                Alignment::Right => free,
            };
            row.extend(styled(&" ".repeat(left), Style::default()));
            row.extend(cell);
            row.extend(styled(&" ".repeat(free - left), Style::default()));
        }
        while row.last() == Some(&(' ', Style::default())) {
            row.pop();
        }
        row
    }
}
