//! `refrain tokenize`: text to token ids.

use std::path::PathBuf;

use clap::Args;
use refrain_text::Tokenizer;

use crate::model::TextSide;
use crate::{input, output};

const EXAMPLES: &str = "Examples:
  refrain tokenize demo \"Once upon a time\"
  refrain tokenize demo \"Once upon a time\" --pieces
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
    /// Put no BOS or EOS around the text, but take special tokens in it as such
    #[arg(long, conflicts_with = "no_special")]
    no_bos: bool,
    /// Write a line for each token, its id and its text, instead of a list of ids
    #[arg(long)]
    pieces: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let tokenizer = TextSide::open(&arguments.model)?.tokenizer()?;
    let text = match (&arguments.text, &arguments.file) {
        (Some(text), _) => text.clone(),
        (None, Some(file)) => input::read_text(file)?,
        (None, None) => input::read_stdin("the text")?,
    };
    let ids = if arguments.no_bos {
        tokenizer.encode_rendered(&text)?
    } else {
        tokenizer.encode(&text, !arguments.no_special)?
    };
    if arguments.pieces {
        output::print(&pieces(&tokenizer, &ids)?)
    } else {
        output::print_json(&ids.into())
    }
}

/// A line for each token. Its text is quoted as in JSON; of a token that is only a part of a character it is U+FFFD.
fn pieces(tokenizer: &Tokenizer, ids: &[u32]) -> anyhow::Result<String> {
    let mut lines = String::new();
    for &id in ids {
        let text = serde_json::Value::from(tokenizer.decode(&[id], false)?);
        lines.push_str(&format!("{id:>7} {text}\n"));
    }
    Ok(lines)
}
