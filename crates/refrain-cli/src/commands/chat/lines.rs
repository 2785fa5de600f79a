//! What the user types, message by message.

mod typed;

use std::fs;
use std::io::{self, BufRead, ErrorKind, IsTerminal};
use std::path::PathBuf;

use anyhow::anyhow;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};

use crate::{host, output};
use typed::Typed;

/// What begins and ends a message of several lines.
const FENCE: &str = "\"\"\"";

/// The next message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// A message or a command.
    Text(String),
    /// Nothing was said.
    Blank,
    /// There is no more.
    End,
}

/// Where lines come from.
pub(super) enum Lines {
    /// A terminal, with line editing and a history that is kept.
    Terminal {
        editor: Box<Editor<Typed, FileHistory>>,
        history: Option<PathBuf>,
        /// Whether the last thing pressed was Ctrl-C.
        interrupted: bool,
    },
    /// Anything else, read line by line.
    Piped(Box<dyn BufRead>),
}

impl Lines {
    /// The standard input: edited if it is a terminal.
    ///
    /// # Errors
    /// If the terminal cannot be used.
    pub fn new(with_history: bool) -> anyhow::Result<Self> {
        if !io::stdin().is_terminal() {
            return Ok(Self::Piped(Box::new(io::stdin().lock())));
        }
        let config = Config::builder().auto_add_history(false).build();
        let mut editor = Editor::with_config(config).map_err(|error| anyhow!("cannot use this terminal: {error}"))?;
        editor.set_helper(Some(Typed::default()));
        let history = host::state_dir()
            .filter(|_| with_history)
            .map(|folder| folder.join("chat_history"));
        let mut editor = Box::new(editor);
        if let Some(path) = &history {
            // The first time there is none.
            let _ = editor.load_history(path);
        }
        Ok(Self::Terminal {
            editor,
            history,
            interrupted: false,
        })
    }

    /// Whether someone types.
    pub fn interactive(&self) -> bool {
        matches!(self, Self::Terminal { .. })
    }

    /// The next message; lines that belong together are one.
    ///
    /// # Errors
    /// If it cannot be read, or is not UTF-8.
    pub fn next(&mut self) -> anyhow::Result<Line> {
        let mut message: Vec<String> = Vec::new();
        let mut fenced = false;
        loop {
            let prompt = if message.is_empty() && !fenced { ">>> " } else { "... " };
            let line = match self.read(prompt)? {
                LineRead::Line(line) => line,
                LineRead::Nothing => return Ok(Line::Blank),
                // What was begun is said.
                LineRead::End if message.is_empty() => return Ok(Line::End),
                LineRead::End => break,
            };
            if take(&mut message, &mut fenced, &line) {
                continue;
            } else {
                break;
            }
        }
        let text = message.join("\n");
        self.remember(&text);
        Ok(if text.trim().is_empty() {
            Line::Blank
        } else {
            Line::Text(text)
        })
    }

    fn read(&mut self, prompt: &str) -> anyhow::Result<LineRead> {
        let (editor, interrupted) = match self {
            Self::Piped(lines) => return read_line(lines),
            Self::Terminal {
                editor, interrupted, ..
            } => (editor, interrupted),
        };
        let line = editor.readline(prompt);
        let twice = std::mem::replace(interrupted, matches!(line, Err(ReadlineError::Interrupted)));
        match line {
            Ok(line) => Ok(LineRead::Line(line)),
            Err(ReadlineError::Eof) => Ok(LineRead::End),
            Err(ReadlineError::Interrupted) if twice => Ok(LineRead::End),
            Err(ReadlineError::Interrupted) => {
                output::complain("(Ctrl-C again, or Ctrl-D, leaves)");
                Ok(LineRead::Nothing)
            }
            Err(error) if is_no_text(&error) => {
                let begun = editor.helper().map_or(String::new(), Typed::take);
                let kept = match editor.add_history_entry(&begun) {
                    Ok(true) => "; the up arrow brings back what came before it",
                    _ => "",
                };
                output::complain(&format!("\n(a byte that is not UTF-8: this line is dropped{kept})"));
                self.read(prompt)
            }
            Err(error) => Err(anyhow!("cannot read from this terminal: {error}")),
        }
    }

