//! The prompt of `refrain run`, from arguments, a file and standard input.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::Args;
use refrain_models::demo;

use crate::{Usage, hyphen_text, input};

/// The name of standard input among words and files.
const STDIN: &str = "-";

/// Model and prompt arguments, also as other programs take them.
#[derive(Debug, Args)]
pub(super) struct PromptArguments {
    /// The model; downloaded from the Hugging Face hub if needed [default: demo]
    #[arg(value_name = "MODEL", value_parser = hyphen_text::text)]
    first: Option<String>,
    /// The prompt, as one or several arguments; piped input is appended. Without a prompt, on a terminal,
    /// starts a chat
    #[arg(value_name = "PROMPT", value_parser = hyphen_text::text)]
    rest: Vec<String>,
    /// Append the contents of this file to the prompt
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// MODEL, as in other programs
    #[arg(short, long, value_name = "MODEL", hide = true)]
    model: Option<String>,
    /// PROMPT, as in other programs
    #[arg(short, long, value_name = "TEXT", hide = true, value_parser = hyphen_text::text)]
    prompt: Option<String>,
}

impl PromptArguments {
    /// Returns the MODEL argument.
    ///
    /// # Errors
    /// If the argument can only be a prompt.
    pub fn model(&self) -> Result<&str, Usage> {
        let model = self.model.as_deref().or(self.first.as_deref()).unwrap_or(demo::NAME);
        if model.contains(char::is_whitespace) && !Path::new(model).exists() {
            Err(Usage(format!(
                "not a model: {model:?}; the model comes before the prompt, as in `refrain run {} \"…\"`",
                demo::NAME
            )))
        } else {
            Ok(model)
        }
    }

    /// Whether there is a prompt on the command line, in a file or piped.
    pub fn is_given(&self) -> bool {
        self.file.is_some() || self.prompt.is_some() || self.words().next().is_some() || !io::stdin().is_terminal()
    }

    /// Joins words, file and standard input with blank lines. `exact` joins them unchanged, without blank lines and
    /// with the last newline.
    ///
    /// # Errors
    /// If something cannot be read or is given twice, or the prompt is empty.
    pub fn text(&self, exact: bool, quiet: bool) -> anyhow::Result<String> {
        let mut words: Vec<&str> = self.words().collect();
        if self.prompt.is_some() && !words.is_empty() {
            return Err(Usage("the prompt is given twice, as arguments and with --prompt".to_owned()).into());
        }
        words.extend(self.prompt.as_deref());
        let asks_for_stdin = words == [STDIN] || self.file.as_ref().is_some_and(|file| file.as_os_str() == STDIN);
        let mut parts = if words == [STDIN] {
            vec![]
        } else {
            vec![words.join(" ")]
        };
        if let Some(file) = self.file.as_ref().filter(|file| file.as_os_str() != STDIN) {
            parts.push(input::read_text(file)?);
        }
        let nothing = parts.iter().all(String::is_empty);
        match input::read_piped(quiet)? {
            Some(text) if exact || !text.trim().is_empty() => parts.push(text),
            None if asks_for_stdin || nothing => parts.push(input::read_stdin("the prompt")?),
            _ => {}
        }
        let prompt = if exact {
            parts.concat()
        } else {
            let parts = parts.iter().map(|part| without_newline(part));
            parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
        };
        if prompt.is_empty() {
            let why = "the prompt is empty; pass one after the model, with -f FILE, or on standard input";
            return Err(Usage(why.to_owned()).into());
        }
        Ok(prompt)
    }

    /// The prompt's words: all positional arguments if the model is given by an option.
    fn words(&self) -> impl Iterator<Item = &str> {
        let first = self.first.iter().filter(|_| self.model.is_some());
        first.chain(&self.rest).map(String::as_str)
    }
}

/// Removes the newline that ends text files.
fn without_newline(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}
