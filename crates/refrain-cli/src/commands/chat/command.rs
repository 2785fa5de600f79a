//! What begins with a slash.

use std::path::PathBuf;

/// What commands there are, for people.
pub(super) const HELP: &str = "  /system [TEXT]   set the system message, or show it
  /clear           begin the conversation anew; the system message stays
  /set             show the settings
  /set NAME VALUE  change one, such as temp 0.7, top-p 0.9, seed 1, max-tokens 200, on-full stop
  /set think       let the model think before it answers; /set nothink: not
  /set nomarkdown  write answers as the model has them; /set markdown: as they are meant
  /ctx [N]         make room for N tokens, or show how many there are and are taken
  /regenerate      answer the last message again, with other random numbers
  /save FILE       write the conversation as JSON, and beside it what was computed
  /load FILE       go on with a conversation that was saved
  /stats           tokens, speed and memory
  /help            this list
  /exit            leave, as Ctrl-D does
A line that ends with \\ goes on in the next; what stands between lines of \"\"\" is one message.
A message that begins with / is typed with a space before it. Ctrl-C stops an answer.";

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChatCommand {
    /// Set the system message, or show it.
    System(Option<String>),
    /// Change a setting, or show all.
    Set(Option<(String, String)>),
    /// Let the model think, not think, or do as its template has it.
    Think(Option<bool>),
    /// Draw the markdown of answers, or write it as it is.
    Markdown(bool),
    /// Change the length of the context, or show it.
    Context(Option<usize>),
    Clear,
    Regenerate,
    Save(PathBuf),
    Load(PathBuf),
    Stats,
    Help,
    Exit,
}

impl ChatCommand {
    /// The command that a line gives; `None` if it is a message.
    ///
    /// # Errors
    /// If it begins like a command and is none, or lacks what it needs.
    pub fn parse(line: &str) -> Result<Option<Self>, String> {
        let Some(command) = line.strip_prefix('/') else {
            return Ok(None);
        };
        let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let rest = rest.trim();
        let file = || {
            if rest.is_empty() {
                Err(format!("/{name} needs the name of a file"))
            } else {
                Ok(PathBuf::from(rest))
            }
        };
        let parsed = match name {
            "system" => Self::System((!rest.is_empty()).then(|| rest.to_owned())),
            "set" => return Self::set(rest).map(Some),
            "ctx" => Self::Context((!rest.is_empty()).then(|| tokens(rest)).transpose()?),
            "save" => Self::Save(file()?),
            "load" => Self::Load(file()?),
            _ if !rest.is_empty() && Self::plain(name).is_some() => {
                return Err(format!("/{name} takes nothing after it"));
            }
            _ => Self::plain(name).ok_or_else(|| {
                format!("there is no command /{name}; /help lists them (a space before the / makes it a message)")
            })?,
        };
        Ok(Some(parsed))
    }

    /// What `/set` and what stands behind it mean.
    fn set(rest: &str) -> Result<Self, String> {
        // As other programs want it.
        let rest = rest.strip_prefix("parameter ").unwrap_or(rest).trim();
        let (name, value) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let (name, value) = (name.trim_start_matches('-').replace('_', "-"), value.trim());
        Ok(match (name.as_str(), value) {
            ("", _) => Self::Set(None),
            ("think", "" | "true" | "on") => Self::Think(Some(true)),
            ("think", "false" | "off") | ("nothink" | "no-think", "") => Self::Think(Some(false)),
            ("think", "auto") => Self::Think(None),
            ("think", _) => return Err("/set think takes on, off or auto".to_owned()),
            ("markdown", "" | "true" | "on") => Self::Markdown(true),
            ("markdown", "false" | "off") | ("nomarkdown" | "no-markdown", "") => Self::Markdown(false),
            ("markdown", _) => return Err("/set markdown takes on or off".to_owned()),
            ("system", text) => Self::System((!text.is_empty()).then(|| text.to_owned())),
            ("ctx" | "num-ctx", value) => Self::Context(Some(tokens(value)?)),
            (_, "") => return Err(format!("/set {name} needs a value")),
            _ => Self::Set(Some((name, value.to_owned()))),
        })
    }

