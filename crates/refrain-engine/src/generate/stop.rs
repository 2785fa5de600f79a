//! Finds stop strings in streamed text.

/// Passes text through up to a stop string, and holds back what may be the start of one.
pub(super) struct StopFilter {
    stops: Vec<String>,
    pending: String,
    /// The index of the stop string that was found.
    found: Option<usize>,
}

/// New text of a stream.
#[derive(Debug, Default, PartialEq)]
pub struct DecodedPiece {
    /// Text that is certain now.
    pub text: String,
    /// Whether a stop string followed right after it.
    pub stopped: bool,
}

impl StopFilter {
    /// Creates a filter; empty strings are ignored.
    pub fn new(stops: Vec<String>) -> Self {
        StopFilter {
            stops,
            pending: String::new(),
            found: None,
        }
    }

    /// Adds the next piece of text. After a stop string, all pending text is dropped.
    pub fn push(&mut self, piece: &str) -> DecodedPiece {
        self.pending.push_str(piece);
        let stops = self.stops.iter().enumerate().filter(|(_, stop)| !stop.is_empty());
        let found = stops.filter_map(|(index, stop)| Some((self.pending.find(stop)?, index)));
        let found = found.min();
        let certain = found.map_or_else(|| self.pending.len() - self.partial_stop_len(), |(at, _)| at);
        let rest = self.pending.split_off(certain);
        let text = std::mem::replace(&mut self.pending, rest);
        let stopped = found.is_some();
        if let Some((_, index)) = found {
            self.pending.clear();
            self.found = Some(index);
        }
        DecodedPiece { text, stopped }
    }

    /// The index of the stop string that was found.
    pub fn found(&self) -> Option<usize> {
        self.found
    }

    /// Ends the text, and returns what was held back.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.pending)
    }

    /// Returns the bytes at the end of the pending text that may begin a stop string.
    fn partial_stop_len(&self) -> usize {
        let begins = |stop: &String| {
            let lengths = stop.char_indices().map(|(length, _)| length);
            lengths.filter(|length| self.pending.ends_with(&stop[..*length])).max()
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
            let DecodedPiece { text, stopped } = filter.push(piece);
            passed.push(text);
            if stopped {
                return (passed, true);
            }
        }
        passed.push(filter.finish());
        (passed, false)
    }

    #[test]
    fn passes_everything_without_stop_strings() {
        assert_eq!(filter(&["ab", "", "c"], &[]).0, ["ab", "", "c", ""]);
        assert_eq!(filter(&["ab"], &[""]).0, ["ab", ""]);
    }

    #[test]
    fn finds_stop_strings_across_pieces() {
        let (passed, stopped) = filter(&["one E", "N", "D two"], &["END"]);
        assert_eq!((passed.concat().as_str(), stopped), ("one ", true));
        assert_eq!(passed, ["one ", "", ""]);
    }

    #[test]
    fn releases_partial_matches_that_fail() {
        let (passed, stopped) = filter(&["E", "N", "T", "EN"], &["END"]);
        assert!(!stopped);
        assert_eq!(passed, ["", "", "ENT", "", "EN"]);
    }

    #[test]
    fn holds_back_nested_partial_matches() {
        let (passed, stopped) = filter(&["aab", "aabc", "x"], &["aabaabd", "abaabc"]);
        assert_eq!(passed.concat(), "a");
        assert!(stopped);
    }

    #[test]
    fn stops_at_the_first_of_several_strings() {
        let (passed, stopped) = filter(&["x. y! z"], &["!", "."]);
        assert_eq!((passed.concat().as_str(), stopped), ("x", true));
        let mut filter = StopFilter::new(["", "!", "."].map(str::to_owned).to_vec());
        assert_eq!(filter.found(), None);
        filter.push("x. y! z");
        assert_eq!(filter.found(), Some(2));
    }

    #[test]
    fn does_not_split_multibyte_characters() {
        let (passed, stopped) = filter(&["é", "è", "ê"], &["éê", "èé"]);
        assert_eq!((passed.concat().as_str(), stopped), ("éèê", false));
    }
}
