//! Character classes and case mappings with the semantics of Python's strings.

use std::sync::OnceLock;

use regex::Regex;

/// Digits that are not decimal, such as `²` and `①`: first and last code point of each run.
const OTHER_DIGITS: [(u32, u32); 20] = [
    (0xb2, 0xb3),
    (0xb9, 0xb9),
    (0x1369, 0x1371),
    (0x19da, 0x19da),
    (0x2070, 0x2070),
    (0x2074, 0x2079),
    (0x2080, 0x2089),
    (0x2460, 0x2468),
    (0x2474, 0x247c),
    (0x2488, 0x2490),
    (0x24ea, 0x24ea),
    (0x24f5, 0x24fd),
    (0x24ff, 0x24ff),
    (0x2776, 0x277e),
    (0x2780, 0x2788),
    (0x278a, 0x2792),
    (0x10a40, 0x10a43),
    (0x10e60, 0x10e68),
    (0x11052, 0x1105a),
    (0x1f100, 0x1f10a),
];

/// Ideographs that are numerals.
const NUMERALS: &str = "㐅㒃㠪㭍一七万三九二五亖亿什仟仨伍佰億兆兩八六十千卄卅卌叁参參叄四壱壹幺廾廿弌弍弎弐拾捌柒漆玖百肆萬貮貳贰阡陆陌陸零\
    \u{f96b}\u{f973}\u{f978}\u{f9b2}\u{f9d1}\u{f9d3}\u{f9fd}𠀁𠁤𠃢𠄡𠤪𠦃𠦌𠦜𠫪𠫽𠬙𢎐𢦘𣬛𦉭\u{2f890}";

/// Tells whether `text` matches a pattern that is compiled once.
macro_rules! matches_pattern {
    ($pattern:literal, $text:expr) => {{
        static PATTERN: OnceLock<Option<Regex>> = OnceLock::new();
        let pattern = PATTERN.get_or_init(|| Regex::new($pattern).ok());
        pattern.as_ref().is_some_and(|pattern| pattern.is_match($text))
    }};
}

/// `str.isalpha`: letters, without marks and numbers.
pub(super) fn is_alpha(text: &str) -> bool {
    matches_pattern!(r"^\p{L}+$", text)
}

/// `str.isdecimal`: decimal digits of any script.
pub(super) fn is_decimal(text: &str) -> bool {
    matches_pattern!(r"^\p{Nd}+$", text)
}

/// `str.isdigit`: also superscripts and the like.
pub(super) fn is_digit(text: &str) -> bool {
    let other = |c: char| {
        OTHER_DIGITS
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&(c as u32)))
    };
    all(text, |c| other(c) || is_decimal(c.encode_utf8(&mut [0; 4])))
}

/// `str.isnumeric`: also fractions, Roman numerals and the like.
pub(super) fn is_numeric(text: &str) -> bool {
    all(text, is_numeral)
}

fn is_numeral(c: char) -> bool {
    c.is_numeric() || c > '\u{3400}' && NUMERALS.contains(c)
}

/// `str.isalnum`
pub(super) fn is_alphanumeric(text: &str) -> bool {
    all(text, |c| is_numeral(c) || is_alpha(c.encode_utf8(&mut [0; 4])))
}

/// `str.isidentifier`
pub(super) fn is_identifier(text: &str) -> bool {
    matches_pattern!(r"^[\p{XID_Start}_]\p{XID_Continue}*$", text)
}

/// `str.islower`: at least one lower-case and no upper-case character.
pub(super) fn is_lower(text: &str) -> bool {
    text.chars().any(char::is_lowercase) && !text.chars().any(|c| c.is_uppercase() || is_title_case(c))
}

/// `str.isupper`
pub(super) fn is_upper(text: &str) -> bool {
    text.chars().any(char::is_uppercase) && !text.chars().any(|c| c.is_lowercase() || is_title_case(c))
}

/// `str.istitle`: upper case only after uncased characters, lower case only after cased ones.
pub(super) fn is_title(text: &str) -> bool {
    let (mut in_word, mut found) = (false, false);
    for c in text.chars() {
        let begins = c.is_uppercase() || is_title_case(c);
        if begins && in_word || c.is_lowercase() && !in_word {
            return false;
        }
        in_word = begins || c.is_lowercase();
        found |= in_word;
    }
    found
}

/// Counts words, as `\w+` finds them.
pub(super) fn words(text: &str) -> usize {
    let mut in_word = false;
    let mut count = 0;
    for c in text.chars() {
        let word = c == '_' || is_alphanumeric(c.encode_utf8(&mut [0; 4]));
        count += usize::from(word && !in_word);
        in_word = word;
    }
    count
}

