//! Rows of styled text: width, wrapping and terminal escape sequences.

use std::fmt::Write;

use unicode_width::UnicodeWidthChar;

/// Style of a character.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Style {
    pub bold: bool,
    pub dim: bool,
    pub italic: bool,
    pub underlined: bool,
    pub struck: bool,
    pub code: bool,
}

impl Style {
    /// Dimmed text.
    pub const DIM: Self = Self {
        bold: false,
        dim: true,
        italic: false,
        underlined: false,
        struck: false,
        code: false,
    };

    fn write(self, out: &mut String) {
        let codes = [
            (self.bold, 1),
            (self.dim, 2),
            (self.italic, 3),
            (self.underlined, 4),
            (self.struck, 9),
            (self.code, 36),
        ];
        for (_, code) in codes.into_iter().filter(|(wanted, _)| *wanted) {
            let _ = write!(out, "\x1b[{code}m");
        }
    }
}

/// A row of styled characters.
pub(super) type Row = Vec<(char, Style)>;

/// A text in a single style.
pub(super) fn styled(text: &str, style: Style) -> Row {
    text.chars().map(|c| (c, style)).collect()
}

/// Width of a character in columns.
pub(super) fn columns(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// Width of a row in columns.
pub(super) fn width(row: &[(char, Style)]) -> usize {
    row.iter().map(|(c, _)| columns(*c)).sum()
}

/// Terminal lines that a row occupies when the terminal wraps it.
pub(super) fn lines_taken(row: &[(char, Style)], terminal: usize) -> usize {
    const TAB: usize = 8;
    let (mut lines, mut column) = (1, 0);
    for (c, _) in row {
        match columns(*c) {
            _ if *c == '\t' => column = ((column / TAB + 1) * TAB).min(terminal - 1),
            columns if columns > 0 && column + columns > terminal => (lines, column) = (lines + 1, columns),
            columns => column += columns,
        }
    }
    lines
}

/// Appends a row with its escape sequences, and resets the style at the end.
pub(super) fn write(row: &[(char, Style)], out: &mut String) {
    let mut now = Style::default();
    for (c, style) in row {
        if *style != now {
            if now != Style::default() {
                out.push_str("\x1b[0m");
            }
            style.write(out);
            now = *style;
        }
        out.push(*c);
    }
    if now != Style::default() {
        out.push_str("\x1b[0m");
    }
}

/// Wraps text into rows of at most `limit` columns, between words where possible. `first` and `rest` are the prefixes
/// of the first row and of the others.
pub(super) fn wrapped(text: &[(char, Style)], first: Row, rest: &Row, limit: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row = first;
    for (index, line) in text.split(|(c, _)| *c == '\n').enumerate() {
        if index > 0 {
            rows.push(std::mem::replace(&mut row, rest.clone()));
        }
        let mut column = width(&row);
        let (mut is_empty, mut is_broken) = (true, false);
        for word in words(line) {
            let blanks = word.iter().take_while(|(c, _)| *c == ' ').count();
            if !is_empty && column + width(word) > limit {
                rows.push(std::mem::replace(&mut row, rest.clone()));
                column = width(&row);
                (is_empty, is_broken) = (true, true);
            }
            let word = if is_empty && is_broken { &word[blanks..] } else { word };
            for letter in word {
                if !is_empty && column + columns(letter.0) > limit {
                    rows.push(std::mem::replace(&mut row, rest.clone()));
                    column = width(&row);
                }
                row.push(*letter);
                column += columns(letter.0);
                is_empty = false;
            }
        }
    }
    rows.push(row);
    rows
}

/// The words of a line, each with its leading blanks. Lines may also break between wide characters.
fn words(mut line: &[(char, Style)]) -> impl Iterator<Item = &[(char, Style)]> {
    std::iter::from_fn(move || {
        let begin = line.iter().position(|(c, _)| *c != ' ').unwrap_or(line.len());
        let is_wide = |c: char| columns(c) > 1;
        let mut letters = line.get(begin..)?.iter().enumerate();
        let (_, (first, _)) = letters.next()?;
        let end = letters.find(|(_, (c, _))| *c == ' ' || is_wide(*c) || is_wide(*first) && columns(*c) > 0);
        let (word, rest) = line.split_at(end.map_or(line.len(), |(end, _)| begin + end));
        line = rest;
        Some(word)
    })
}
