//! Prints a model's answer piece by piece: `cargo run --release --example generate -- [MODEL [PROMPT]]`.
//!
//! MODEL is a directory or a GGUF file; the default is the demo model.

use std::io::{self, Write};
use std::path::Path;

use refrain_engine::{Device, Engine, EngineOptions, EngineRequest, GenerateOptions, LoadOptions, Model};
use refrain_models::Checkpoint;
use refrain_text::Conversation;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/model");

/// Answers `question` with the model in `path`, on `device`.
///
/// # Errors
/// If the checkpoint cannot be used, the device fails, or the output cannot be written.
pub fn answer(path: &Path, question: &str, device: &Device, output: &mut dyn Write) -> Result<()> {
    let checkpoint = Checkpoint::open(path)?;
    let tokenizer = checkpoint.tokenizer()?;
    let model = Model::load(&checkpoint, device, &LoadOptions::default())?;
    let context = model.config().max_position.min(4096);
    let engine = Engine::start(&model, &EngineOptions::single(context))?;

    let prompt = match checkpoint.chat_template()? {
        Some(template) => {
            let conversation = Conversation::from_prompt(None, question);
            tokenizer.encode_rendered(&template.render(&conversation, true)?)?
        }
        None => tokenizer.encode(question, true)?,
    };
    let options = GenerateOptions::suggested(&checkpoint, &tokenizer)?;
    for piece in engine.generate(EngineRequest::new(prompt, options))?.text(&tokenizer) {
        write!(output, "{}", piece?)?;
        output.flush()?;
    }
    writeln!(output)?;
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let model = arguments.next().unwrap_or(DEMO.to_owned());
    let question = arguments.next().unwrap_or("What is 12 + 30?".to_owned());
    let device = Device::auto().unwrap_or_else(|_| Device::cpu());
    answer(model.as_ref(), &question, &device, &mut io::stdout())
}
