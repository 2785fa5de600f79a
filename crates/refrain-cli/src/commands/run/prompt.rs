//! What `refrain run` is asked: words, a file, the standard input, or several of them.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::{Usage, demo, input};

/// The name of the standard input among words and files.
const STDIN: &str = "-";

/// Model and prompt, as they are typed here and elsewhere.
#[derive(Debug, Args)]
pub(super) struct PromptArguments {
    /// The model; one of the Hugging Face hub is downloaded if it is not here yet [default: demo]
    #[arg(value_name = "MODEL")]
    first: Option<String>,
    /// The prompt; several words are one. What is piped to the program comes after it. Without either, on a
    /// terminal, a chat begins
    #[arg(value_name = "PROMPT")]
    rest: Vec<String>,
    /// Put the text of this file after the prompt's words
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// MODEL, as other programs take it
    #[arg(short, long, value_name = "MODEL", hide = true)]
    model: Option<String>,
    /// PROMPT, as other programs take it
    #[arg(short, long, value_name = "TEXT", hide = true)]
    prompt: Option<String>,
}

impl PromptArguments {
    /// The model's name.
    ///
    /// # Errors
    /// If what stands in its place can only be a prompt.
    pub fn model(&self) -> Result<&str, Usage> {
        let model = self.model.as_deref().or(self.first.as_deref()).unwrap_or(demo::NAME);
        if model.contains(char::is_whitespace) && !Path::new(model).exists() {
            Err(Usage(format!(
                "{model:?} is no model; the model comes before the prompt, as in `refrain run {} \"…\"`",
                demo::NAME
            )))
        } else {
            Ok(model)
        }
    }

    /// Whether there is a prompt on the command line, or something else than a person at the standard input.
    pub fn is_given(&self) -> bool {
        self.file.is_some() || self.prompt.is_some() || self.words().next().is_some() || !io::stdin().is_terminal()
    }

    /// The prompt: words, file and standard input, with blank lines between; `exact`: with nothing between, and
    /// without the last newline taken off.
    ///
    /// # Errors
    /// If something cannot be read, is given twice, or there is nothing.
    pub fn text(&self, exact: bool, quiet: bool) -> anyhow::Result<String> {
        let mut words: Vec<&str> = self.words().collect();
        if self.prompt.is_some() && !words.is_empty() {
            return Err(Usage("the prompt is given twice, as words and by --prompt".to_owned()).into());
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
            let why = "the prompt is empty; give one behind the model's name, by -f FILE, or on the standard input";
            return Err(Usage(why.to_owned()).into());
        }
        Ok(prompt)
    }

    /// The prompt's words: all if the model is named by an option.
    fn words(&self) -> impl Iterator<Item = &str> {
        let first = self.first.iter().filter(|_| self.model.is_some());
        first.chain(&self.rest).map(String::as_str)
    }
}

/// Texts are lines, prompts are not.
fn without_newline(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}
