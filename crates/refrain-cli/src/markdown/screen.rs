//! The rows at the end of the terminal's output, and how to change them in place.

use std::fmt::Write;

use super::row::{self, Row};

/// Terminal size in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TerminalSize {
    pub lines: usize,
    pub columns: usize,
}

/// The last rows written, which may still change.
#[derive(Debug)]
pub(super) struct LiveRows {
    rows: Vec<Row>,
    /// Whether the cursor is at the beginning of an empty line, not at the end of the last row.
    at_line_start: bool,
}

impl LiveRows {
    /// No rows, with the cursor at the beginning of a line.
    pub fn new() -> Self {
        Self {
            rows: Vec::new(),
            at_line_start: true,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Keeps only `rows`, which are shown, as changeable.
    pub fn keep(&mut self, rows: Vec<Row>) {
        self.rows = rows;
    }

    /// Replaces the rows by others and appends the needed terminal output to `out`. Returns false, without output, if a
    /// changed row has left the screen.
    pub fn change(&mut self, rows: Vec<Row>, size: TerminalSize, out: &mut String) -> bool {
        let shown = &self.rows;
        let mut same = shown.iter().zip(&rows).take_while(|(shown, row)| shown == row).count();
        let grows = same + 1 == shown.len()
            && !self.at_line_start
            && rows.get(same).is_some_and(|row| row.starts_with(&shown[same]));
        if grows {
            row::write(&rows[same][shown[same].len()..], out);
            same += 1;
        } else if same < shown.len() {
            let lines = |row: &Row| row::lines_taken(row, size.columns);
            let up = shown[same..].iter().map(lines).sum::<usize>() - usize::from(!self.at_line_start);
            if up >= size.lines {
                return false;
            }
            out.push('\r');
            if up > 0 {
                let _ = write!(out, "\x1b[{up}A");
            }
            out.push_str("\x1b[J");
            self.at_line_start = true;
        }
        for row in &rows[same..] {
            if !std::mem::take(&mut self.at_line_start) {
                out.push('\n');
            }
            row::write(row, out);
        }
        self.rows = rows;
        true
    }

    /// Appends text to the last row verbatim; nothing shown before can change any more.
    pub fn append_verbatim(&mut self, text: &str, out: &mut String) {
        self.rows.clear();
        if !text.is_empty() {
            out.push_str(text);
            self.at_line_start = false;
        }
    }

    /// Moves to the beginning of a line.
    pub fn end_line(&mut self, out: &mut String) {
        self.rows.clear();
        if !std::mem::replace(&mut self.at_line_start, true) {
            out.push('\n');
        }
    }
}
