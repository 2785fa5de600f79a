//! `refrain template`: renders a conversation as the text that the model sees.

use std::path::PathBuf;

use clap::Args;
use refrain_text::{ChatTemplate, Conversation};

use crate::model::TokenizerSource;
use crate::{input, output};

const EXAMPLES: &str = "Examples:
  refrain template Qwen3-0.6B --messages conversation.json
  refrain template tokenizer-files --messages conversation.json --template other.jinja";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model, or a directory with only tokenizer files
    model: String,
    /// JSON file: a list of messages, or an object with `messages` and optionally `tools`, `documents`
    /// and other template variables
    #[arg(long, value_name = "FILE.json")]
    messages: PathBuf,
    /// Use this chat template instead of the model's own
    #[arg(long, value_name = "FILE.jinja")]
    template: Option<PathBuf>,
    /// Do not append the start of the assistant's turn (add_generation_prompt=false)
    #[arg(long)]
    no_generation_prompt: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let source = TokenizerSource::open(&arguments.model)?;
    let conversation = Conversation::from_json(&input::read_text(&arguments.messages)?)?;
    let template = match &arguments.template {
        Some(file) => ChatTemplate::new(input::read_text(file)?, source.special_tokens()?),
        None => source.chat_template()?,
    };
    output::print_text(&template.render(&conversation, !arguments.no_generation_prompt)?)
}
