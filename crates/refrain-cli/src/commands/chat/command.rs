//! What begins with a slash.

use std::path::PathBuf;

/// What commands there are, for people.
pub(super) const HELP: &str = "  /system [TEXT]   set the system message, or show it
  /clear           begin the conversation anew; the system message stays
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
pub(super) enum Command {
    /// Set the system message, or show it.
    System(Option<String>),
    Clear,
    Regenerate,
    Save(PathBuf),
    Load(PathBuf),
    Stats,
    Help,
    Exit,
}

impl Command {
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
        let file = || match rest.is_empty() {
            true => Err(format!("/{name} needs the name of a file")),
            false => Ok(PathBuf::from(rest)),
        };
        let parsed = match name {
            "system" => Self::System((!rest.is_empty()).then(|| rest.to_owned())),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_from_messages() {
        assert_eq!(Command::parse("hello /clear"), Ok(None));
        assert_eq!(Command::parse(" /etc/fstab is a file"), Ok(None));
        assert_eq!(Command::parse("/clear "), Ok(Some(Command::Clear)));
        assert_eq!(
            Command::parse("/save my chat.json"),
            Ok(Some(Command::Save("my chat.json".into())))
        );
        let system = Command::System(Some("Be brief.\nAnd kind.".to_owned()));
        assert_eq!(Command::parse("/system Be brief.\nAnd kind."), Ok(Some(system)));
        assert_eq!(Command::parse("/system"), Ok(Some(Command::System(None))));
    }

    #[test]
    fn what_is_no_command_is_refused_with_what_to_do() {
        assert!(Command::parse("/dance").unwrap_err().contains("/help"));
        assert!(Command::parse("/save").unwrap_err().contains("name of a file"));
        assert!(Command::parse("/clear all").unwrap_err().contains("nothing after it"));
    }

    #[test]
    fn every_command_in_the_help_is_one() {
        let names = HELP.lines().filter_map(|line| line.strip_prefix("  /"));
        let names: Vec<&str> = names.map(|line| line.split_whitespace().next().unwrap()).collect();
        assert_eq!(names.len(), 8);
        for name in names {
            assert!(matches!(Command::parse(&format!("/{name} x")), Ok(Some(_)) | Err(_)));
            assert!(!Command::parse(&format!("/{name}")).is_err_and(|error| error.contains("no command")));
        }
    }
}
