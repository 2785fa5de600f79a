//! Tests of rendered text on an emulated terminal, for any split of the input.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

const SIZE: TerminalSize = TerminalSize { lines: 60, columns: 40 };

/// The screen of a terminal of this size after writing the pieces of a text.
fn screen<'a>(pieces: impl IntoIterator<Item = &'a str>, size: TerminalSize) -> vt100::Screen {
    let mut terminal = vt100::Parser::new(size.lines as u16, size.columns as u16, 0);
    let mut stream = MarkdownStream::new();
    let mut process = |written: String| terminal.process(written.replace('\n', "\r\n").as_bytes());
    for piece in pieces {
        process(stream.push(piece, size));
    }
    process(stream.finish(size));
    terminal.screen().clone()
}

/// The characters shown for a text written at once.
fn shown(text: &str) -> String {
    screen([text], SIZE).contents()
}

/// A text for each construct, and what a terminal of 40 columns shows.
const CONSTRUCTS: [(&str, &str); 25] = [
    ("plain words\n", "plain words"),
    (
        "a line\nand another\n\n\n\nand a paragraph",
        "a line\nand another\n\nand a paragraph",
    ),
    (
        "# One #\ntext\n\n### Three\n\nTitle\n=====\nx",
        "One\ntext\n\nThree\n\nTitle\nx",
    ),
    (
        "*a* **b c** ***d*** ~~e~~ 2 ** 3 * 4 snake_case_name",
        "a b c d e 2 ** 3 * 4 snake_case_name",
    ),
    ("`let *x* = 1;` and ``a`b``", "let *x* = 1; and a`b"),
    (
        "so:\n```rust\nfn main() {\n\n    // **no** mark\n}\n```\nafter",
        "so:\nfn main() {\n\n    // **no** mark\n}\nafter",
    ),
    ("~~~\n```\n~~~~\n\nafter", "```\n\nafter"),
    ("never closed:\n\n```\ncode", "never closed:\n\ncode"),
    (
        "text\n\n    indented\n      more\n\nafter",
        "text\n\nindented\n  more\n\nafter",
    ),
    ("- a\n- b\n  - c\n    more\n- d", "• a\n• b\n  • c\n    more\n• d"),
    (
        "Say:\n\n1. one\n2. two\n\n10. ten\n    - deep\n3) other",
        "Say:\n\n1. one\n2. two\n\n10. ten\n    • deep\n3) other",
    ),
    (
        "1. a:\n   ```sh\n   ls\n     -l\n   ```\n   then\n\n   last\n2. b",
        "1. a:\n   ls\n     -l\n   then\n\n   last\n2. b",
    ),
    ("- [ ] open\n- [x] done\n-\n- end", "• [ ] open\n• [x] done\n•\n• end"),
    (
        "> quoted *text*\n>\n> - item\n> ```\n> code\n> ```\n\nafter",
        "│ quoted text\n│\n│ • item\n│ code\n\nafter",
    ),
    (
        "| name | n |\n|:--|--:|\n| `a` | 1 |\n| **bb** c | 200 |\n\nafter",
        "name │   n\n─────┼────\na    │   1\nbb c │ 200\n\nafter",
    ),
    (
        "|a|b|\n|-|-|\n|a cell with many words in it|another such cell|\nx",
        "|a|b|\n|-|-|\n|a cell with many words in it|another\nsuch cell|\nx",
    ),
    ("|a|b|\n|-|-|\n|c|d|e|", "|a|b|\n|-|-|\n|c|d|e|"),
    (
        "[text](http://a.b/c) <http://d.e> [http://f.g](http://f.g) ![](x.png)",
        "text (http://a.b/c) http://d.e\nhttp://f.g x.png",
    ),
    (
        "[1]: http://a.b\n[^1]: A note\n\n[text][1]",
        "[1]: http://a.b\n[^1]: A note\n\n[text][1]",
    ),
    (
        "a <b>bold</b> &amp; <br>\n\n<div>\n  <p>x\n</div>\n\ny",
        "a <b>bold</b> & <br>\n\n<div>\n  <p>x\n</div>\n\ny",
    ),
    (
        "\\(a_1*b*c\\), $x_2*y*z$ for $5\n\n\\[\n- *a* \\\\\n\\]\n\n$$\na*b*c\n$$",
        "\\(a_1*b*c\\), $x_2*y*z$ for $5\n\n\\[\n- *a* \\\\\n\\]\n\n$$\na*b*c\n$$",
    ),
    ("one\n\n---\ntwo", "one\n\n───────────────────────────────────────\ntwo"),
    (
        "words that go on over the end of a row, **bold ones too**, and a-very-long-word-that-no-row-has-room-for-at-all",
        "words that go on over the end of a row,\nbold ones too, and\na-very-long-word-that-no-row-has-room-f\nor-at-all",
    ),
    (
        "- 漢字は幅が二つ分あるので、行の終わりで折り返されます\n- e\u{301} 😀",
        "• 漢字は幅が二つ分あるので、行の終わり\n  で折り返されます\n• e\u{301} 😀",
    ),
    (
        "an \\*escaped\\* mark, a \\ and \u{fdd5}.",
        "an *escaped* mark, a \\ and .",
    ),
];

