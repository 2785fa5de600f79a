//! `refrain rm`: removing downloaded models.

use std::io::{self, IsTerminal, Write};

use anyhow::anyhow;
use clap::Args;
use refrain_hub::{HubCache, ModelName};

use crate::output::{self, human_bytes};
use crate::{Global, Usage, hub};

const EXAMPLES: &str = "Examples:
  refrain rm Qwen/Qwen3-0.6B --yes
  refrain rm Qwen/Qwen3-0.6B-GGUF:Q8_0 --yes

Without QUANT and REVISION, all that was downloaded of the model is removed. Files that another
revision shares stay.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Names as `refrain list` shows them
    #[arg(required = true)]
    models: Vec<String>,
    /// Do not ask
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
            .ok_or_else(|| anyhow!("{name} has not been downloaded; `refrain list` shows what has"))?;
        removals.push(removal);
    }
    for removal in removals {
        let what = format!("{} ({})", removal.name, human_bytes(removal.bytes));
        if !arguments.yes && !confirmed(&what)? {
            continue;
        }
        removal.run()?;
        if !global.quiet {
            output::complain(&format!("removed {what}"));
        }
    }
    Ok(())
}

/// Asks on the terminal.
fn confirmed(what: &str) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() {
        return Err(Usage(format!("remove {what}? Nobody can be asked here; --yes removes it")).into());
    }
    // If the question cannot be shown, the answer will not be yes.
    let _ = write!(io::stderr(), "remove {}? [y/N] ", output::plain(what));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
