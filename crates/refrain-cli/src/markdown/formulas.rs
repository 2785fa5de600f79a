//! What only looks like markdown: formulas in LaTeX's brackets, and the beginnings of reference definitions.

/// As many characters that stand for nothing as ASCII has marks.
const FIRST: u32 = 0xfdd0;
const MARKS: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

/// How formulas begin and end.
const BRACKETS: [(&str, &str); 3] = [("\\(", "\\)"), ("\\[", "\\]"), ("$$", "$$")];

/// A mark as a character that means nothing in markdown.
fn hidden(c: char) -> char {
    match MARKS.find(c) {
        Some(index) => char::from_u32(FIRST + index as u32).unwrap_or(c),
        None => c,
    }
}

/// The character that was hidden.
pub(super) fn shown(c: char) -> char {
    let index = (c as u32).checked_sub(FIRST).map(|index| index as usize);
    index
        .and_then(|index| MARKS.as_bytes().get(index))
        .map_or(c, |mark| char::from(*mark))
}

/// The text with formulas that no mark of markdown is found in, on the same lines. A definition of a reference is hidden
/// too: it would be shown nowhere.
pub(super) fn hide(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    let mut at = 0;
    // Up to where it is known that no bracket is closed.
    let mut open_until = [0; BRACKETS.len()];
    while let Some(letter) = text[at..].chars().next() {
        let rest = &text[at..];
        let kind = BRACKETS.iter().position(|(open, _)| rest.starts_with(open));
        let formula = kind.filter(|kind| at >= open_until[*kind]).map(|kind| {
            let begins_line = written.rsplit('\n').next().is_some_and(|line| line.trim().is_empty());
            let found = formula(rest, BRACKETS[kind], begins_line);
            if let Formula::Open(length) = found {
                open_until[kind] = at + length;
            }
            (found, begins_line && kind > 0)
        });
        let length = match formula {
            Some((Formula::Closed(length), _) | (Formula::Open(length), true)) => length,
            _ if rest.starts_with("\\\\") => {
                written.push_str("\\\\");
                at += 2;
                continue;
            }
            // One that is not closed (yet) is no escape.
            _ if rest.starts_with('\\') && rest[1..].starts_with(['(', ')', '[', ']']) => 2,
            _ if rest.starts_with("]:") => 1,
            _ => {
                // What stands for something here must not come from outside.
                written.push(if shown(letter) == letter {
                    letter
                } else {
                    char::REPLACEMENT_CHARACTER
                });
                at += letter.len_utf8();
                continue;
            }
        };
        written.extend(rest[..length].chars().map(hidden));
        at += length;
    }
    written
}

/// What begins with an opening bracket, and its bytes.
enum Formula {
    Closed(usize),
    /// Up to where its paragraph ends.
    Open(usize),
    None,
}

fn formula(text: &str, (open, close): (&str, &str), begins_line: bool) -> Formula {
    let body = &text[open.len()..];
    let ends = ["\n\n", "```"].into_iter().filter_map(|end| body.find(end));
    let body = &body[..ends.min().unwrap_or(body.len())];
    match body.find(close) {
        // Elsewhere, two dollars are more often money or a shell's.
        _ if open == "$$" && !begins_line => Formula::None,
        // Each bracket in code of its own.
        Some(end) if open == "\\(" && body[..end].contains('`') => Formula::None,
        Some(end) => Formula::Closed(open.len() + end + close.len()),
        None => Formula::Open(open.len() + body.len()),
    }
}