#[test]
fn renders_each_construct() {
    for (text, expected) in CONSTRUCTS {
        assert_eq!(shown(text), expected, "{text:?}");
    }
}

#[test]
fn screen_does_not_depend_on_how_text_is_split() {
    let all = CONSTRUCTS.map(|(text, _)| text).join("\n\n");
    let texts = CONSTRUCTS.iter().map(|(text, _)| *text).chain([&all[..]]);
    for text in texts {
        for columns in [40, 9] {
            // Tall enough that nothing scrolls away.
            let size = TerminalSize { lines: 800, columns };
            let whole = screen([text], size).contents_formatted();
            let one_by_one = screen(text.split_inclusive(|_| true), size);
            assert_eq!(one_by_one.contents_formatted(), whole, "{text:?} by characters");
            let cuts = text.char_indices().map(|(at, _)| at);
            for cut in cuts.filter(|_| text.len() < 1000) {
                let (first, second) = text.split_at(cut);
                let found = screen([first, second], size);
                assert_eq!(found.contents_formatted(), whole, "{first:?} and {second:?}");
            }
        }
    }
}

#[test]
fn applies_styles() {
    let screen = screen(["# H\n\n**b** *i* `c` [l](u) p\n\n|h|\n|-|\n|c|\n\n```\nx\n```"], SIZE);
    let cell = |row, column| screen.cell(row, column).unwrap();
    assert!(cell(0, 0).bold() && cell(0, 0).underline());
    assert!(cell(2, 0).bold() && !cell(2, 0).italic());
    assert!(cell(2, 2).italic() && !cell(2, 2).bold());
    assert_eq!(
        [4, 2].map(|column| cell(2, column).fgcolor()),
        [vt100::Color::Idx(6), vt100::Color::Default]
    );
    assert!(cell(2, 6).underline() && cell(2, 9).dim());
    assert_eq!(cell(2, 12).contents(), "p");
    assert!(cell(4, 0).bold() && !cell(6, 0).bold());
    assert_eq!(cell(8, 0).fgcolor(), vt100::Color::Idx(6));
}

#[test]
fn words_appear_immediately_and_stay_when_markup_closes() {
    let mut terminal = vt100::Parser::new(9, 40, 0);
    let mut stream = MarkdownStream::new();
    let mut seen = vec![];
    for piece in [
        "Some **bo",
        "ld wo",
        "rds** and",
        " `co",
        "de",
        "`",
        " on",
        "e\n- ",
        "item",
    ] {
        terminal.process(stream.push(piece, SIZE).replace('\n', "\r\n").as_bytes());
        seen.push(terminal.screen().contents());
    }
    let expected = [
        "Some bo",
        "Some bold wo",
        "Some bold words and",
        "Some bold words and co",
        "Some bold words and code",
        "Some bold words and code",
        "Some bold words and code on",
        "Some bold words and code one",
        "Some bold words and code one\n• item",
    ];
    assert_eq!(seen, expected);
}

