//! The end of what stands on the terminal, and how it becomes something else.

use std::fmt::Write;

use super::row::{self, Row};

/// A terminal's size in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TerminalSize {
    pub lines: usize,
    pub columns: usize,
}

/// Rows that may still change, the last of what was written.
#[derive(Debug)]
pub(super) struct LastRows {
    rows: Vec<Row>,
    /// Whether the cursor stands at the beginning of an empty line, not behind the last row.
    fresh: bool,
}

impl LastRows {
    /// None, at the beginning of a line.
    pub fn new() -> Self {
        Self {
            rows: Vec::new(),
            fresh: true,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Only `rows`, which stand there, may change from now on.
    pub fn keep(&mut self, rows: Vec<Row>) {
        self.rows = rows;
    }

    /// Lets other rows stand there, and says what the terminal needs for it; false if a row that changes has left the
    /// screen: then nothing is done.
    pub fn change(&mut self, rows: Vec<Row>, size: TerminalSize, out: &mut String) -> bool {
        let shown = &self.rows;
        let mut same = shown.iter().zip(&rows).take_while(|(shown, row)| shown == row).count();
        let grows =
            same + 1 == shown.len() && !self.fresh && rows.get(same).is_some_and(|row| row.starts_with(&shown[same]));
        if grows {
            row::write(&rows[same][shown[same].len()..], out);
            same += 1;
        } else if same < shown.len() {
            let lines = |row: &Row| row::lines_taken(row, size.columns);
            let up = shown[same..].iter().map(lines).sum::<usize>() - usize::from(!self.fresh);
            if up >= size.lines {
                return false;
            }
            out.push('\r');
            if up > 0 {
                let _ = write!(out, "\x1b[{up}A");
            }
            out.push_str("\x1b[J");
            self.fresh = true;
        }
        for row in &rows[same..] {
            if !std::mem::take(&mut self.fresh) {
                out.push('\n');
            }
            row::write(row, out);
        }
        self.rows = rows;
        true
    }

    /// Writes text behind the last row as it is; nothing that stands there changes any more.
    pub fn go_on(&mut self, text: &str, out: &mut String) {
        self.rows.clear();
        if !text.is_empty() {
            out.push_str(text);
            self.fresh = false;
        }
    }

    /// Goes to the beginning of a line.
    pub fn end_line(&mut self, out: &mut String) {
        self.rows.clear();
        if !std::mem::replace(&mut self.fresh, true) {
            out.push('\n');
        }
    }
}
