//! Reads the user's messages, from a terminal or from standard input.

mod line_tracker;

use std::fs;
use std::io::{self, BufRead, ErrorKind, IsTerminal};
use std::path::PathBuf;

use anyhow::anyhow;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};

use crate::{host, output};
use line_tracker::LineTracker;

/// Delimiter of multi-line messages.
const FENCE: &str = "\"\"\"";

/// One input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Input {
    /// A message or a command.
    Text(String),
    /// An empty line, or one abandoned with Ctrl-C.
    Blank,
    /// End of input.
    End,
}

/// Source of input.
pub(super) enum LineReader {
    /// A terminal, with line editing and a persistent history.
    Terminal {
        editor: Box<Editor<LineTracker, FileHistory>>,
        history: Option<PathBuf>,
        /// Whether the last key was Ctrl-C.
        interrupted: bool,
    },
    /// A pipe or file, read line by line.
    Piped(Box<dyn BufRead>),
}

impl LineReader {
    /// Reads standard input, with line editing if it is a terminal.
    ///
    /// # Errors
    /// If the terminal cannot be used.
    pub fn new(with_history: bool) -> anyhow::Result<Self> {
        if !io::stdin().is_terminal() {
            return Ok(Self::Piped(Box::new(io::stdin().lock())));
        }
        let config = Config::builder().auto_add_history(false).build();
        let mut editor = Editor::with_config(config).map_err(|error| anyhow!("cannot use this terminal: {error}"))?;
        editor.set_helper(Some(LineTracker::default()));
        let history = host::state_dir()
            .filter(|_| with_history)
            .map(|folder| folder.join("chat_history"));
        let mut editor = Box::new(editor);
        if let Some(path) = &history {
            // There is no history on first use.
            let _ = editor.load_history(path);
        }
        Ok(Self::Terminal {
            editor,
            history,
            interrupted: false,
        })
    }

    /// Whether the source is a terminal.
    pub fn is_interactive(&self) -> bool {
        matches!(self, Self::Terminal { .. })
    }

    /// Returns the next message; continued lines are joined.
    ///
    /// # Errors
    /// If it cannot be read, or is not UTF-8.
    pub fn next(&mut self) -> anyhow::Result<Input> {
        let mut message: Vec<String> = Vec::new();
        let mut fenced = false;
        loop {
            let prompt = if message.is_empty() && !fenced { ">>> " } else { "... " };
            let line = match self.read(prompt)? {
                LineRead::Line(line) => line,
                LineRead::Abandoned => return Ok(Input::Blank),
                // An incomplete message is sent.
                LineRead::End if message.is_empty() => return Ok(Input::End),
                LineRead::End => break,
            };
            if !append(&mut message, &mut fenced, &line) {
                break;
            }
        }
        let text = message.join("\n");
        self.add_to_history(&text);
        Ok(if text.trim().is_empty() {
            Input::Blank
        } else {
            Input::Text(text)
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
                output::eprint_line("(press Ctrl-C again, or Ctrl-D, to exit)");
                Ok(LineRead::Abandoned)
            }
            Err(error) if is_invalid_utf8(&error) => {
                let begun = editor.helper().map_or(String::new(), LineTracker::take);
                let kept = match editor.add_history_entry(&begun) {
                    Ok(true) => "; press the up arrow to restore the text before it",
                    _ => "",
                };
                output::eprint_line(&format!("\n(invalid input, not UTF-8: this line was dropped{kept})"));
                self.read(prompt)
            }
            Err(error) => Err(anyhow!("cannot read from this terminal: {error}")),
        }
    }

    /// Adds a message to the history, and to its file at once, because the program may be killed at any time.
    fn add_to_history(&mut self, text: &str) {
        let Self::Terminal { editor, history, .. } = self else {
            return;
        };
        // Failing to save the history is harmless.
        if editor.add_history_entry(text).unwrap_or(false)
            && let Some(path) = history
        {
            let _ = path.parent().map(fs::create_dir_all);
            let _ = editor.append_history(path);
        }
    }
}

/// Whether the error means that the typed text is not UTF-8.
fn is_invalid_utf8(error: &ReadlineError) -> bool {
    matches!(error, ReadlineError::Io(error) if error.kind() == ErrorKind::InvalidData)
}

/// Result of reading one line.
enum LineRead {
    Line(String),
    /// The line was abandoned with Ctrl-C.
    Abandoned,
    End,
}

/// Reads the next line of a pipe or file, without its line ending.
fn read_line(lines: &mut dyn BufRead) -> anyhow::Result<LineRead> {
    let mut line = String::new();
    let read = lines.read_line(&mut line);
    let read = read.map_err(|error| anyhow!("cannot read standard input: {error}"))?;
    if read == 0 {
        return Ok(LineRead::End);
    }
    let text = line.strip_suffix('\n').unwrap_or(&line);
    Ok(LineRead::Line(text.strip_suffix('\r').unwrap_or(text).to_owned()))
}

/// Appends a line to a message; returns true if the message continues.
fn append(message: &mut Vec<String>, fenced: &mut bool, line: &str) -> bool {
    // Lines pasted together are one message.
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

    fn messages(text: &str) -> Vec<Input> {
        let mut reader = LineReader::Piped(Box::new(Cursor::new(text.to_owned())));
        let mut found = Vec::new();
        loop {
            match reader.next().unwrap() {
                Input::End => return found,
                input => found.push(input),
            }
        }
    }

    fn text(text: &str) -> Input {
        Input::Text(text.to_owned())
    }

    #[test]
    fn each_line_is_a_message() {
        assert_eq!(messages("one\n\n two \n"), [text("one"), Input::Blank, text(" two ")]);
        assert_eq!(messages(""), []);
    }

    #[test]
    fn accepts_crlf_and_rejects_invalid_utf8() {
        assert_eq!(messages("one\r\ntwo"), [text("one"), text("two")]);
        let mut reader = LineReader::Piped(Box::new(Cursor::new(b"\xff\n")));
        assert!(reader.next().unwrap_err().to_string().contains("UTF-8"));
    }

    #[test]
    fn backslash_continues_a_message() {
        assert_eq!(
            messages("one\\\ntwo\\\nthree\nfour"),
            [text("one\ntwo\nthree"), text("four")]
        );
        assert_eq!(messages("one\\"), [text("one")]);
    }

    #[test]
    fn fences_enclose_one_message() {
        let fenced = "\"\"\"\none\n\ntwo\\\n\"\"\"\nthree";
        assert_eq!(messages(fenced), [text("one\n\ntwo\\"), text("three")]);
        assert_eq!(messages("\"\"\"one\ntwo\"\"\""), [text("one\ntwo")]);
        assert_eq!(messages("\"\"\"one\"\"\"\ntwo"), [text("one"), text("two")]);
        assert_eq!(messages("\"\"\"\nnever closed"), [text("never closed")]);
    }
}
