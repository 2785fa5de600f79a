//! Looking for marks in a text of which more may come.

/// What is known of a mark at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// It is there.
    Yes,
    /// It is not.
    No,
    /// What is there may become it.
    Perhaps,
}

/// Whether `text` begins with `mark`. An empty mark is nowhere.
pub(super) fn at_front(text: &str, mark: &str) -> Found {
    if mark.is_empty() {
        Found::No
    } else if text.starts_with(mark) {
        Found::Yes
    } else if mark.starts_with(text) {
        Found::Perhaps
    } else {
        Found::No
    }
}

/// The first of `marks` in a text: its place and the mark. Of several at one place the longest counts.
pub(super) fn first<'m>(text: &str, marks: impl IntoIterator<Item = &'m str>) -> Option<(usize, &'m str)> {
    let places = marks
        .into_iter()
        .filter(|mark| !mark.is_empty())
        .filter_map(|mark| Some((text.find(mark)?, mark)));
    places.min_by_key(|(at, mark)| (*at, usize::MAX - mark.len()))
}

/// Bytes at the end of a text that may be the beginning of one of `marks`.
pub(super) fn begun<'m>(text: &str, marks: impl IntoIterator<Item = &'m str>) -> usize {
    let begun = |mark: &str| {
        let lengths = mark.char_indices().map(|(length, _)| length).skip(1);
        lengths
            .filter(|length| text.ends_with(&mark[..*length]))
            .max()
            .unwrap_or(0)
    };
    marks.into_iter().map(begun).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_as_soon_as_they_are_certain() {
        assert_eq!(at_front("<tool", "<tool_call>"), Found::Perhaps);
        assert_eq!(at_front("", "<a>"), Found::Perhaps);
        assert_eq!(at_front("<tool_call>x", "<tool_call>"), Found::Yes);
        assert_eq!(at_front("<tools", "<tool_call>"), Found::No);
        assert_eq!(first("a<b><c>", ["<c>", "<b>"]), Some((1, "<b>")));
        assert_eq!(first("ab", ["a", "ab"]), Some((0, "ab")));
        assert_eq!(begun("x <to", ["<tool_call>", "<tools>"]), 3);
        assert_eq!(begun("x<｜tool", ["<｜tool▁calls"]), "<｜tool".len());
        assert_eq!(begun("x", ["<"]), 0);
    }
}
