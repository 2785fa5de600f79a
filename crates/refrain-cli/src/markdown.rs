//! Renders streamed Markdown on a terminal.
//!
//! Each piece of text redraws only what may still change: the last block, or the last item of a list. The text of
//! finished blocks and code lines is dropped, so a long response costs no more per token than a short one.

mod math;
mod render;
mod row;
mod screen;
mod table;
#[cfg(test)]
mod tests;

use render::{LastBlock, Rendered, render};
use screen::LiveRows;
pub(crate) use screen::TerminalSize;

use crate::output;

/// Maximum bytes of a block that is redrawn; the rest of its line is written verbatim.
const MAX_REDRAWN_BYTES: usize = 4096;

/// Converts Markdown into terminal output.
#[derive(Debug)]
pub(crate) struct MarkdownStream {
    /// The text of the last block; finished lines of code are dropped.
    text: String,
    /// Bytes of `text` that are shown, or held back only because they may be markup.
    shown: usize,
    last: LastBlock,
    /// The first part of `text` whose rows are final.
    frozen: Frozen,
    rows: LiveRows,
    /// The terminal size at the last update; `None` before the first.
    size: Option<TerminalSize>,
    /// Whether a non-blank line has ended.
    has_content: bool,
    /// Whether the rest of this line is written verbatim.
    is_verbatim: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Frozen {
    bytes: usize,
    rows: usize,
}

impl MarkdownStream {
    /// Starts at the beginning of a line.
    pub fn new() -> Self {
        Self {
            text: String::new(),
            shown: 0,
            last: LastBlock::Other,
            frozen: Frozen::default(),
            rows: LiveRows::new(),
            size: None,
            has_content: false,
            is_verbatim: false,
        }
    }

    /// Returns the output that shows more text on a terminal of this size.
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

    /// Returns the output that ends the text and its last line.
    pub fn finish(&mut self, size: TerminalSize) -> String {
        let mut out = if self.text.ends_with('\n') || self.text.is_empty() {
            String::new()
        } else {
            self.push("\n", size)
        };
        self.rows.end_line(&mut out);
        *self = Self::new();
        out
    }