#[test]
fn escapes_terminal_control_sequences() {
    let text = "\x1b[31mred &#27;[2J `\x1b]0;t\x07` \u{202e}\n\n```\n\x1b[5A\r\n```\n\n|\x1b[1m|\n|-|\n\n[l](\x1b[7m)";
    for pieces in [vec![text], text.split_inclusive(|_| true).collect()] {
        let mut stream = MarkdownStream::new();
        let mut written: String = pieces.into_iter().map(|piece| stream.push(piece, SIZE)).collect();
        written += &stream.finish(SIZE);
        assert!(written.contains(r"\u{1b}[31mred \u{1b}[2J"), "{written:?}");
        assert!(!written.contains(['\x07', '\u{202e}']));
        for sequence in written.split('\x1b').skip(1) {
            let end = sequence.find(|c: char| c.is_ascii_alphabetic()).unwrap();
            let own = ["[0m", "[2m", "[4m", "[36m", "[1m", "[J"].contains(&&sequence[..=end]);
            assert!(own || sequence[..=end].ends_with('A'), "{sequence:?}");
        }
        let moves = written.matches("\x1b[5A").count();
        assert_eq!(moves, 0, "{written:?}");
    }
}

/// Numbered words, some of them in bold.
fn numbered(count: usize, between: &str) -> String {
    let mark = |n| if n % 7 == 0 { "**" } else { "" };
    let words = (0..count).map(|n| format!("{}w{n}{}", mark(n), mark(n)));
    words.collect::<Vec<_>>().join(between)
}

/// All lines ever shown, including the scrollback.
fn history(pieces: &[&str], sizes: impl Fn(usize) -> TerminalSize) -> String {
    let mut terminal = vt100::Parser::new(sizes(0).lines as u16, sizes(0).columns as u16, 100_000);
    let mut stream = MarkdownStream::new();
    for (n, piece) in pieces.iter().enumerate() {
        let size = sizes(n);
        let size_in_cells = (size.lines as u16, size.columns as u16);
        if terminal.screen().size() != size_in_cells {
            terminal.screen_mut().set_size(size_in_cells.0, size_in_cells.1);
        }
        terminal.process(stream.push(piece, size).replace('\n', "\r\n").as_bytes());
    }
    terminal.process(stream.finish(sizes(pieces.len())).replace('\n', "\r\n").as_bytes());
    let screen = terminal.screen_mut();
    screen.set_scrollback(usize::MAX);
    let (lines, columns) = screen.size();
    let mut all = vec![];
    let mut above = screen.scrollback();
    while above > 0 {
        screen.set_scrollback(above);
        all.extend(screen.rows(0, columns).take(above.min(lines.into())));
        above = above.saturating_sub(lines.into());
    }
    screen.set_scrollback(0);
    all.extend(screen.rows(0, columns));
    all.join("\n")
}