fn all(text: &str, kind: impl Fn(char) -> bool) -> bool {
    !text.is_empty() && text.chars().all(kind)
}

fn is_title_case(c: char) -> bool {
    !c.is_ascii() && matches_pattern!(r"^\p{Lt}$", c.encode_utf8(&mut [0; 4]))
}

fn is_cased(c: char) -> bool {
    c.is_lowercase() || c.is_uppercase() || is_title_case(c)
}

/// `str.casefold`
pub(super) fn case_fold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_ascii() => folded.push(c.to_ascii_lowercase()),
            'ı' => folded.push(c),
            // Cherokee got its lower case late, so it folds to upper case.
            '\u{13a0}'..='\u{13fd}' | '\u{ab70}'..='\u{abbf}' => folded.extend(c.to_uppercase()),
            c => {
                let upper = c.to_lowercase().flat_map(char::to_uppercase);
                folded.extend(upper.flat_map(char::to_lowercase));
            }
        }
    }
    folded
}

/// `str.swapcase`
pub(super) fn swap_case(text: &str) -> String {
    let mut swapped = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        match c {
            c if c.is_uppercase() => push_lower(text, at, c, &mut swapped),
            c if c.is_lowercase() => swapped.extend(c.to_uppercase()),
            c => swapped.push(c),
        }
    }
    swapped
}

/// `str.capitalize`
pub(super) fn capitalise(text: &str) -> String {
    let mut capitalised = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        match at {
            0 => push_title(c, &mut capitalised),
            at => push_lower(text, at, c, &mut capitalised),
        }
    }
    capitalised
}

/// `str.title`: characters after a cased one become lower case, the others title case.
pub(super) fn title(text: &str) -> String {
    let mut titled = String::with_capacity(text.len());
    let mut in_word = false;
    for (at, c) in text.char_indices() {
        if in_word {
            push_lower(text, at, c, &mut titled)
        } else {
            push_title(c, &mut titled)
        }
        in_word = is_cased(c);
    }
    titled
}

/// Appends the lower case of the character at `at`. A sigma depends on whether it ends a word.
fn push_lower(text: &str, at: usize, c: char, out: &mut String) {
    if c != 'Σ' {
        return out.extend(c.to_lowercase());
    }
    let ignored = |c: &char| matches_pattern!(r"^\p{Case_Ignorable}$", c.encode_utf8(&mut [0; 4]));
    let before = text[..at].chars().rev().find(|c| !ignored(c)).is_some_and(is_cased);
    let behind = text[at + c.len_utf8()..]
        .chars()
        .find(|c| !ignored(c))
        .is_some_and(is_cased);
    out.push(if before && !behind { 'ς' } else { 'σ' });
}

/// Appends the title case of a character: its upper case, except that only the first letter of a ligature changes.
fn push_title(c: char, out: &mut String) {
    let with = |first: char, mark: char, out: &mut String| out.extend([first, mark]);
    match c {
        '\u{1c4}'..='\u{1c6}' => out.push('\u{1c5}'),
        '\u{1c7}'..='\u{1c9}' => out.push('\u{1c8}'),
        '\u{1ca}'..='\u{1cc}' => out.push('\u{1cb}'),
        '\u{1f1}'..='\u{1f3}' => out.push('\u{1f2}'),
        '\u{10d0}'..='\u{10ff}' => out.push(c),
        '\u{1f80}'..='\u{1faf}' => out.extend(char::from_u32(c as u32 | 8)),
        '\u{1fb3}' | '\u{1fbc}' => out.push('\u{1fbc}'),
        '\u{1fc3}' | '\u{1fcc}' => out.push('\u{1fcc}'),
        '\u{1ff3}' | '\u{1ffc}' => out.push('\u{1ffc}'),
        '\u{1fb7}' => with('\u{1fbc}', '\u{342}', out),
        '\u{1fc7}' => with('\u{1fcc}', '\u{342}', out),
        '\u{1ff7}' => with('\u{1ffc}', '\u{342}', out),
        '\u{1fb2}' | '\u{1fb4}' | '\u{1fc2}' | '\u{1fc4}' | '\u{1ff2}' | '\u{1ff4}' => {
            out.extend(c.to_uppercase().next());
            out.push('\u{345}');
        }
        'ß' | '\u{587}' | '\u{fb00}'..='\u{fb06}' | '\u{fb13}'..='\u{fb17}' => {
            let mut upper = c.to_uppercase();
            out.extend(upper.next());
            out.extend(upper.flat_map(char::to_lowercase));
        }
        c => out.extend(c.to_uppercase()),
    }
}
