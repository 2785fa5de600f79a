//! The commands of a chat, which begin with a slash.

use std::path::PathBuf;

/// The help text of `/help`.
pub(super) const HELP: &str = "  /system [TEXT]   set or show the system message
  /clear           start over, keeping the system message
  /set             show the settings
  /set NAME VALUE  change a setting, such as temp 0.7, top-p 0.9, seed 1, max-tokens 200, on-full stop
  /set think       enable reasoning; /set nothink disables it
  /set nomarkdown  print Markdown as plain text; /set markdown renders it
  /ctx [N]         set the context length to N tokens, or show its use
  /regenerate      answer the last message again with another seed
  /save FILE       save the conversation as JSON, and the KV cache beside it
  /load FILE       load a saved conversation
  /stats           show tokens, speed and memory
  /help            show this list
  /exit            exit, like Ctrl-D
End a line with \\ to continue on the next line, or put a message of several lines between \"\"\".
Type a space before a message that begins with /. Ctrl-C stops a response.";

/// A chat command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChatCommand {
    /// Set or show the system message.
    System(Option<String>),
    /// Change a setting, or show all settings.
    Set(Option<(String, String)>),
    /// Enable or disable reasoning; `None` leaves it to the chat template.
    Think(Option<bool>),
    /// Render Markdown, or print it as plain text.
    Markdown(bool),
    /// Change the context length, or show it.
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
    /// Parses a command; `None` if the line is a message.
    ///
    /// # Errors
    /// If the command is unknown, or its arguments are wrong.
    pub fn parse(line: &str) -> Result<Option<Self>, String> {
        let Some(command) = line.strip_prefix('/') else {
            return Ok(None);
        };
        let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let rest = rest.trim();
        let file = || {
            if rest.is_empty() {
                Err(format!("/{name} needs a file name"))
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
                return Err(format!("/{name} takes no arguments"));
            }
            _ => Self::plain(name).ok_or_else(|| {
                format!("unknown command /{name}; /help lists the commands (type a space before the / to send it as a message)")
            })?,
        };
        Ok(Some(parsed))
    }

    /// Parses the arguments of `/set`.
    fn set(rest: &str) -> Result<Self, String> {
        // Ollama's syntax.
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

/// Parses a number of tokens.
fn tokens(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|tokens| *tokens > 0);
    number.ok_or_else(|| format!("not a number of tokens: {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_commands_from_messages() {
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
    fn accepts_setting_names_of_the_command_line_and_of_other_programs() {
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
    fn rejects_unknown_commands_with_a_hint() {
        assert!(ChatCommand::parse("/dance").unwrap_err().contains("/help"));
        assert!(ChatCommand::parse("/save").unwrap_err().contains("file name"));
        assert!(ChatCommand::parse("/clear all").unwrap_err().contains("no arguments"));
    }

    #[test]
    fn commands_in_the_help_exist() {
        let names = HELP.lines().filter_map(|line| line.strip_prefix("  /"));
        let names: Vec<&str> = names.map(|line| line.split_whitespace().next().unwrap()).collect();
        assert_eq!(names.len(), 13);
        for name in names {
            assert!(matches!(
                ChatCommand::parse(&format!("/{name} x")),
                Ok(Some(_)) | Err(_)
            ));
            assert!(!ChatCommand::parse(&format!("/{name}")).is_err_and(|error| error.contains("unknown command")));
        }
    }
}
