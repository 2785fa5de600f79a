//! Texts on the command line that begin with a hyphen, such as the prompt `"- a list"`.
//!
//! clap takes each argument that begins with a hyphen for options. An argument that can only be a text is marked before
//! it is parsed, and [`text`] removes the mark. Words without white space are never marked, so that a misspelt option is
//! still reported.

use std::ffi::OsString;

/// Marks a text. No argument of a process can contain it.
const MARK: char = '\0';

/// Commands whose arguments are texts.
const COMMANDS: [&str; 3] = ["run", "chat", "tokenize"];

/// Marks the texts among a program's arguments. `is_short_with_value` tells the one-letter options that take a value, of
/// the given command.
pub(crate) fn mark_texts(
    mut arguments: Vec<OsString>,
    is_short_with_value: impl Fn(&str, char) -> bool,
) -> Vec<OsString> {
    let is_command = |word: &OsString| word.to_str().filter(|word| COMMANDS.contains(word)).map(str::to_owned);
    let Some((at, command)) = (arguments.iter().enumerate()).find_map(|(at, word)| Some((at, is_command(word)?)))
    else {
        return arguments;
    };
    for argument in arguments.iter_mut().skip(at + 1) {
        let Some(word) = argument.to_str() else { continue };
        if word == "--" {
            break;
        }
        if is_text(word, |letter| is_short_with_value(&command, letter)) {
            *argument = format!("{MARK}{word}").into();
        }
    }
    arguments
}

/// Whether an argument begins with a hyphen, but can be no option.
fn is_text(word: &str, is_short_with_value: impl Fn(char) -> bool) -> bool {
    let Some(rest) = word.strip_prefix('-').filter(|rest| rest.contains(char::is_whitespace)) else {
        return false;
    };
    let name = rest.split(char::is_whitespace).next().unwrap_or_default();
    match rest.strip_prefix('-') {
        // `--system=be kind`
        Some(_) => !name.contains('='),
        // `-pTell me a story`
        None => {
            let mut letters = name.chars();
            !(letters.next().is_some_and(is_short_with_value) && letters.next().is_some())
        }
    }
}

/// Parses an argument that is a text: removes its mark.
pub(crate) fn text(argument: &str) -> Result<String, std::convert::Infallible> {
    Ok(argument.strip_prefix(MARK).unwrap_or(argument).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(words: &[&str]) -> Vec<String> {
        let words = words.iter().map(OsString::from).collect();
        let words = mark_texts(words, |_, letter| "pfmn".contains(letter));
        words.into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn texts_with_a_hyphen_are_told_from_options() {
        for text in [
            "- a list",
            "-\tx",
            "-- dashes",
            "---\ntitle: x",
            "--foo what is it?",
            "-5 degrees",
            "-v is what?",
            "-p x",
        ] {
            assert_eq!(
                marked(&["refrain", "run", "demo", text])[3],
                format!("\0{text}"),
                "{text}"
            );
            assert_eq!(super::text(&format!("\0{text}")).unwrap(), text);
        }
        for option in [
            "-",
            "--",
            "--verbose",
            "--system=be kind",
            "-pTell me",
            "-q",
            "hello - you",
            "a b",
            "-item",
        ] {
            assert_eq!(marked(&["refrain", "run", "demo", option])[3], option);
        }
        assert_eq!(marked(&["refrain", "run", "--", "- a"])[3], "- a");
        assert_eq!(marked(&["refrain", "list", "- a b"])[2], "- a b");
        assert_eq!(marked(&["refrain", "--quiet", "run", "- a"])[3], "\0- a");
    }
}
