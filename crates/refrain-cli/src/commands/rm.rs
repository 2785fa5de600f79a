//! `refrain rm`: removes downloaded models.

use std::io::{self, IsTerminal, Write};

use anyhow::anyhow;
use clap::Args;
use refrain_hub::{HubCache, ModelName};

use crate::output::{self, human_bytes};
use crate::{Global, Usage, hub};

const EXAMPLES: &str = "Examples:
  refrain rm Qwen/Qwen3-0.6B --yes
  refrain rm Qwen/Qwen3-0.6B-GGUF:Q8_0 --yes

Without QUANT and REVISION, all downloaded files of the model are removed. Files that another
revision shares are kept.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Model names as listed by `refrain list`
    #[arg(required = true)]
    models: Vec<String>,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<()> {
    let cache = HubCache::new(&hub::settings(global)?.cache);
    let mut removals = Vec::new();
    for model in &arguments.models {
        let name: ModelName = model.parse().map_err(|error| Usage(format!("{error}")))?;
        let removal = cache
            .removal(&name)?
            .ok_or_else(|| anyhow!("not downloaded: {name}; `refrain list` shows downloaded models"))?;
        removals.push(removal);
    }
    for removal in removals {
        let what = format!("{} ({})", removal.name, human_bytes(removal.bytes));
        if !arguments.yes && !confirmed(&what)? {
            continue;
        }
        removal.run()?;
        if !global.quiet {
            output::eprint_line(&format!("removed {what}"));
        }
    }
    Ok(())
}

/// Asks for confirmation on the terminal.
fn confirmed(what: &str) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() {
        return Err(Usage(format!(
            "cannot ask whether to remove {what}: standard input is not a terminal; confirm with --yes"
        ))
        .into());
    }
    // If the prompt cannot be shown, the answer will not be yes.
    let _ = write!(io::stderr(), "remove {}? [y/N] ", output::escape_control(what));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
