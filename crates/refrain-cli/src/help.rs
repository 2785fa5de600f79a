//! How the program's own help is laid out.

use clap::Command;

/// The commands, by who needs them.
const GROUPS: [(&str, &[&str]); 3] = [
    (
        "For everybody",
        &[
            "run",
            "chat",
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
            let aliases = match aliases.is_empty() {
                true => String::new(),
                false => format!(" [also: {}]", aliases.join(", ")),
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
}
