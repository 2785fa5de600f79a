//! Console output: results go to standard output, everything else to standard error.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use serde_json::Value;

use crate::markdown::TerminalSize;

pub(crate) use refrain_vulkan::human_bytes;

/// The reader closed standard output. This is not a failure: the program ends quietly.
#[derive(Debug)]
pub(crate) struct StdoutClosed;

impl std::fmt::Display for StdoutClosed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("standard output was closed")
    }
}

impl std::error::Error for StdoutClosed {}

/// Escapes control characters (except newline and tab) and bidirectional overrides. Names and messages from files could
/// otherwise control the terminal or disguise themselves.
pub(crate) fn escape_control(text: &str) -> Cow<'_, str> {
    if !text.contains(needs_escape) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if needs_escape(c) {
            shown.extend(c.escape_default())
        } else {
            shown.push(c)
        }
    }
    Cow::Owned(shown)
}

/// Whether a terminal interprets a character instead of showing it.
fn needs_escape(c: char) -> bool {
    let is_bidi_override = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() && !matches!(c, '\n' | '\t') || is_bidi_override
}

/// Writes text to standard output through [`escape_control()`], and flushes.
///
/// # Errors
/// [`StdoutClosed`] if the reader closed standard output, else the I/O error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    write_stdout(&escape_control(text))
}

/// Writes model output: through [`escape_control()`] on a terminal, byte for byte elsewhere.
///
/// # Errors
/// As [`print()`].
pub(crate) fn print_text(text: &str) -> anyhow::Result<()> {
    if io::stdout().is_terminal() {
        print(text)
    } else {
        write_stdout(text)
    }
}

/// Writes terminal control sequences. Text from outside must already be escaped with [`escape_control()`].
///
/// # Errors
/// As [`print()`].
pub(crate) fn draw(text: &str) -> anyhow::Result<()> {
    write_stdout(text)
}

/// Size of the terminal on standard output. `None` if it is not a terminal, or cannot redraw lines and show colours.
pub(crate) fn drawable_terminal() -> Option<TerminalSize> {
    let terminal = console::Term::stdout();
    let draws = terminal.features().colors_supported() && console::colors_enabled();
    let (lines, columns) = terminal.size_checked().filter(|_| draws)?;
    Some(TerminalSize {
        lines: lines.max(1).into(),
        columns: columns.max(2).into(),
    })
}

fn write_stdout(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    check_written(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Maps the result of a write to standard output to this module's errors.
///
/// # Errors
/// As [`print()`].
pub(crate) fn check_written(result: io::Result<()>) -> anyhow::Result<()> {
    result.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => StdoutClosed.into(),
        _ => anyhow::anyhow!("cannot write to standard output: {error}"),
    })
}

/// Writes a JSON value in one line.
///
/// # Errors
/// As [`print()`].
pub(crate) fn print_json(value: &Value) -> anyhow::Result<()> {
    let mut line = String::new();
    for c in value.to_string().chars() {
        if needs_escape(c) {
            line.push_str(&format!("\\u{:04x}", c as u32))
        } else {
            line.push(c)
        }
    }
    write_stdout(&(line + "\n"))
}

