//! Tables whose columns stand below each other.

use pulldown_cmark::Alignment;

use super::row::{self, Look, Row, styled};

/// Cells, row by row; the first row is the head.
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

    /// Whether no line of it has more cells than the head: such cells are left out.
    pub fn has_all(&self, lines: &[&str]) -> bool {
        let cells = |line: &str| {
            let line = line.replace("\\|", "");
            let line = line.trim();
            let line = line.strip_prefix('|').unwrap_or(line);
            line.strip_suffix('|').unwrap_or(line).matches('|').count() + 1
        };
        lines.iter().all(|line| cells(line) <= self.alignments.len())
    }

    /// The table if it has room in so many columns.
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
        for (_, look) in rows.iter_mut().take(1).flatten().filter(|(c, _)| *c != '│') {
            look.bold = true;
        }
        let lines: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
        rows.insert(1.min(rows.len()), styled(&lines.join("─┼─"), Look::DIM));
        Some(rows)
    }

    fn row(&self, cells: &[Row], widths: &[usize]) -> Row {
        let mut row = Row::new();
        for (column, (alignment, width)) in self.alignments.iter().zip(widths).enumerate() {
            if column > 0 {
                row.extend(styled(" │ ", Look::DIM));
            }
            let cell = cells.get(column).map_or(&[][..], Vec::as_slice);
            let free = width.saturating_sub(row::width(cell));
            let left = match alignment {
                Alignment::None | Alignment::Left => 0,
                Alignment::Center => free / 2,
                Alignment::Right => free,
            };
            row.extend(styled(&" ".repeat(left), Look::default()));
            row.extend(cell);
            row.extend(styled(&" ".repeat(free - left), Look::default()));
        }
        while row.last() == Some(&(' ', Look::default())) {
            row.pop();
        }
        row
    }
}
