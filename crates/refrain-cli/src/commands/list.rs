//! `refrain list`: lists downloaded models.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use refrain_hub::{CachedModel, HubCache, List};
use serde_json::{Value, json};

use crate::output::{self, human_age, human_bytes};
use crate::{Global, hub};

const EXAMPLES: &str = "Examples:
  refrain list
  refrain list --json

Lists language models in safetensors or GGUF format that this program or Python's huggingface_hub
has downloaded from the Hugging Face hub.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<()> {
    let cache = HubCache::new(&hub::settings(global)?.cache);
    let list = cache.list()?;
    if arguments.json {
        output::print_json(&as_json(&cache, &list))
    } else {
        output::print(&as_text(&cache, &list))
    }
}

fn as_text(cache: &HubCache, list: &List) -> String {
    if list.models.is_empty() && list.interrupted.is_empty() {
        return format!(
            "no models in {}; download one with `refrain pull ORG/NAME`\n",
            cache.root().display()
        );
    }
    let now = SystemTime::now();
    let age = |model: &CachedModel| match model.modified.map(|modified| now.duration_since(modified)) {
        Some(Ok(age)) => human_age(age.as_secs()),
        _ => "now".to_owned(),
    };
    let row = |model: &CachedModel| {
        [
            model.name.to_string(),
            model.format(),
            human_bytes(model.size),
            age(model),
        ]
    };
    let header = ["NAME", "FORMAT", "SIZE", "MODIFIED"].map(str::to_owned);
    let mut rows = vec![header];
    rows.extend(list.models.iter().map(row));
    rows.extend(list.interrupted.iter().map(|(repo, bytes)| {
        let again = "resume with `refrain pull`".to_owned();
        [repo.clone(), "(interrupted)".to_owned(), human_bytes(*bytes), again]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (name, format, size) = (width(0), width(1), width(2));
    let line = |[a, b, c, d]: &[String; 4]| format!("{a:<name$}  {b:<format$}  {c:>size$}  {d}\n");
    rows.iter().map(line).collect()
}

fn as_json(cache: &HubCache, list: &List) -> Value {
    let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map(|since| since.as_secs()).ok();
    let model = |model: &CachedModel| {
        json!({
            "name": model.name.to_string(),
            "format": model.format(),
            "bytes": model.size,
            "modified_unix_s": model.modified.and_then(seconds),
            "path": model.path.display().to_string(),
        })
    };
    let interrupted = |(repo, bytes): &(String, u64)| json!({"repository": repo, "bytes": bytes});
    json!({
        "cache": cache.root().display().to_string(),
        "models": list.models.iter().map(model).collect::<Vec<_>>(),
        "interrupted": list.interrupted.iter().map(interrupted).collect::<Vec<_>>(),
    })
}
