//! Rewrites LaTeX's formula delimiters as markdown's, in time proportional to the text.

/// Replaces the delimiters `\\(` and `\\[` by `$` and `$$`, except in code.
pub(super) fn normalise_delimiters(text: &str) -> String {
    let mut reader = Reader::new(text);
    let mut written = String::with_capacity(text.len());
    let mut fence: Option<char> = None;
    while reader.at < text.len() {
        let rest = &text[reader.at..];
        let line = &rest[..rest.find('\n').map_or(rest.len(), |end| end + 1)];
        let delimiter = fence_delimiter(line);
        if delimiter.is_some() && (fence.is_none() || fence == delimiter) {
            fence = if fence.is_none() { delimiter } else { None };
        } else if fence.is_none() {
            // A formula in brackets, or code between backticks, may span several lines.
            reader.copy_line(&mut written);
            continue;
        }
        written.push_str(line);
        reader.at += line.len();
    }
    written
}

/// The character of a code fence at the start of a line.
fn fence_delimiter(line: &str) -> Option<char> {
    let line = line.trim_start();
    ['`', '~']
        .into_iter()
        .find(|delimiter| line.starts_with(&[*delimiter; 3].iter().collect::<String>()))
}

/// Finds the next place of a pattern. Calls must ask for ascending places, so that the text is searched once.
struct Finder {
    pattern: &'static str,
    /// The place that was found last; `None` if there is none.
    found: Option<usize>,
}

impl Finder {
    fn new(text: &str, pattern: &'static str) -> Finder {
        let found = text.find(pattern);
        Finder { pattern, found }
    }

    /// Returns the first place at or after `from`.
    fn next(&mut self, text: &str, from: usize) -> Option<usize> {
        if self.found? < from {
            self.found = text[from..].find(self.pattern).map(|at| from + at);
        }
        self.found
    }
}

/// A position in a text.
struct Reader<'t> {
    text: &'t str,
    at: usize,
    closing_round: Finder,
    closing_square: Finder,
    dollar: Finder,
    empty_line: Finder,
    /// No run of this many backticks, or more, follows.
    unclosed_backticks: usize,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str) -> Reader<'t> {
        Reader {
            text,
            at: 0,
            closing_round: Finder::new(text, "\\)"),
            closing_square: Finder::new(text, "\\]"),
            dollar: Finder::new(text, "$"),
            empty_line: Finder::new(text, "\n\n"),
            unclosed_backticks: usize::MAX,
        }
    }

    /// Copies the rest of the line, and the code and formulas that start in it.
    fn copy_line(&mut self, written: &mut String) {
        while let Some(character) = self.text[self.at..].chars().next() {
            let rest = &self.text[self.at..];
            let length = match character {
                '`' => self.code_length(rest),
                '\\' => match self.bracketed_formula() {
                    Some((inner, delimiter, end)) => {
                        written.extend([delimiter, inner, delimiter]);
                        self.at = end;
                        continue;
                    }
                    None => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
                },
                character => character.len_utf8(),
            };
            written.push_str(&rest[..length]);
            self.at += length;
            if character == '\n' {
                break;
            }
        }
    }

    /// Returns the bytes of the code at the start of `rest`, or of its backticks if it has no end.
    fn code_length(&mut self, rest: &str) -> usize {
        let run = rest.len() - rest.trim_start_matches('`').len();
        if run >= self.unclosed_backticks {
            return run;
        }
        match rest[run..].find(&rest[..run]) {
            Some(end) => end + 2 * run,
            None => {
                self.unclosed_backticks = run;
                run
            }
        }
    }

    /// Returns the formula at the present place, its markdown delimiter, and the place behind it.
    fn bracketed_formula(&mut self) -> Option<(&'t str, &'static str, usize)> {
        let (text, start) = (self.text, self.at + 2);
        let (closing, delimiter) = match text.get(self.at..start)? {
            "\\(" => (&mut self.closing_round, "$"),
            "\\[" => (&mut self.closing_square, "$$"),
            _ => return None,
        };
        let end = closing.next(text, start)?;
        let is_before_end = |place: Option<usize>| place.is_some_and(|place| place < end);
        let has_dollar = is_before_end(self.dollar.next(text, start));
        let has_empty_line = self.empty_line.next(text, start).is_some_and(|place| place + 2 <= end);
        let inner = text[start..end].trim();
        (!has_dollar && !has_empty_line && !inner.is_empty()).then_some((inner, delimiter, end + 2))
    }
}

#[cfg(test)]
mod tests {
    use super::normalise_delimiters;

    #[test]
    fn rewrites_closed_formulas_only() {
        for (text, expected) in [
            ("a \\( x \\) b", "a $x$ b"),
            ("\\[\nx\n\\]", "$$x$$"),
            ("\\(x", "\\(x"),
            ("\\(\\) \\( \\)", "\\(\\) \\( \\)"),
            ("\\(a $ b\\) \\(c\\)", "\\(a $ b\\) $c$"),
            ("\\(a\n\nb\\) \\(c\\)", "\\(a\n\nb\\) $c$"),
            ("`\\(x\\)` \\(y\\)", "`\\(x\\)` $y$"),
            ("` \\(x\\)", "` $x$"),
            ("``` \\(x\\)\n\\(y\\)\n```\n\\(z\\)", "``` \\(x\\)\n\\(y\\)\n```\n$z$"),
            ("\\\\(x\\)", "\\\\(x\\)"),
            ("\\(a \\[b\\] c\\)", "$a \\[b\\] c$"),
        ] {
            assert_eq!(normalise_delimiters(text), expected, "{text:?}");
        }
    }
}
