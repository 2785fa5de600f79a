//! The layout of `--help`: commands in groups, options under headings, lines wrapped at words.

use clap::Command;

/// The groups of commands in `refrain --help`.
const GROUPS: [(&str, &[&str]); 3] = [
    (
        "Commands",
        &[
            "run",
            "chat",
            "serve",
            "launch",
            "ps",
            "stop",
            "top",
            "pull",
            "list",
            "rm",
            "inspect",
            "convert",
            "devices",
            "doctor",
            "completions",
            "man",
        ],
    ),
    ("Benchmarks and evaluation", &["bench", "eval", "explain", "soak"]),
    (
        "Development",
        &["tokenize", "template", "logits", "plan-check", "synth"],
    ),
];

/// Maximum line length of help texts, in columns.
const MAX_WIDTH: usize = 100;

/// Lists the commands in groups and wraps lines at [`MAX_WIDTH`] columns.
pub(crate) fn with_layout(command: Command) -> Command {
    let styles = command.get_styles();
    let (header, literal) = (*styles.get_header(), *styles.get_literal());
    let width = command.get_subcommands().map(|command| command.get_name().len()).max();
    let width = width.unwrap_or(0);
    let mut groups = String::new();
    for (title, names) in GROUPS {
        groups += &format!("{header}{title}:{header:#}\n");
        for command in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = command.get_about().map_or(String::new(), ToString::to_string);
            let aliases: Vec<&str> = command.get_visible_aliases().collect();
            let aliases = if aliases.is_empty() {
                String::new()
            } else {
                format!(" [also: {}]", aliases.join(", "))
            };
            let name = command.get_name();
            groups += &format!("  {literal}{name:<width$}{literal:#}  {about}{aliases}\n");
        }
        groups.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    command
        .help_template(template)
        .after_help("Run `refrain COMMAND --help` for a command's options and examples.")
        .max_term_width(MAX_WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_exactly_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let command = crate::command();
        let mut all: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        grouped.sort_unstable();
        all.sort_unstable();
        assert_eq!(grouped, all);
    }

    /// Options under each heading in the help of `run` and `chat`. All other options have no heading.
    const HEADINGS: [(&str, &[&str]); 6] = [
        (
            "Output",
            &[
                "json",
                "json-schema",
                "grammar",
                "max-tokens",
                "stop",
                "reasoning",
                "no-markdown",
            ],
        ),
        (
            "Context",
            &[
                "ctx",
                "kv-type",
                "cache-type-k",
                "cache-type-v",
                "load-state",
                "save-state",
                "on-full",
            ],
        ),
        (
            "Sampling",
            &[
                "temp",
                "top-k",
                "top-p",
                "min-p",
                "repeat-penalty",
                "presence-penalty",
                "frequency-penalty",
                "repeat-last-n",
                "logit-bias",
                "seed",
            ],
        ),
        (DECODING, &["mode", "tokens-per-submit"]),
        ("Performance", &["threads", "speculate", "draft"]),
        ("Debugging", &["verify", "inject-fault", "freeze"]),
    ];
    /// Options under the heading `Engine` of `serve`.
    const ENGINE: (&str, &[&str]) = (
        "Engine",
        &[
            "ctx",
            "parallel",
            "queue",
            "memory",
            "kv-type",
            "cache-type-k",
            "cache-type-v",
            "target-gap",
            "speculate",
            "draft",
            "no-prefix-cache",
            "prefix-cache-dir",
            "prefix-cache-gib",
            "deterministic",
        ],
    );
    /// The only heading that other commands share.
    const DECODING: &str = "Decoding";

    #[test]
    fn options_are_under_the_expected_heading() {
        let mut seen = 0;
        for command in crate::command().get_subcommands() {
            let generates = ["run", "chat"].contains(&command.get_name());
            for option in command.get_arguments() {
                let Some(name) = option.get_long() else { continue };
                let expected = HEADINGS.iter().find(|(_, options)| options.contains(&name));
                let expected = expected.filter(|(heading, _)| generates || *heading == DECODING);
                let serves = command.get_name() == "serve" && ENGINE.1.contains(&name);
                let expected = if serves { Some(&ENGINE) } else { expected };
                let found = option.get_help_heading();
                let matches = match expected {
                    Some((heading, _)) => found.is_some_and(|found| found.starts_with(heading)),
                    None => found.is_none(),
                };
                assert!(matches, "{} --{name}: {found:?}", command.get_name());
                seen += 1;
            }
        }
        assert!(seen > 80, "{seen} options");
    }
}
