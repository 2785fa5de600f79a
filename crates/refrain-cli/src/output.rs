//! What the program writes: results on standard output, everything else on standard error.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use serde_json::Value;

use crate::markdown::TerminalSize;

pub(crate) use refrain_vulkan::human_bytes;

/// Whoever read the standard output has closed it: no failure, but there is no one to write for.
#[derive(Debug)]
pub(crate) struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the standard output was closed")
    }
}

impl std::error::Error for Closed {}

/// A text as it may be shown: control characters, line ends and tabs aside, and what turns the direction of writing, are
/// written as escapes. Names and messages of files could otherwise act on the terminal, or show what is not there.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if acts(c) {
            shown.extend(c.escape_default())
        } else {
            shown.push(c)
        }
    }
    Cow::Owned(shown)
}

/// Whether a terminal does something else with a character than show it.
fn acts(c: char) -> bool {
    let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() && !matches!(c, '\n' | '\t') || turns
}

/// Writes part of the result for people, [`plain()`], and sees to it that it arrives now.
///
/// # Errors
/// [`Closed`] if nobody reads any more, else what the system says.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    print_as_it_is(&plain(text))
}

/// Writes text that is itself the result, such as what a model says: on a terminal [`plain()`], else byte for byte.
///
/// # Errors
/// As [`print()`].
pub(crate) fn print_text(text: &str) -> anyhow::Result<()> {
    if io::stdout().is_terminal() {
        print(text)
    } else {
        print_as_it_is(text)
    }
}

/// Writes what a terminal is told to do, in which nothing comes from elsewhere but [`plain()`].
///
/// # Errors
/// As [`print()`].
pub(crate) fn draw(text: &str) -> anyhow::Result<()> {
    print_as_it_is(text)
}

/// The size of the terminal that the standard output is, if what stands on it can be drawn anew, in colours.
pub(crate) fn canvas() -> Option<TerminalSize> {
    let terminal = console::Term::stdout();
    let draws = terminal.features().colors_supported() && console::colors_enabled();
    let (lines, columns) = terminal.size_checked().filter(|_| draws)?;
    Some(TerminalSize {
        lines: lines.max(1).into(),
        columns: columns.max(2).into(),
    })
}

fn print_as_it_is(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    told(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// What became of writing to the standard output.
///
/// # Errors
/// As [`print()`].
pub(crate) fn told(written: io::Result<()>) -> anyhow::Result<()> {
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Closed.into(),
        _ => anyhow::anyhow!("cannot write to the standard output: {error}"),
    })
}

/// Writes a result for machines: one line of JSON.
///
/// # Errors
/// As [`print()`].
pub(crate) fn print_json(value: &Value) -> anyhow::Result<()> {
    let mut line = String::new();
    for c in value.to_string().chars() {
        if acts(c) {
            line.push_str(&format!("\\u{:04x}", c as u32))
        } else {
            line.push(c)
        }
    }
    print_as_it_is(&(line + "\n"))
}

/// A number of few digits as it is written, for JSON: not `0.8999999761581421` for 0.9, as f64 has it.
pub(crate) fn json_f32(value: f32) -> Value {
    value.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

/// Writes a line to the standard error, [`plain()`]. If that fails too, there is nowhere left to say so.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", plain(line));
}

/// Writes a line to the standard error that need not be read: dimmed on a terminal.
pub(crate) fn aside(line: &str) {
    let _ = writeln!(
        io::stderr().lock(),
        "{}",
        console::style(plain(line)).for_stderr().dim()
    );
}

/// Whether [`print_dimmed`] dims.
pub(crate) fn dims() -> bool {
    console::colors_enabled()
}

/// As [`print()`], a text that steps back behind the rest.
///
/// # Errors
/// As [`print()`].
pub(crate) fn print_dimmed(text: &str) -> anyhow::Result<()> {
    print_as_it_is(&console::style(plain(text)).dim().to_string())
}

/// Seconds as people write them: `0.4 ms`, `85 ms`, `2.31 s`.
pub(crate) fn human_seconds(seconds: f64) -> String {
    match seconds {
        s if s < 0.01 => format!("{:.1} ms", s * 1e3),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// How long ago something was: `5 minutes ago`, `3 weeks ago`.
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

/// A rate with as many digits as are worth reading: `0.52`, `23.4`, `1520`.
pub(crate) fn human_rate(rate: f64) -> String {
    match rate {
        r if r < 10.0 => format!("{r:.2}"),
        r if r < 100.0 => format!("{r:.1}"),
        r => format!("{r:.0}"),
    }
}

/// A rate that was measured in passing, with as many digits as it would have the next time: `0.52`, `23`,
/// `1500`.
pub(crate) fn about_rate(rate: f64) -> String {
    let digits = rate.abs().log10().floor();
    match digits.is_finite() {
        true if digits < 1.0 => format!("{rate:.*}", (1.0 - digits) as usize),
        true => {
            let unit = 10f64.powf(digits - 1.0);
            format!("{:.0}", (rate / unit).round() * unit)
        }
        false => format!("{rate:.0}"),
    }
}

/// A large number as people write it: `596.0 M`, `8.2 B`.
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
    fn control_characters_are_shown_as_escapes() {
        assert_eq!(plain("a\tb\né 😀"), "a\tb\né 😀");
        assert_eq!(
            plain("\x1b[31m\r\x07\x7f\u{9b}\u{202e}"),
            r"\u{1b}[31m\r\u{7}\u{7f}\u{9b}\u{202e}"
        );
    }

    #[test]
    fn numbers_are_short_and_keep_their_unit() {
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
