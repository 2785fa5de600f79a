//! `refrain tokenize`: converts text to token ids.

use std::path::PathBuf;

use clap::Args;
use refrain_text::Tokenizer;

use crate::model::TokenizerSource;
use crate::{hyphen_text, input, output};

const EXAMPLES: &str = "Examples:
  refrain tokenize demo \"Once upon a time\"
  refrain tokenize demo \"Once upon a time\" --pieces
  refrain tokenize Qwen3-0.6B --file story.txt --no-special";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model, or a directory with only tokenizer files
    model: String,
    /// The text [default: standard input]
    #[arg(conflicts_with = "file", value_parser = hyphen_text::text)]
    text: Option<String>,
    /// Read the text from this file, unchanged
    #[arg(long)]
    file: Option<PathBuf>,
    /// Add no BOS or EOS, and treat special tokens in the text as plain text
    #[arg(long)]
    no_special: bool,
    /// Add no BOS or EOS, but recognise special tokens in the text
    #[arg(long, conflicts_with = "no_special")]
    no_bos: bool,
    /// Print one line per token with its id and text, instead of a JSON list of ids
    #[arg(long)]
    pieces: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let tokenizer = TokenizerSource::open(&arguments.model)?.tokenizer()?;
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

/// Formats a line per token, with its text quoted as in JSON. A token that is only a part of a character shows as
/// U+FFFD.
fn pieces(tokenizer: &Tokenizer, ids: &[u32]) -> anyhow::Result<String> {
    let mut lines = String::new();
    for &id in ids {
        let text = serde_json::Value::from(tokenizer.decode(&[id], false)?);
        lines.push_str(&format!("{id:>7} {text}\n"));
    }
    Ok(lines)
}
