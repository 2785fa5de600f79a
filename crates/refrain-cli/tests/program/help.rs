//! Contents and layout of `--help`.

use crate::examples::commands;
use crate::support::{Outcome, refrain, run};

const GLOBAL: [&str; 6] = ["--device", "--disable", "--tuning", "--offline", "--quiet", "--verbose"];

/// The options under each heading of a help text.
fn headings(help: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in help.lines() {
        if let Some(heading) = line.strip_suffix(':').filter(|line| !line.starts_with(' ')) {
            found.push((heading, Vec::new()));
        }
        let words = line.trim_start().split([' ', ',', '=', '[']);
        let option = line.starts_with("  ") && line.trim_start().starts_with('-');
        if let Some((_, options)) = found.last_mut().filter(|_| option) {
            options.extend(words.filter(|word| word.starts_with("--") && word.len() > 2).take(1));
        }
    }
    found
}

#[test]
fn global_options_have_their_own_section() {
    for command in commands() {
        for flag in ["-h", "--help"] {
            let help = run(&[&command, flag]).done();
            let found = headings(&help);
            let (last, options) = found
                .iter()
                .rfind(|(_, options)| !options.is_empty())
                .unwrap_or_else(|| panic!("{help}"));
            assert_eq!(
                (*last, &options[..]),
                ("Global options", &GLOBAL[..]),
                "{command}: {help}"
            );
            let others = found.iter().filter(|(heading, _)| heading != last);
            for (heading, options) in others {
                assert!(
                    !options.iter().any(|option| GLOBAL.contains(option)),
                    "{command}: {heading}"
                );
            }
        }
    }
}

#[test]
fn options_are_under_the_expected_heading() {
    let help = run(&["run", "-h"]).done();
    let found = headings(&help);
    let heading = |option: &str| {
        let mut all = found.iter().filter(|(_, options)| options.contains(&option));
        all.next().unwrap_or_else(|| panic!("no {option} in {help}")).0
    };
    for option in ["--temp", "--top-k", "--seed"] {
        assert!(heading(option).starts_with("Sampling"), "{option}: {}", heading(option));
    }
    for option in ["--mode", "--tokens-per-submit", "--json"] {
        assert!(
            !heading(option).starts_with("Sampling"),
            "{option}: {}",
            heading(option)
        );
    }
    let help = run(&["bench", "-h"]).done();
    for (heading, options) in headings(&help) {
        if heading != "Decoding" {
            assert!(!options.contains(&"--mode"), "{heading}: {help}");
        }
    }
}

#[test]
fn manual_pages_keep_the_headings() {
    let folder = tempfile::tempdir().unwrap();
    run(&["man", folder.path().to_str().unwrap()]).done();
    let page = std::fs::read_to_string(folder.path().join("refrain-run.1")).unwrap();
    let global = page.split(".SH \"GLOBAL OPTIONS\"").nth(1).expect("a section");
    let section = global.split(".SH").next().unwrap();
    for option in GLOBAL {
        assert!(section.contains(&option.replace('-', "\\-")), "{option}: {section}");
    }
    assert!(!section.contains("temp"), "{section}");
}

#[test]
fn wraps_lines_at_words_within_the_terminal() {
    for (columns, most) in [("80", 80), ("", 100), ("200", 100)] {
        for command in ["run", "doctor", "pull", "explain"] {
            let output = refrain(&[command, "--help"]).env("COLUMNS", columns).output().unwrap();
            let help = Outcome::from(output).done();
            let long = help.lines().find(|line| line.chars().count() > most);
            assert_eq!(long, None, "{command}, {most} columns");
        }
    }
}

#[test]
fn groups_commands() {
    let help = run(&["--help"]).done();
    let at = |word: &str| help.find(word).unwrap_or_else(|| panic!("no {word:?} in {help}"));
    let order = [
        "Usage: refrain [OPTIONS] <COMMAND>",
        "Commands:\n",
        "  run ",
        "  list ",
        "[also: ls]",
        "Benchmarks and evaluation:\n",
        "  bench ",
        "Development:\n",
        "  plan-check ",
        "Options:\n",
        "--device",
        "refrain COMMAND --help",
    ];
    assert!(order.windows(2).all(|pair| at(pair[0]) < at(pair[1])), "{help}");
    assert_eq!(run(&["-h"]).done().matches("Benchmarks and evaluation:").count(), 1);
}
