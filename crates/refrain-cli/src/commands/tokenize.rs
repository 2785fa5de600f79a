//! `refrain tokenize`: text to token ids.

use std::path::PathBuf;

use clap::Args;

use crate::model::TextSide;
use crate::{input, output};

const EXAMPLES: &str = "Examples:
  refrain tokenize demo \"Once upon a time\"
  refrain tokenize Qwen3-0.6B --file story.txt --no-special";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model, or a directory that holds only tokenizer files
    model: String,
    /// The text; read from standard input if neither it nor --file is given
    #[arg(conflicts_with = "file")]
    text: Option<String>,
    /// Read the text from this file, every byte of it
    #[arg(long)]
    file: Option<PathBuf>,
    /// Put no BOS or EOS around the text, and take special tokens in it as plain text
    #[arg(long)]
    no_special: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let tokenizer = TextSide::open(&arguments.model)?.tokenizer()?;
    let text = match (&arguments.text, &arguments.file) {
        (Some(text), _) => text.clone(),
        (None, Some(file)) => input::read_text(file)?,
        (None, None) => input::read_stdin("the text")?,
    };
    let ids = tokenizer.encode(&text, !arguments.no_special)?;
    output::print_json(&ids.into())
}