    /// Processes text of one line and returns the unprocessed rest.
    fn push_line<'a>(&mut self, text: &'a str, size: TerminalSize, out: &mut String) -> &'a str {
        if self.is_verbatim {
            self.rows
                .append_verbatim(&output::escape_control(text.trim_end_matches('\n')), out);
            if text.ends_with('\n') {
                self.resume_after_verbatim_line(size);
            }
            return "";
        }
        let room = MAX_REDRAWN_BYTES.saturating_sub(self.text.len());
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
            self.write_verbatim(out);
        }
        rest
    }

    /// Redraws the text up to byte `shown`, followed by `closing` to close open markup. `None` if rows have scrolled
    /// away; then the rest of the line is written verbatim.
    fn refresh(&mut self, shown: usize, closing: &str, size: TerminalSize, out: &mut String) -> Option<Rendered> {
        let is_resized = self.size.replace(size).is_some_and(|before| before != size);
        if is_resized && self.rows.is_empty() {
            self.frozen.rows = render(&self.text[..self.frozen.bytes], size.columns).rows.len();
        }
        // After a resize, the terminal has rewrapped and the positions of rows are unknown.
        let can_change = !is_resized || self.rows.is_empty();
        let mut rendered = self.render(shown, closing, size);
        if can_change && self.rows.change(std::mem::take(&mut rendered.rows), size, out) {
            self.shown = shown;
            return Some(rendered);
        }
        let line = last_line(&self.text);
        if self.shown > line {
            self.write_verbatim(out);
            return None;
        }
        // Nothing of this line is shown yet: continue with it as a new text.
        let before = self.cut(line);
        let shown = shown.saturating_sub(before);
        let mut rendered = self.render(shown, closing, size);
        self.rows.keep(vec![]);
        self.rows.change(std::mem::take(&mut rendered.rows), size, out);
        self.shown = shown;
        Some(rendered)
    }

    fn render(&self, shown: usize, closing: &str, size: TerminalSize) -> Rendered {
        let text = &self.text[..shown];
        let mut rendered = if closing.is_empty() {
            render(text, size.columns)
        } else {
            render(&format!("{text}{closing}"), size.columns)
        };
        rendered.rows.drain(..self.frozen.rows.min(rendered.rows.len()));
        rendered
    }

    /// Draws a finished line and drops the text that can no longer change.
    fn end_line(&mut self, size: TerminalSize, out: &mut String) {
        let line = last_line(&self.text);
        let is_blank = self.text[line..].trim().is_empty();
        let is_code = matches!(self.last, LastBlock::Code { .. });
        // Several blank lines count as one; blank lines at the start are skipped.
        let is_redundant = !self.has_content || ends_blank(&self.text[..line]);
        if is_blank && !is_code && is_redundant {
            self.text.truncate(line);
            self.shown = self.shown.min(line);
            return;
        }
        self.has_content = true;
        let Some(rendered) = self.refresh(self.text.len(), "", size, out) else {
            self.text.pop();
            self.resume_after_verbatim_line(size);
            return;
        };
        self.last = rendered.last;
        let lines = self.text.split_inclusive('\n');
        let begin = lines.clone().take(rendered.last_begins).map(str::len).sum();
        match rendered.last {
            LastBlock::Code { is_empty: false } => {
                self.text.truncate(last_line(&self.text));
                self.freeze(size);
            }
            LastBlock::Table
                if !is_blank && (self.rows.len() > size.lines / 2 || self.text.len() > MAX_REDRAWN_BYTES / 2) =>
            {
                // The table continues below, with column widths for the remaining rows.
                self.text = lines.skip(rendered.last_begins).take(2).collect();
                self.freeze(size);
            }
            _ => {
                if self.cut(begin) > 0 {
                    self.rows.keep(render(&self.text, size.columns).rows);
                }
                if is_blank {
                    self.last = LastBlock::Other;
                }
            }
        }
        self.shown = self.text.len();
    }

    /// Drops the text before a line, except for a blank line. Returns the number of bytes dropped.
    fn cut(&mut self, begin: usize) -> usize {
        let blank = if ends_blank(&self.text[..begin]) { "\n" } else { "" };
        let dropped = begin - blank.len();
        if dropped > 0 {
            self.text.replace_range(..begin, blank);
            self.frozen = Frozen::default();
        }
        dropped
    }

    /// Freezes everything that is shown.
    fn freeze(&mut self, size: TerminalSize) {
        self.frozen = Frozen {
            bytes: self.text.len(),
            rows: render(&self.text, size.columns).rows.len(),
        };
        self.rows.keep(vec![]);
    }

    /// Writes the hidden text verbatim, and the rest of the line as it comes.
    fn write_verbatim(&mut self, out: &mut String) {
        let (shown, rest) = self.text.split_at(self.shown);
        if shown.ends_with('\n') {
            self.rows.end_line(out);
        }
        self.rows
            .append_verbatim(&output::escape_control(rest.trim_end_matches('\n')), out);
        self.is_verbatim = true;
    }

    /// Continues after a verbatim line: in the same code block, else with a new block.
    fn resume_after_verbatim_line(&mut self, size: TerminalSize) {
        self.is_verbatim = false;
        self.has_content = true;
        match self.last {
            LastBlock::Code { .. } => self.text.truncate(line_begin(&self.text)),
            LastBlock::Table | LastBlock::Other => {
                self.text.clear();
                self.last = LastBlock::Other;
            }
        }
        self.shown = self.text.len();
        self.freeze(size);
    }

    /// Returns how many bytes can be shown while the last line is incomplete, and the markup that closes what is open
    /// there. Possible markup is held back, so that nothing shown has to vanish again.
    fn visible(&self) -> (usize, &'static str) {
        let begin = line_begin(&self.text);
        let line = &self.text[begin..];
        let is_markup = |c: char| c.is_ascii() && !c.is_alphanumeric();
        let held_back = match self.last {
            LastBlock::Code { .. } => !line.is_empty() && line.trim_start().chars().all(|c| ['`', '~'].contains(&c)),
            LastBlock::Table => true,
            LastBlock::Other => line.len() <= MAX_HELD_BACK && line.chars().all(is_markup),
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

/// Maximum bytes of possible markup at the start of a line that are held back.
const MAX_HELD_BACK: usize = 8;

/// Byte offset of the last line.
fn line_begin(text: &str) -> usize {
    text.rfind('\n').map_or(0, |end| end + 1)
}

/// Byte offset of the last line, ignoring a newline at the end.
fn last_line(text: &str) -> usize {
    line_begin(text.strip_suffix('\n').unwrap_or(text))
}

/// Whether the text ends with a complete blank line.
fn ends_blank(text: &str) -> bool {
    text.ends_with('\n') && render::is_blank(text[last_line(text)..].trim_end())
}

/// Whether bold text is open at the end of a line.
fn is_bold(line: &str) -> bool {
    // Code contains no markup.
    let parts = line.split('`').step_by(2).flat_map(|part| {
        let markers = part
            .match_indices("**")
            .map(|(at, mark)| (&part[..at], &part[at + mark.len()..]));
        markers.map(|(before, behind)| (before.ends_with(' '), behind.starts_with(' ')))
    });
    parts.fold(
        false,
        |open, (behind_blank, before_blank)| if open { behind_blank } else { !before_blank },
    )
}
