//! `strftime_now`: the local time as Python's `datetime.now().strftime(…)` writes it, in the C locale.

use std::time::SystemTime;

use super::budget::BoundedText;
use super::error::{RenderError, Try};

/// Longest time format, in bytes.
const MAX_TIME_FORMAT: usize = 1000;

/// Largest padding that a format may ask for.
const MAX_WIDTH: usize = 64;

/// Formats `time`.
///
/// # Errors
/// If the format is too long, or the time cannot be represented.
pub(super) fn strftime(format: &str, time: SystemTime) -> Try<BoundedText> {
    let time = jiff::Zoned::try_from(time).map_err(RenderError::invalid)?;
    if format.len() > MAX_TIME_FORMAT {
        return Err(RenderError::invalid("the time format is too long"));
    }
    let mut out = BoundedText::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.push(&rest[..at])?;
        let length = directive(&rest[at..]);
        out.push(&expand(&rest[at..at + length], &time))?;
        rest = &rest[at + length..];
    }
    out.push(rest)?;
    Ok(out)
}

/// Returns the length of the directive at the start of `text`, which begins with `%`.
fn directive(text: &str) -> usize {
    let flags = text[1..].find(|c: char| !"-_0^#".contains(c) && !c.is_ascii_digit());
    let mut end = flags.map_or(text.len(), |at| at + 1);
    // `%:z`, and the other representations `%Ey` and `%Od`, which are the usual ones in the C locale.
    if text[end..].starts_with([':', 'E', 'O']) {
        end += 1;
    }
    end + text[end..].chars().next().map_or(0, char::len_utf8)
}

/// Returns what a directive stands for. C writes an unknown one as it is.
fn expand(directive: &str, time: &jiff::Zoned) -> String {
    match directive {
        "%f" => return format!("{:06}", time.subsec_nanosecond() / 1000),
        // `datetime.now()` has no time zone.
        "%z" | "%Z" | "%:z" => return String::new(),
        "%%" => return "%".to_owned(),
        "%n" => return "\n".to_owned(),
        "%t" => return "\t".to_owned(),
        _ => {}
    }
    let Some(letter) = directive.chars().last().filter(|letter| letter.is_ascii_alphabetic()) else {
        return directive.to_owned();
    };
    let flags = directive[1..directive.len() - 1].trim_end_matches(['E', 'O']);
    let width = flags.trim_start_matches(['-', '_', '^', '#', '0']);
    let width_is_valid = width.is_empty() || width.parse().is_ok_and(|width: usize| width <= MAX_WIDTH);
    if !width_is_valid || flags.contains(':') {
        return directive.to_owned();
    }
    let whole = match letter {
        'c' => "%a %b %e %H:%M:%S %Y",
        'x' | 'D' => "%m/%d/%y",
        'X' | 'T' => "%H:%M:%S",
        'r' => "%I:%M:%S %p",
        'R' => "%H:%M",
        'F' => "%Y-%m-%d",
        'h' => "%b",
        _ => "",
    };
    let simple = "aAbBCdegGHIjklmMpPsSuUVwWyY";
    let written = match whole {
        "" if simple.contains(letter) => jiff::fmt::strtime::format(format!("%{flags}{letter}"), time).ok(),
        "" => None,
        whole => jiff::fmt::strtime::format(whole, time).ok(),
    };
    written.unwrap_or_else(|| directive.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    fn strftime(format: &str) -> String {
        let time: jiff::civil::DateTime = "2024-07-06T08:05:03.000123456".parse().unwrap();
        let time = time.to_zoned(jiff::tz::TimeZone::system()).unwrap();
        let time = SystemTime::from(time.timestamp());
        super::strftime(format, time).unwrap().into_string()
    }

    /// The expected texts are those of Python 3.12 on Linux.
    #[test]
    fn formats_as_python_does() {
        for (format, expected) in [
            ("%d %b %Y", "06 Jul 2024"),
            ("%-d %B %y, %A", "6 July 24, Saturday"),
            ("%f|%Z|%z|%:z", "000123|||"),
            ("%H:%M:%S %I %p %P", "08:05:03 08 AM am"),
            ("%e|%k|%l|%j|%C", " 6| 8| 8|188|20"),
            ("%c|%x|%X|%r", "Sat Jul  6 08:05:03 2024|07/06/24|08:05:03|08:05:03 AM"),
            ("%D %F %T %R %h", "07/06/24 2024-07-06 08:05:03 08:05 Jul"),
            ("%U %W %V %G %g %u %w", "26 27 27 2024 24 6 6"),
            ("%%f 100% %Q %-f é%é", "%f 100% %Q %-f é%é"),
            ("%Ey %Od %^a %_d %03d", "24 06 SAT  6 006"),
            ("%", "%"),
            ("a%n%tb", "a\n\tb"),
        ] {
            assert_eq!(strftime(format), expected, "{format}");
        }
    }
}
