//! Names and prose in the field's words.

use std::fs;

use super::{code, root, sources};

/// Where a private word is forbidden.
#[derive(PartialEq)]
enum Reach {
    /// In names of types, constants and modules; elsewhere it is plain English.
    Types,
    /// In names of functions and flags too.
    Names,
    /// In comments and documents too.
    Prose,
}

/// Words that only this project gave their meaning, with the words of the field. `heard` forbids `Heard`, `HEARD_TOKENS`
/// and `mod heard`.
const PRIVATE_WORDS: [(&str, &str, Reach); 43] = [
    ("squeeze", "backpressure", Reach::Types),
    ("shedding", "preemption", Reach::Prose),
    ("seat", "slot", Reach::Names),
    ("seated", "admitted", Reach::Prose),
    ("seating", "admission", Reach::Prose),
    ("newcomer", "admission", Reach::Prose),
    ("hear", "poll", Reach::Names),
    ("heard", "polled", Reach::Names),
    ("hearing", "poll, output", Reach::Names),
    ("told", "reported", Reach::Types),
    ("turns", "fair queue, schedule", Reach::Types),
    ("round", "step", Reach::Types),
    ("shelf", "registry", Reach::Names),
    ("visitor", "HTTP client", Reach::Names),
    ("entrance", "listener", Reach::Names),
    ("impatient", "timeout", Reach::Prose),
    ("patience", "timeout", Reach::Prose),
    ("written", "traced graph", Reach::Types),
    ("asked", "spec, requested", Reach::Types),
    ("basis", "snapshot key", Reach::Types),
    ("datum", "value", Reach::Prose),
    ("attempt", "try", Reach::Types),
    ("thoughts", "reasoning", Reach::Types),
    ("likelihood", "logprob", Reach::Prose),
    ("likelihoods", "logprobs", Reach::Prose),
    ("likeliest", "top logprobs", Reach::Prose),
    ("feeding", "prefill", Reach::Names),
    ("most", "max", Reach::Types),
    ("least", "min", Reach::Types),
    ("fewest", "min", Reach::Names),
    ("narrowest", "min", Reach::Names),
    ("unnoticed", "a name of what it bounds", Reach::Names),
    ("remembered", "state", Reach::Names),
    ("recalled", "k·S", Reach::Names),
    ("halves", "f16", Reach::Types),
    ("pinned", "prefetch, split-K", Reach::Types),
    ("folded", "two-phase, split-K", Reach::Types),
    ("brought", "rewritten", Reach::Names),
    ("apart", "diff", Reach::Types),
    ("alike", "same layout", Reach::Names),
    ("conversed", "chat prompt", Reach::Prose),
    ("asking", "client", Reach::Types),
    ("figures", "metrics", Reach::Types),
];

#[test]
fn names_and_prose_use_the_words_of_the_field() {
    let is_this = |file: &str| file.ends_with("tests/tidy/words.rs");
    let mut found = vec![];
    for (file, text) in sources(&["rs"]).into_iter().filter(|(file, _)| !is_this(file)) {
        found.extend(private_names(&file, &text));
    }
    for (file, text) in sources(&["rs", "comp", "glsl"]) {
        if !is_this(&file) {
            found.extend(private_prose(&file, &text, true));
        }
    }
    for (file, text) in documents() {
        found.extend(private_prose(&file, &text, false));
    }
    assert!(found.is_empty(), "words of a private dialect: {found:#?}");
}

/// The private words in the names that a source gives.
fn private_names(file: &str, text: &str) -> Vec<String> {
    let mut found = vec![];
    let mut is_test = file.contains("/tests/") || file.ends_with("/tests.rs");
    for (number, line) in text.lines().enumerate() {
        is_test |= line.contains("#[cfg(test)]") || line.contains("#[test]");
        for (name, is_function) in names_given(code(line)) {
            // Names of tests are sentences.
            if is_function && is_test {
                continue;
            }
            let words = words_of(name);
            for (word, instead, reach) in &PRIVATE_WORDS {
                let applies = !is_function || *reach != Reach::Types;
                if applies && words.iter().any(|part| part == word) {
                    found.push(format!("{file}:{}: `{name}` has {word:?}; say {instead}", number + 1));
                }
            }
        }
    }
    found
}

/// The private words in a document, or in the comments of a source.
fn private_prose(file: &str, text: &str, comments_only: bool) -> Vec<String> {
    let mut found = vec![];
    for (number, line) in text.lines().enumerate() {
        let prose = if comments_only { &line[code(line).len()..] } else { line };
        let words = words_of(prose);
        for (word, instead, _) in PRIVATE_WORDS.iter().filter(|(_, _, reach)| *reach == Reach::Prose) {
            if words.iter().any(|part| part == word) {
                found.push(format!("{file}:{}: {word:?}; say {instead}", number + 1));
            }
        }
    }
    found
}

/// The names that a line of Rust gives to items and flags, and whether each is a function's or a flag's.
fn names_given(line: &str) -> Vec<(&str, bool)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let name = |text: &str| text.len() - text.trim_start_matches(is_part).len();
    let mut names = vec![];
    let words: Vec<&str> = line.split_whitespace().collect();
    for pair in words.windows(2) {
        let is_item = matches!(
            pair[0],
            "struct" | "enum" | "trait" | "type" | "mod" | "const" | "static" | "union"
        );
        if is_item || pair[0] == "fn" {
            names.push((&pair[1][..name(pair[1])], pair[0] == "fn"));
        }
    }
    for rest in line.split("long = \"").skip(1) {
        names.push((&rest[..name(rest)], true));
    }
    names
}

/// The words of a name or a sentence, in lower case: of `MaxRows` and of `MAX_ROWS` `max` and `rows`.
fn words_of(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for letter in text.chars() {
        if !letter.is_alphanumeric() || letter.is_uppercase() && was_lower {
            words.push(String::new());
        }
        if letter.is_alphanumeric() {
            words.last_mut().expect("one").extend(letter.to_lowercase());
        }
        was_lower = letter.is_lowercase() || letter.is_numeric();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The documents of the repository, without the log of changes, with their texts.
fn documents() -> Vec<(String, String)> {
    let mut found = vec![];
    let mut folders = vec![root(), root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("readable folder") {
            let path = entry.expect("readable entry").path();
            if path.is_dir() && folder != root() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.file_name().expect("a name").to_string_lossy().into_owned();
                found.push((name, fs::read_to_string(&path).expect("UTF-8")));
            }
        }
    }
    found.retain(|(name, _)| name != "CHANGELOG.md");
    assert!(found.len() > 5, "the documents are not where they are looked for");
    found
}

#[test]
fn words_are_found_in_names_of_each_style() {
    assert_eq!(words_of("MaxRows"), ["max", "rows"]);
    assert_eq!(words_of("MAX_ROWS"), ["max", "rows"]);
    assert_eq!(words_of("a f16-row, here"), ["a", "f16", "row", "here"]);
    assert_eq!(names_given("pub(crate) fn heard(x: u8) {"), [("heard", true)]);
    assert_eq!(names_given("    const MOST_ROWS: usize = 1;"), [("MOST_ROWS", false)]);
    assert_eq!(names_given("#[arg(long = \"no-patience\")]"), [("no-patience", true)]);
}
