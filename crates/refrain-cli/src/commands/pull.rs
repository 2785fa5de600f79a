//! `refrain pull`: downloads models from the Hugging Face hub.

use clap::Args;
use refrain_hub::{HubCache, ModelName};
use refrain_models::demo;

use crate::{Global, Usage, hub, output};

const EXAMPLES: &str = "Examples:
  refrain pull Qwen/Qwen3-0.6B
  refrain pull Qwen/Qwen3-0.6B-GGUF:Q8_0
  refrain pull mlx-community/Qwen3-0.6B-4bit@main

Models are stored in the cache of Python's huggingface_hub (HF_HUB_CACHE, HF_HOME, else
~/.cache/huggingface/hub), and models that it downloaded are found. Interrupted downloads resume.
For private and gated models, set HF_TOKEN or log in with `hf auth login`. HF_ENDPOINT selects
another hub; HTTPS_PROXY and NO_PROXY are respected.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// ORG/NAME, or ORG/NAME:QUANT for one of several GGUF files; append @REVISION for a branch, tag or commit
    model: String,
}

/// Prints the path of the downloaded model.
pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.model == demo::NAME {
        return Err(Usage("`demo` is built in: `refrain run demo` needs no download".to_owned()).into());
    }
    let name: ModelName = arguments.model.parse().map_err(|error| Usage(format!("{error}")))?;
    let settings = hub::settings(global)?;
    let cached = if settings.offline {
        HubCache::new(&settings.cache).find(&name)?
    } else {
        None
    };
    let model = match cached {
        Some(model) => {
            if !global.quiet {
                output::eprint_line("offline mode: using the downloaded version without checking for a newer one");
            }
            model
        }
        None => hub::pull(global, settings, &name)?,
    };
    output::print_text(&format!("{}\n", model.path.display()))
}
