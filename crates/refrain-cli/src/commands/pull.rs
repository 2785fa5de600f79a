//! `refrain pull`: models from the Hugging Face hub.

use clap::Args;
use refrain_hub::{HubCache, ModelName};

use crate::{Global, Usage, demo, hub, output};

const EXAMPLES: &str = "Examples:
  refrain pull Qwen/Qwen3-0.6B
  refrain pull Qwen/Qwen3-0.6B-GGUF:Q8_0
  refrain pull mlx-community/Qwen3-0.6B-4bit@main

Downloads go where Python's huggingface_hub puts them (HF_HUB_CACHE, HF_HOME, else
~/.cache/huggingface/hub), and what it has put there is found. An interrupted download goes on
where it ended. HF_TOKEN or the token that `hf auth login` stored opens private and gated models;
HF_ENDPOINT names another hub; HTTPS_PROXY and NO_PROXY are respected.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// ORG/NAME, or ORG/NAME:QUANT for one of several GGUF files; @REVISION at the end takes another branch, tag or commit
    model: String,
}

/// Writes the path of what was downloaded to the standard output.
pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.model == demo::NAME {
        return Err(Usage("`demo` is inside this program: `refrain run demo` needs no download".to_owned()).into());
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
                output::complain("offline mode: the hub was not asked for a newer version of what is here");
            }
            model
        }
        None => hub::pull(global, settings, &name)?,
    };
    output::print_text(&format!("{}\n", model.path.display()))
}
