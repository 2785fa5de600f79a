//! An answer's markdown on a terminal, as it comes.
//!
//! What may still change is drawn anew with each piece of text: the last block, or the last item of a list. The text of
//! blocks that are over, and of the lines of code, is forgotten, so that a long answer costs no more than a short one.

mod draw;
mod formulas;
mod row;
mod screen;
mod table;
#[cfg(test)]
mod tests;

use draw::{Drawing, LastBlock, draw};
use screen::LastRows;
pub(crate) use screen::TerminalSize;

use crate::output;

/// Bytes of a block that are drawn anew; beyond them the rest of its line is written as it is.
const MOST_BYTES: usize = 4096;

/// Turns text into what a terminal needs to show it.
#[derive(Debug)]
pub(crate) struct MarkdownStream {
    /// The text from where the last block begins; its lines of code are left out once they are over.
    text: String,
    /// Bytes of `text` that are shown, or held back only because they may be marks.
    shown: usize,
    last: LastBlock,
    /// Rows of `text` at its beginning that stay as they are, and up to which byte they come from.
    kept: Kept,
    rows: LastRows,
    /// What the terminal was last; `None`: nothing came yet.
    size: Option<TerminalSize>,
    /// Whether a line that is not blank is over.
    is_begun: bool,
    /// Whether the rest of this line is written as it is.
    as_it_is: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Kept {
    bytes: usize,
    rows: usize,
}

impl MarkdownStream {
    /// At the beginning of a line.
    pub fn new() -> Self {
        Self {
            text: String::new(),
            shown: 0,
            last: LastBlock::Other,
            kept: Kept::default(),
            rows: LastRows::new(),
            size: None,
            is_begun: false,
            as_it_is: false,
        }
    }

    /// What a terminal of this size needs to show more text.
    pub fn push(&mut self, text: &str, size: TerminalSize) -> String {
        let mut out = String::new();
        for line in text.split_inclusive('\n') {
            let mut rest = line;
            while !rest.is_empty() {
                rest = self.push_line(rest, size, &mut out);
            }
        }
        out
    }

    /// What it needs at the end, to be at the beginning of a line.
    pub fn end(&mut self, size: TerminalSize) -> String {
        let mut out = if self.text.ends_with('\n') || self.text.is_empty() {
            String::new()
        } else {
            self.push("\n", size)
        };
        self.rows.end_line(&mut out);
        *self = Self::new();
        out
    }