/// An f32 as JSON with its shortest decimal form: 0.9, not `0.8999999761581421`, which f64 would print.
pub(crate) fn json_f32(value: f32) -> Value {
    value.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

/// Writes a line to standard error through [`escape_control()`]. A failure is ignored: there is nowhere left to report
/// it.
pub(crate) fn eprint_line(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", escape_control(line));
}

/// Writes a secondary line to standard error, dimmed on a terminal.
pub(crate) fn eprint_dimmed(line: &str) {
    let _ = writeln!(
        io::stderr().lock(),
        "{}",
        console::style(escape_control(line)).for_stderr().dim()
    );
}

/// Whether [`print_dimmed`] produces dimmed text.
pub(crate) fn can_dim() -> bool {
    console::colors_enabled()
}

/// As [`print()`], dimmed.
///
/// # Errors
/// As [`print()`].
pub(crate) fn print_dimmed(text: &str) -> anyhow::Result<()> {
    write_stdout(&console::style(escape_control(text)).dim().to_string())
}

/// Formats seconds: `0.4 ms`, `85 ms`, `2.31 s`.
pub(crate) fn human_seconds(seconds: f64) -> String {
    match seconds {
        s if s < 0.01 => format!("{:.1} ms", s * 1e3),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// Formats an age in seconds: `5 minutes ago`, `3 weeks ago`.
pub(crate) fn human_age(seconds: u64) -> String {
    const UNITS: [(u64, &str); 6] = [
        (365 * 86_400, "year"),
        (30 * 86_400, "month"),
        (7 * 86_400, "week"),
        (86_400, "day"),
        (3600, "hour"),
        (60, "minute"),
    ];
    let unit = UNITS.iter().find(|(length, _)| seconds >= *length);
    let Some((length, unit)) = unit else {
        return "just now".to_owned();
    };
    match seconds / length {
        1 => format!("1 {unit} ago"),
        count => format!("{count} {unit}s ago"),
    }
}

/// Formats a measured rate with three significant digits: `0.52`, `23.4`, `1520`.
pub(crate) fn human_rate(rate: f64) -> String {
    match rate {
        r if r < 10.0 => format!("{r:.2}"),
        r if r < 100.0 => format!("{r:.1}"),
        r => format!("{r:.0}"),
    }
}

/// Formats a rough estimate with two significant digits: `0.52`, `23`, `1500`.
pub(crate) fn about_rate(rate: f64) -> String {
    let digits = rate.abs().log10().floor();
    if !digits.is_finite() {
        format!("{rate:.0}")
    } else if digits < 1.0 {
        format!("{rate:.*}", (1.0 - digits) as usize)
    } else {
        let unit = 10f64.powf(digits - 1.0);
        format!("{:.0}", (rate / unit).round() * unit)
    }
}

/// Formats a large count: `596.0 M`, `8.19 B`.
pub(crate) fn human_count(count: u64) -> String {
    match count as f64 {
        n if n < 1e3 => format!("{count}"),
        n if n < 1e6 => format!("{:.1} K", n / 1e3),
        n if n < 1e9 => format!("{:.1} M", n / 1e6),
        n => format!("{:.2} B", n / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape_control("a\tb\né 😀"), "a\tb\né 😀");
        assert_eq!(
            escape_control("\x1b[31m\r\x07\x7f\u{9b}\u{202e}"),
            r"\u{1b}[31m\r\u{7}\u{7f}\u{9b}\u{202e}"
        );
    }

    #[test]
    fn formats_numbers_with_units() {
        assert_eq!(human_seconds(0.000_42), "0.4 ms");
        assert_eq!(human_seconds(0.0851), "85 ms");
        assert_eq!(human_seconds(2.314), "2.31 s");
        assert_eq!(human_rate(0.518), "0.52");
        assert_eq!(human_rate(23.44), "23.4");
        assert_eq!(human_rate(1520.4), "1520");
        assert_eq!(
            [0.518, 2.34, 23.44, 99.7, 1520.4, 0.0].map(about_rate),
            ["0.52", "2.3", "23", "100", "1500", "0"]
        );
        assert_eq!(json_f32(0.9).to_string(), "0.9");
        assert_eq!([json_f32(1.0).to_string(), json_f32(1e-7).to_string()], ["1.0", "1e-7"]);
        assert_eq!(json_f32(f32::INFINITY), Value::Null);
        assert_eq!(human_age(59), "just now");
        assert_eq!(human_age(3600), "1 hour ago");
        assert_eq!(human_age(20 * 86_400), "2 weeks ago");
        assert_eq!(human_count(999), "999");
        assert_eq!(human_count(596_049_920), "596.0 M");
        assert_eq!(human_count(8_190_735_360), "8.19 B");
    }
}
