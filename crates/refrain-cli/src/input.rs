//! Texts that the user gives in files or on standard input.

use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::anyhow;

use crate::output;

/// How long the standard input may take before a line says that it is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// A file's text, every byte of it.
///
/// # Errors
/// If it cannot be read or is not UTF-8.
pub(crate) fn read_text(path: &Path) -> anyhow::Result<String> {
    let bytes = std::fs::read(path).map_err(|error| anyhow!("cannot read {}: {error}", path.display()))?;
    utf8(bytes, &path.display().to_string())
}

/// Standard input up to its end, every byte of it. On a terminal, a line asks for `what`.
///
/// # Errors
/// If it cannot be read or is not UTF-8.
pub(crate) fn read_stdin(what: &str) -> anyhow::Result<String> {
    if io::stdin().is_terminal() {
        output::complain(&format!("type {what}, then Ctrl-D on a line of its own"));
    }
    let mut bytes = Vec::new();
    io::stdin()
        .lock()
        .read_to_end(&mut bytes)
        .map_err(|error| anyhow!("cannot read the standard input: {error}"))?;
    utf8(bytes, "the standard input")
}

/// What is piped or redirected to the program; `None` on a terminal. Whoever waits for a pipe that nobody
/// writes to is told so.
///
/// # Errors
/// As [`read_stdin`].
pub(crate) fn read_piped(quiet: bool) -> anyhow::Result<Option<String>> {
    if io::stdin().is_terminal() {
        return Ok(None);
    }
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(read_stdin("the prompt")));
    let read = receiver.recv_timeout(PATIENCE).or_else(|_| {
        if !quiet {
            output::complain("waiting for the end of the standard input, which joins the prompt (`< /dev/null`: none)");
        }
        receiver.recv()
    });
    read.map_err(|_| anyhow!("cannot read the standard input"))?.map(Some)
}

fn utf8(bytes: Vec<u8>, source: &str) -> anyhow::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow!("{source} is not UTF-8 text (at byte {at})")
    })
}