    /// Adds a message to the history, on disk too: the program may be ended at any time.
    fn remember(&mut self, text: &str) {
        let Self::Terminal { editor, history, .. } = self else {
            return;
        };
        // A history that cannot be kept is none; nothing else is lost.
        if editor.add_history_entry(text).unwrap_or(false)
            && let Some(path) = history
        {
            let _ = path.parent().map(fs::create_dir_all);
            let _ = editor.append_history(path);
        }
    }
}

/// Whether the terminal is sound, but what was typed is not UTF-8.
fn is_no_text(error: &ReadlineError) -> bool {
    matches!(error, ReadlineError::Io(error) if error.kind() == ErrorKind::InvalidData)
}

/// What one reading gives.
enum LineRead {
    Line(String),
    /// The line was given up.
    Nothing,
    End,
}

/// The next line of what is no terminal, without its end.
fn read_line(lines: &mut dyn BufRead) -> anyhow::Result<LineRead> {
    let mut line = String::new();
    let read = lines.read_line(&mut line);
    let read = read.map_err(|error| anyhow!("cannot read the standard input: {error}"))?;
    if read == 0 {
        return Ok(LineRead::End);
    }
    let text = line.strip_suffix('\n').unwrap_or(&line);
    Ok(LineRead::Line(text.strip_suffix('\r').unwrap_or(text).to_owned()))
}

/// Adds a line to a message; true if the message goes on after it.
fn take(message: &mut Vec<String>, fenced: &mut bool, line: &str) -> bool {
    // Lines that were pasted together are a message as they stand.
    if line.contains('\n') && !*fenced && !line.trim_start().starts_with(FENCE) {
        message.push(line.to_owned());
        return false;
    }
    if *fenced {
        let Some(last) = line.trim_end().strip_suffix(FENCE) else {
            message.push(line.to_owned());
            return true;
        };
        if !last.is_empty() {
            message.push(last.to_owned());
        }
        *fenced = false;
        return false;
    }
    let opened = line.trim_start().strip_prefix(FENCE).filter(|_| message.is_empty());
    if let Some(first) = opened {
        if let Some(whole) = first.trim_end().strip_suffix(FENCE) {
            message.push(whole.trim_matches('\n').to_owned());
            return false;
        }
        if !first.is_empty() {
            message.push(first.to_owned());
        }
        *fenced = true;
        return true;
    }
    match line.strip_suffix('\\') {
        Some(line) => {
            message.push(line.to_owned());
            true
        }
        None => {
            message.push(line.to_owned());
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn messages(text: &str) -> Vec<Line> {
        let mut lines = Lines::Piped(Box::new(Cursor::new(text.to_owned())));
        let mut found = Vec::new();
        loop {
            match lines.next().unwrap() {
                Line::End => return found,
                line => found.push(line),
            }
        }
    }

    fn text(text: &str) -> Line {
        Line::Text(text.to_owned())
    }

    #[test]
    fn each_line_is_a_message() {
        assert_eq!(messages("one\n\n two \n"), [text("one"), Line::Blank, text(" two ")]);
        assert_eq!(messages(""), []);
    }

    #[test]
    fn lines_may_end_as_other_systems_end_them_and_must_be_text() {
        assert_eq!(messages("one\r\ntwo"), [text("one"), text("two")]);
        let mut lines = Lines::Piped(Box::new(Cursor::new(b"\xff\n")));
        assert!(lines.next().unwrap_err().to_string().contains("UTF-8"));
    }

    #[test]
    fn a_backslash_at_the_end_goes_on_in_the_next_line() {
        assert_eq!(
            messages("one\\\ntwo\\\nthree\nfour"),
            [text("one\ntwo\nthree"), text("four")]
        );
        assert_eq!(messages("one\\"), [text("one")]);
    }

    #[test]
    fn what_stands_between_fences_is_one_message() {
        let fenced = "\"\"\"\none\n\ntwo\\\n\"\"\"\nthree";
        assert_eq!(messages(fenced), [text("one\n\ntwo\\"), text("three")]);
        assert_eq!(messages("\"\"\"one\ntwo\"\"\""), [text("one\ntwo")]);
        assert_eq!(messages("\"\"\"one\"\"\"\ntwo"), [text("one"), text("two")]);
        assert_eq!(messages("\"\"\"\nnever closed"), [text("never closed")]);
    }
}
