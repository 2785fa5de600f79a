//! How long idle models stay loaded.

use std::time::Duration;

/// Parses how long an idle model stays loaded, as Ollama's clients write it: `5m`, `1h30m`, or seconds. 0 unloads it at
/// once. A negative time keeps it (`None`).
///
/// # Errors
/// Text of another form.
pub fn keep_alive(text: &str) -> Result<Option<Duration>, String> {
    let wrong = || format!("{text:?} is not a time such as 5m, 1h30m or 300 (seconds)");
    let (is_negative, mut rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let mut seconds = 0.0;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let number = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let unit = rest[number..]
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len() - number);
        let value: f64 = rest[..number].parse().map_err(|_| wrong())?;
        seconds += value
            * match &rest[number..number + unit] {
                "" | "s" => 1.0,
                "ms" => 1e-3,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return Err(wrong()),
            };
        rest = &rest[number + unit..];
    }
    let time = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
    // Longer times could overflow a deadline.
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
    Ok((!is_negative && time < CENTURY).then_some(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_times_as_ollama_does() {
        let seconds = |text: &str| keep_alive(text).map(|time| time.map(|time| time.as_millis()));
        assert_eq!(seconds("5m"), Ok(Some(300_000)));
        assert_eq!(seconds("1h30m"), Ok(Some(5_400_000)));
        assert_eq!(seconds("1.5s"), Ok(Some(1500)));
        assert_eq!((seconds("20"), seconds("0")), (Ok(Some(20_000)), Ok(Some(0))));
        assert_eq!(
            (seconds("-1"), seconds("-5m"), seconds("9999999h")),
            (Ok(None), Ok(None), Ok(None))
        );
        for wrong in ["", "-", "m", "5x", "1e9999", "five", "5 m"] {
            assert!(keep_alive(wrong).is_err(), "{wrong}");
        }
    }
}