#[test]
fn shows_everything_once_on_small_or_resized_terminals() {
    let table: String = (0..60)
        .map(|n| format!("| r{n} | {} |\n", "x".repeat(n % 20)))
        .collect();
    let code: String = (0..60).map(|n| format!("   l{n};\n")).collect();
    let texts = [
        numbered(900, " "),
        numbered(300, "\n- "),
        format!("|h|i|\n|-|-|\n{table}\nend"),
        format!("1. a\n   ```\n{code}   ```\n   b\n2. c"),
        format!(
            "**{}**",
            (0..300).map(|n| format!("w{n}")).collect::<Vec<_>>().join(" ")
        ),
    ];
    for text in &texts {
        let pieces: Vec<&str> = text.split_inclusive([' ', 'w', '\n']).collect();
        for resized in [false, true] {
            let found = history(&pieces, |n| TerminalSize {
                lines: 8,
                columns: if resized && n > pieces.len() / 2 { 31 } else { 30 },
            });
            let words = |text: &str| -> Vec<String> {
                let words = text.split(|c: char| !c.is_ascii_alphanumeric());
                let known = |word: &&str| {
                    word.starts_with(|c: char| c.is_ascii_lowercase())
                        && word.len() > 1
                        && word[1..].bytes().all(|b| b.is_ascii_digit())
                };
                words.filter(known).map(str::to_owned).collect()
            };
            // A word may be broken in verbatim text.
            let joined = found.replace('\n', "");
            for word in words(text) {
                assert!(joined.contains(&word), "{word} of {text:?} in {found}");
            }
            let mut seen = words(&found);
            let shown = seen.len();
            seen.dedup();
            assert_eq!(seen.len(), shown, "twice in {found}");
            assert!(shown <= words(text).len() + 40, "{shown} in {found}");
        }
    }
}

#[test]
fn redrawing_costs_the_same_for_long_responses() {
    if !refrain_testing::drawn(6) {
        return;
    }
    const PIECES: usize = 6000;
    let units = [
        "word ", "\\( ", "**a ", "[", "`", "> ", "- ", "\n", "|", "| a\n", "```\nx\n", "    x\n", "1. a\n",
    ];
    for unit in refrain_testing::sample(units, 4) {
        let mut stream = MarkdownStream::new();
        let mut written = 0;
        for _ in 0..PIECES {
            written += stream.push(unit, SIZE).len();
            assert!(stream.text.len() <= MAX_REDRAWN_BYTES, "{unit:?}");
        }
        assert!(written < 30 * PIECES * unit.len(), "{unit:?}: {written} bytes");
    }
}

/// Fragments that are combined in random order.
const PARTS: [&str; 40] = [
    "a",
    "word ",
    "\n",
    "\n\n",
    " ",
    "  ",
    "    ",
    "- ",
    "1. ",
    "> ",
    "```",
    "```rs\n",
    "~~~",
    "`",
    "**",
    "*",
    "_",
    "|",
    "|-|-|\n",
    "| a | b |\n",
    "# ",
    "===\n",
    "---\n",
    "[",
    "]",
    "](x)",
    "]: u",
    "\\(",
    "\\)",
    "\\[",
    "\\]",
    "$$",
    "$",
    "<b>",
    "<div>\n",
    "\t",
    "漢",
    "&#27;",
    "\\",
    "e\u{301}",
];

proptest! {
    #[test]
    fn random_markup_loses_no_text_and_does_not_depend_on_splits(
        parts in vec(select(&PARTS[..]), 0..30),
        columns in select(&[40, 9, 3][..]),
        sizes in vec((1..5usize, 2..14usize), 1..9),
    ) {
        let text = parts.concat();
        let size = TerminalSize { lines: 120, columns };
        let whole = screen([&text[..]], size);
        let one_by_one = screen(text.split_inclusive(|_| true), size);
        prop_assert_eq!(one_by_one.contents_formatted(), whole.contents_formatted());
        let mut stream = MarkdownStream::new();
        let mut written = String::new();
        for (part, (lines, columns)) in parts.iter().zip(sizes.iter().copied().cycle()) {
            written += &stream.push(part, TerminalSize { lines, columns });
        }
        written += &stream.finish(size);
        // The language of a code block is not shown.
        if !["``", "~~"].iter().any(|mark| text.contains(mark)) {
            let count = |text: &str| text.matches('漢').count();
            prop_assert_eq!(count(&whole.contents()), count(&text));
            prop_assert!(count(&written) >= count(&text));
        }
    }
}
