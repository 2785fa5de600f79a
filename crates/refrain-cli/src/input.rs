//! User input from files and standard input.

use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::anyhow;

use crate::output;

/// How long to wait for standard input before telling the user about it.
const STDIN_NOTICE_DELAY: Duration = Duration::from_secs(2);

/// Reads a file as UTF-8, unchanged.
///
/// # Errors
/// If it cannot be read or is not UTF-8.
pub(crate) fn read_text(path: &Path) -> anyhow::Result<String> {
    let bytes = std::fs::read(path).map_err(|error| anyhow!("cannot read {}: {error}", path.display()))?;
    utf8(bytes, &path.display().to_string())
}

/// Reads standard input to its end, unchanged. On a terminal, first asks the user to type `what`.
///
/// # Errors
/// If it cannot be read or is not UTF-8.
pub(crate) fn read_stdin(what: &str) -> anyhow::Result<String> {
    if io::stdin().is_terminal() {
        output::eprint_line(&format!("type {what}, then press Ctrl-D on an empty line"));
    }
    let mut bytes = Vec::new();
    io::stdin()
        .lock()
        .read_to_end(&mut bytes)
        .map_err(|error| anyhow!("cannot read standard input: {error}"))?;
    utf8(bytes, "standard input")
}

/// Reads piped or redirected standard input; `None` on a terminal. Prints a notice if nothing arrives for a while,
/// because the pipe may never be closed.
///
/// # Errors
/// As [`read_stdin`].
pub(crate) fn read_piped(quiet: bool) -> anyhow::Result<Option<String>> {
    if io::stdin().is_terminal() {
        return Ok(None);
    }
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(read_stdin("the prompt")));
    let read = receiver.recv_timeout(STDIN_NOTICE_DELAY).or_else(|_| {
        if !quiet {
            output::eprint_line("reading standard input, which is added to the prompt (use `< /dev/null` for none)");
        }
        receiver.recv()
    });
    read.map_err(|_| anyhow!("cannot read standard input"))?.map(Some)
}

fn utf8(bytes: Vec<u8>, source: &str) -> anyhow::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow!("{source} is not UTF-8 text (at byte {at})")
    })
}