    /// Takes text of one line, and returns what it has not taken yet.
    fn push_line<'a>(&mut self, text: &'a str, size: TerminalSize, out: &mut String) -> &'a str {
        if self.as_it_is {
            self.rows.go_on(&output::plain(text.trim_end_matches('\n')), out);
            if text.ends_with('\n') {
                self.begin_behind_plain_line(size);
            }
            return "";
        }
        let room = MOST_BYTES.saturating_sub(self.text.len());
        let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
        let taken = ends.take_while(|end| *end <= room).last().unwrap_or(0);
        let (taken, rest) = text.split_at(taken);
        self.text.push_str(taken);
        if taken.ends_with('\n') {
            self.end_line(size, out);
        } else if rest.is_empty() {
            let (shown, closing) = self.visible();
            self.refresh(shown, closing, size, out);
        } else if self.refresh(self.text.len(), "", size, out).is_some() {
            self.write_as_it_is(out);
        }
        rest
    }

    /// Draws the text up to a byte, as if marks came behind it that close what is open. `None`: that is no longer
    /// possible, and the rest of the line is written as it is.
    fn refresh(&mut self, shown: usize, closing: &str, size: TerminalSize, out: &mut String) -> Option<Drawing> {
        let is_resized = self.size.replace(size).is_some_and(|before| before != size);
        if is_resized && self.rows.is_empty() {
            self.kept.rows = draw(&self.text[..self.kept.bytes], size.columns).rows.len();
        }
        // Where rows stand now that the terminal broke anew, nobody knows.
        let can_change = !is_resized || self.rows.is_empty();
        let mut drawing = self.drawing(shown, closing, size);
        if can_change && self.rows.change(std::mem::take(&mut drawing.rows), size, out) {
            self.shown = shown;
            return Some(drawing);
        }
        let line = last_line(&self.text);
        if self.shown > line {
            self.write_as_it_is(out);
            return None;
        }
        // Nothing of this line stands there yet: it is where a text begins.
        let before = self.cut(line);
        let shown = shown.saturating_sub(before);
        let mut drawing = self.drawing(shown, closing, size);
        self.rows.keep(vec![]);
        self.rows.change(std::mem::take(&mut drawing.rows), size, out);
        self.shown = shown;
        Some(drawing)
    }

    fn drawing(&self, shown: usize, closing: &str, size: TerminalSize) -> Drawing {
        let mut drawing = match closing {
            "" => draw(&self.text[..shown], size.columns),
            _ => draw(&format!("{}{closing}", &self.text[..shown]), size.columns),
        };
        drawing.rows.drain(..self.kept.rows.min(drawing.rows.len()));
        drawing
    }

    /// Draws a line that is over, and forgets what cannot change any more.
    fn end_line(&mut self, size: TerminalSize, out: &mut String) {
        let line = last_line(&self.text);
        let is_blank = self.text[line..].trim().is_empty();
        let is_code = matches!(self.last, LastBlock::Code { .. });
        // One blank line says as much as several, and none at the beginning.
        let says_nothing = !self.is_begun || ends_blank(&self.text[..line]);
        if is_blank && !is_code && says_nothing {
            self.text.truncate(line);
            self.shown = self.shown.min(line);
            return;
        }
        self.is_begun = true;
        let Some(drawing) = self.refresh(self.text.len(), "", size, out) else {
            self.text.pop();
            self.begin_behind_plain_line(size);
            return;
        };
        self.last = drawing.last;
        let lines = self.text.split_inclusive('\n');
        let begin = lines.clone().take(drawing.last_begins).map(str::len).sum();
        match drawing.last {
            LastBlock::Code { is_empty: false } => {
                self.text.truncate(last_line(&self.text));
                self.keep(size);
            }
            LastBlock::Table if !is_blank && (self.rows.len() > size.lines / 2 || self.text.len() > MOST_BYTES / 2) => {
                // It goes on below, with columns as wide as the rest needs.
                self.text = lines.skip(drawing.last_begins).take(2).collect();
                self.keep(size);
            }
            _ => {
                if self.cut(begin) > 0 {
                    self.rows.keep(draw(&self.text, size.columns).rows);
                }
                if is_blank {
                    self.last = LastBlock::Other;
                }
            }
        }
        self.shown = self.text.len();
    }

    /// Forgets the text up to a line but for a blank line before it; the bytes less.
    fn cut(&mut self, begin: usize) -> usize {
        let blank = if ends_blank(&self.text[..begin]) { "\n" } else { "" };
        let less = begin - blank.len();
        if less > 0 {
            self.text.replace_range(..begin, blank);
            self.kept = Kept::default();
        }
        less
    }

    /// Lets all that stands there stay as it is.
    fn keep(&mut self, size: TerminalSize) {
        self.kept = Kept {
            bytes: self.text.len(),
            rows: draw(&self.text, size.columns).rows.len(),
        };
        self.rows.keep(vec![]);
    }

    /// Writes what is not shown yet as it is, as all that is still to come of the line.
    fn write_as_it_is(&mut self, out: &mut String) {
        let (shown, rest) = self.text.split_at(self.shown);
        if shown.ends_with('\n') {
            self.rows.end_line(out);
        }
        self.rows.go_on(&output::plain(rest.trim_end_matches('\n')), out);
        self.as_it_is = true;
    }

    /// Goes on behind a line that was written as it is: within the same code, else with another block.
    fn begin_behind_plain_line(&mut self, size: TerminalSize) {
        self.as_it_is = false;
        self.is_begun = true;
        match self.last {
            LastBlock::Code { .. } => self.text.truncate(line_begin(&self.text)),
            LastBlock::Table | LastBlock::Other => {
                self.text.clear();
                self.last = LastBlock::Other;
            }
        }
        self.shown = self.text.len();
        self.keep(size);
    }

    /// Up to where the text can be shown while its last line is coming in, and the marks that close what is open there.
    /// What may be marks is held back, so that nothing appears to vanish again.
    fn visible(&self) -> (usize, &'static str) {
        let begin = line_begin(&self.text);
        let line = &self.text[begin..];
        let is_marks = |c: char| c.is_ascii() && !c.is_alphanumeric();
        let held_back = match self.last {
            LastBlock::Code { .. } => !line.is_empty() && line.trim_start().chars().all(|c| ['`', '~'].contains(&c)),
            LastBlock::Table => true,
            LastBlock::Other => line.len() <= MOST_MARKS && line.chars().all(is_marks),
        };
        if held_back {
            return (begin, "");
        }
        if matches!(self.last, LastBlock::Code { .. }) {
            return (self.text.len(), "");
        }
        let line = line.trim_end_matches([' ', '*', '_', '~', '`', '\\']);
        let closing = match (line.matches('`').count() % 2 == 1, is_bold(line)) {
            (false, false) => "",
            (false, true) => "**",
            (true, false) => "`",
            (true, true) => "`**",
        };
        (begin + line.len(), closing)
    }
}

/// Bytes that a line begins with before it must be shown, whatever it will be.
const MOST_MARKS: usize = 8;

/// Where the last line begins.
fn line_begin(text: &str) -> usize {
    text.rfind('\n').map_or(0, |end| end + 1)
}

/// Where the last line with anything in it begins, be it its end alone.
fn last_line(text: &str) -> usize {
    line_begin(text.strip_suffix('\n').unwrap_or(text))
}

/// Whether the last line is over, and blank.
fn ends_blank(text: &str) -> bool {
    text.ends_with('\n') && draw::is_blank(text[last_line(text)..].trim_end())
}

/// Whether bold text is open at the end of a line.
fn is_bold(line: &str) -> bool {
    // Within code, marks are none.
    let parts = line.split('`').step_by(2).flat_map(|part| {
        let marks = part
            .match_indices("**")
            .map(|(at, mark)| (&part[..at], &part[at + mark.len()..]));
        marks.map(|(before, behind)| (before.ends_with(' '), behind.starts_with(' ')))
    });
    parts.fold(
        false,
        |open, (behind_blank, before_blank)| if open { behind_blank } else { !before_blank },
    )
}