    /// A command without arguments.
    fn plain(name: &str) -> Option<Self> {
        Some(match name {
            "clear" => Self::Clear,
            "regenerate" => Self::Regenerate,
            "stats" => Self::Stats,
            "help" | "?" => Self::Help,
            "exit" | "quit" | "bye" => Self::Exit,
            _ => return None,
        })
    }
}

/// A number of tokens.
fn tokens(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|tokens| *tokens > 0);
    number.ok_or_else(|| format!("{text:?} is no number of tokens"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_from_messages() {
        assert_eq!(ChatCommand::parse("hello /clear"), Ok(None));
        assert_eq!(ChatCommand::parse(" /etc/fstab is a file"), Ok(None));
        assert_eq!(ChatCommand::parse("/clear "), Ok(Some(ChatCommand::Clear)));
        assert_eq!(
            ChatCommand::parse("/save my chat.json"),
            Ok(Some(ChatCommand::Save("my chat.json".into())))
        );
        let system = ChatCommand::System(Some("Be brief.\nAnd kind.".to_owned()));
        assert_eq!(ChatCommand::parse("/system Be brief.\nAnd kind."), Ok(Some(system)));
        assert_eq!(ChatCommand::parse("/system"), Ok(Some(ChatCommand::System(None))));
    }

    #[test]
    fn settings_are_named_as_on_the_command_line_or_as_elsewhere() {
        let set = |line| ChatCommand::parse(line).unwrap().unwrap();
        let temp = ChatCommand::Set(Some(("temp".to_owned(), "0.7".to_owned())));
        for line in ["/set temp 0.7", "/set --temp  0.7 ", "/set parameter temp 0.7"] {
            assert_eq!(set(line), temp, "{line}");
        }
        assert_eq!(
            set("/set top_k 5"),
            ChatCommand::Set(Some(("top-k".to_owned(), "5".to_owned())))
        );
        assert_eq!(set("/set"), ChatCommand::Set(None));
        assert_eq!(set("/set think"), ChatCommand::Think(Some(true)));
        assert_eq!(set("/set nothink"), ChatCommand::Think(Some(false)));
        assert_eq!(set("/set markdown off"), ChatCommand::Markdown(false));
        assert_eq!(set("/set nomarkdown"), ChatCommand::Markdown(false));
        assert_eq!(set("/set markdown"), ChatCommand::Markdown(true));
        assert_eq!(set("/set think auto"), ChatCommand::Think(None));
        assert_eq!(set("/set num_ctx 8192"), ChatCommand::Context(Some(8192)));
        assert_eq!(set("/ctx 8192"), ChatCommand::Context(Some(8192)));
        assert_eq!(set("/ctx"), ChatCommand::Context(None));
        for wrong in [
            "/set temp",
            "/set think hard",
            "/set markdown nice",
            "/ctx 0",
            "/ctx many",
            "/set ctx",
        ] {
            assert!(ChatCommand::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_command_is_refused_with_what_to_do() {
        assert!(ChatCommand::parse("/dance").unwrap_err().contains("/help"));
        assert!(ChatCommand::parse("/save").unwrap_err().contains("name of a file"));
        assert!(
            ChatCommand::parse("/clear all")
                .unwrap_err()
                .contains("nothing after it")
        );
    }

    #[test]
    fn every_command_in_the_help_is_one() {
        let names = HELP.lines().filter_map(|line| line.strip_prefix("  /"));
        let names: Vec<&str> = names.map(|line| line.split_whitespace().next().unwrap()).collect();
        assert_eq!(names.len(), 13);
        for name in names {
            assert!(matches!(
                ChatCommand::parse(&format!("/{name} x")),
                Ok(Some(_)) | Err(_)
            ));
            assert!(!ChatCommand::parse(&format!("/{name}")).is_err_and(|error| error.contains("no command")));
        }
    }
}
