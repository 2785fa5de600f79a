//! Rows of styled text: how wide they are, where they are broken, and how a terminal is told of them.

use std::fmt::Write;

use unicode_width::UnicodeWidthChar;

/// How a character looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Look {
    pub bold: bool,
    pub dim: bool,
    pub italic: bool,
    pub underlined: bool,
    pub struck: bool,
    pub code: bool,
}

impl Look {
    /// What steps back behind the rest.
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

/// Characters that stand beside each other.
pub(super) type Row = Vec<(char, Look)>;

/// A text that looks the same all over.
pub(super) fn styled(text: &str, look: Look) -> Row {
    text.chars().map(|c| (c, look)).collect()
}

/// Columns that a character takes.
pub(super) fn columns(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// Columns that a row takes, if the terminal is wide enough.
pub(super) fn width(row: &[(char, Look)]) -> usize {
    row.iter().map(|(c, _)| columns(*c)).sum()
}

/// Lines of a terminal that a row takes, which breaks it where it is full.
pub(super) fn lines_taken(row: &[(char, Look)], terminal: usize) -> usize {
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

/// What makes a terminal show characters, and nothing behind them styled.
pub(super) fn write(row: &[(char, Look)], out: &mut String) {
    let mut now = Look::default();
    for (c, look) in row {
        if *look != now {
            if now != Look::default() {
                out.push_str("\x1b[0m");
            }
            look.write(out);
            now = *look;
        }
        out.push(*c);
    }
    if now != Look::default() {
        out.push_str("\x1b[0m");
    }
}

/// A text as rows of so many columns at most, broken between words where that can be; `first` and `rest` stand before it.
pub(super) fn wrapped(text: &[(char, Look)], first: Row, rest: &Row, limit: usize) -> Vec<Row> {
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

/// The words of a line, each with the blanks before it; between wide characters, too, lines may be broken.
fn words(mut line: &[(char, Look)]) -> impl Iterator<Item = &[(char, Look)]> {
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
