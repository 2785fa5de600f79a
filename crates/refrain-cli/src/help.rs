//! How the program's own help is laid out.

use clap::Command;

/// The commands, by who needs them.
const GROUPS: [(&str, &[&str]); 3] = [
    (
        "For everybody",
        &[
            "run",
            "chat",
            "serve",
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
    ("To measure", &["bench", "eval", "explain", "soak"]),
    ("To develop", &["tokenize", "template", "logits", "plan-check", "synth"]),
];

/// Columns of a line on terminals that are wider.
const WIDTH: usize = 100;

/// The command line's help with its commands in groups, and lines that end at a word.
pub(crate) fn laid_out(command: Command) -> Command {
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
        .after_help("`refrain COMMAND --help` tells a command's options and has examples.")
        .max_term_width(WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_stands_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let command = crate::command();
        let mut all: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        grouped.sort_unstable();
        all.sort_unstable();
        assert_eq!(grouped, all);
    }

    /// What stands under a heading in the help of commands that answer; everything else stands under none.
    const HEADINGS: [(&str, &[&str]); 6] = [
        (
            "Output",
            &[
                "json",
                "json-schema",
                "grammar",
                "max-tokens",
                "stop",
                "thoughts",
                "no-markdown",
            ],
        ),
        ("Context", &["ctx", "load-state", "save-state", "on-full"]),
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
        ("To measure", &["threads"]),
        ("To develop", &["verify", "inject-fault", "freeze"]),
    ];
    /// Those of a server.
    const ENGINE: (&str, &[&str]) = (
        "Engine",
        &["ctx", "parallel", "queue", "memory", "no-prefix-cache", "deterministic"],
    );
    /// The one that other commands have too.
    const DECODING: &str = "Decoding";

    #[test]
    fn every_option_of_every_command_stands_under_what_it_is_about() {
        let mut seen = 0;
        for command in crate::command().get_subcommands() {
            let answers = ["run", "chat"].contains(&command.get_name());
            for option in command.get_arguments() {
                let Some(name) = option.get_long() else { continue };
                let expected = HEADINGS.iter().find(|(_, options)| options.contains(&name));
                let expected = expected.filter(|(heading, _)| answers || *heading == DECODING);
                let serves = command.get_name() == "serve" && ENGINE.1.contains(&name);
                let expected = if serves { Some(&ENGINE) } else { expected };
                let found = option.get_help_heading();
                let stands = match expected {
                    Some((heading, _)) => found.is_some_and(|found| found.starts_with(heading)),
                    None => found.is_none(),
                };
                assert!(stands, "{} --{name}: {found:?}", command.get_name());
                seen += 1;
            }
        }
        assert!(seen > 80, "{seen} options");
    }
}
