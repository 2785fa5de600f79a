//! Protects text that only looks like Markdown: LaTeX formulas, and reference definitions.

/// Start of a range of Unicode noncharacters that stand for the ASCII punctuation in [`PUNCTUATION`].
const FIRST_NONCHARACTER: u32 = 0xfdd0;
const PUNCTUATION: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

/// Opening and closing delimiters of formulas.
const DELIMITERS: [(&str, &str); 3] = [("\\(", "\\)"), ("\\[", "\\]"), ("$$", "$$")];

/// Replaces punctuation by its noncharacter.
fn mask(c: char) -> char {
    match PUNCTUATION.find(c) {
        Some(index) => char::from_u32(FIRST_NONCHARACTER + index as u32).unwrap_or(c),
        None => c,
    }
}

/// Returns the original of a masked character.
pub(super) fn unmask(c: char) -> char {
    let index = (c as u32).checked_sub(FIRST_NONCHARACTER).map(|index| index as usize);
    index
        .and_then(|index| PUNCTUATION.as_bytes().get(index))
        .map_or(c, |mark| char::from(*mark))
}

/// Masks the punctuation of formulas, so that Markdown does not interpret it; lines stay the same. The beginnings of
/// reference definitions are masked too, since Markdown would not show them.
pub(super) fn mask_formulas(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    let mut at = 0;
    // For each delimiter: up to here it is known not to be closed.
    let mut open_until = [0; DELIMITERS.len()];
    while let Some(letter) = text[at..].chars().next() {
        let rest = &text[at..];
        let kind = DELIMITERS.iter().position(|(open, _)| rest.starts_with(open));
        let formula = kind.filter(|kind| at >= open_until[*kind]).map(|kind| {
            let begins_line = written.rsplit('\n').next().is_some_and(|line| line.trim().is_empty());
            let found = formula(rest, DELIMITERS[kind], begins_line);
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
            // An unclosed delimiter is not an escape.
            _ if rest.starts_with('\\') && rest[1..].starts_with(['(', ')', '[', ']']) => 2,
            _ if rest.starts_with("]:") => 1,
            _ => {
                // The noncharacters themselves must not come from the input.
                written.push(if unmask(letter) == letter {
                    letter
                } else {
                    char::REPLACEMENT_CHARACTER
                });
                at += letter.len_utf8();
                continue;
            }
        };
        written.extend(rest[..length].chars().map(mask));
        at += length;
    }
    written
}

/// The text at an opening delimiter, with its length in bytes.
enum Formula {
    Closed(usize),
    /// Unclosed up to the end of its paragraph.
    Open(usize),
    None,
}

fn formula(text: &str, (open, close): (&str, &str), begins_line: bool) -> Formula {
    let body = &text[open.len()..];
    let ends = ["\n\n", "```"].into_iter().filter_map(|end| body.find(end));
    let body = &body[..ends.min().unwrap_or(body.len())];
    match body.find(close) {
        // Within a line, two dollar signs are more often money or shell code.
        _ if open == "$$" && !begins_line => Formula::None,
        // The delimiters are in separate code spans.
        Some(end) if open == "\\(" && body[..end].contains('`') => Formula::None,
        Some(end) => Formula::Closed(open.len() + end + close.len()),
        None => Formula::Open(open.len() + body.len()),
    }
}
