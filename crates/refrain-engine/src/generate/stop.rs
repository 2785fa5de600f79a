//! Finding stop strings in a text that comes piece by piece.

/// Lets text through until a stop string comes up, and holds back what could be the beginning of
/// one.
pub(super) struct StopFilter {
    stops: Vec<String>,
    held: String,
}

/// What a piece of text brought.
#[derive(Debug, Default, PartialEq)]
pub struct Passed {
    /// Text that is certain now.
    pub text: String,
    /// Whether a stop string came right after it.
    pub stopped: bool,
}

impl StopFilter {
    /// A filter for these strings; empty ones are left out.
    pub fn new(mut stops: Vec<String>) -> Self {
        stops.retain(|stop| !stop.is_empty());
        let held = String::new();
        Self { stops, held }
    }

    /// Takes the next piece of the text. After a stop string, nothing passes any more that was
    /// pushed with or before it.
    pub fn push(&mut self, piece: &str) -> Passed {
        self.held.push_str(piece);
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop)).min();
        let certain = found.unwrap_or_else(|| self.held.len() - self.begun());
        let rest = self.held.split_off(certain);
        let text = std::mem::replace(&mut self.held, rest);
        let stopped = found.is_some();
        if stopped {
            self.held.clear();
        }
        Passed { text, stopped }
    }

    /// The end of the text: what was held back after all.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Bytes at the end of the held text that begin a stop string.
    fn begun(&self) -> usize {
        let begins = |stop: &String| {
            let lengths = stop.char_indices().map(|(length, _)| length);
            lengths.filter(|length| self.held.ends_with(&stop[..*length])).max()
        };
        self.stops.iter().filter_map(begins).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(pieces: &[&str], stops: &[&str]) -> (Vec<String>, bool) {
        let stops: Vec<String> = stops.iter().map(|stop| stop.to_string()).collect();
        let mut filter = StopFilter::new(stops);
        let mut passed = Vec::new();
        for piece in pieces {
            let Passed { text, stopped } = filter.push(piece);
            passed.push(text);
            if stopped {
                return (passed, true);
            }
        }
        passed.push(filter.finish());
        (passed, false)
    }

    #[test]
    fn without_stop_strings_all_passes_at_once() {
        assert_eq!(filter(&["ab", "", "c"], &[]).0, ["ab", "", "c", ""]);
        assert_eq!(filter(&["ab"], &[""]).0, ["ab", ""]);
    }

    #[test]
    fn a_stop_string_may_span_pieces() {
        let (passed, stopped) = filter(&["one E", "N", "D two"], &["END"]);
        assert_eq!((passed.concat().as_str(), stopped), ("one ", true));
        assert_eq!(passed, ["one ", "", ""]);
    }

    #[test]
    fn text_that_only_began_like_a_stop_string_passes_later() {
        let (passed, stopped) = filter(&["E", "N", "T", "EN"], &["END"]);
        assert!(!stopped);
        assert_eq!(passed, ["", "", "ENT", "", "EN"]);
    }

    #[test]
    fn a_beginning_within_a_beginning_is_held() {
        let (passed, stopped) = filter(&["aab", "aabc", "x"], &["aabaabd", "abaabc"]);
        assert_eq!(passed.concat(), "a");
        assert!(stopped);
    }

    #[test]
    fn the_first_of_several_ends_the_text() {
        let (passed, stopped) = filter(&["x. y! z"], &["!", "."]);
        assert_eq!((passed.concat().as_str(), stopped), ("x", true));
    }

    #[test]
    fn characters_of_several_bytes_are_not_cut() {
        let (passed, stopped) = filter(&["é", "è", "ê"], &["éê", "èé"]);
        assert_eq!((passed.concat().as_str(), stopped), ("éèê", false));
    }
}
