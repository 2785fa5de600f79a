//! `refrain inspect`: shows a checkpoint's architecture and tensors, and whether it fits the device.

use clap::Args;
use refrain::Device;
use refrain_engine::CacheTypes;
use refrain_engine::fit::{Capacity, Fit, Requirements, mtp_bytes, weight_bytes};
use refrain_formats::{Error, Format, TensorInfo};
use refrain_models::config::{AttentionConfig, RopeScaling};
use refrain_models::{Checkpoint, ModelConfig};
use serde_json::{Value, json};

use crate::output::{self, about_rate, human_bytes, human_count};
use crate::{Global, device, fit, model};

mod describe;
mod tensor_table;

use tensor_table::table;

const EXAMPLES: &str = "Examples:
  refrain inspect demo
  refrain inspect demo --all
  refrain inspect model.gguf --json --no-device";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model
    model: String,
    /// List every tensor, instead of equal layers once
    #[arg(long)]
    all: bool,
    /// Print a JSON object, with every tensor
    #[arg(long)]
    json: bool,
    /// Skip the device: show neither memory nor speed
    #[arg(long)]
    no_device: bool,
}

/// A device, and how the model fits it.
struct DeviceFit {
    device: Device,
    fit: Fit,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<()> {
    let checkpoint = match model::open(&arguments.model) {
        Ok(checkpoint) => checkpoint,
        Err(error) => {
            // For a model that is not supported, show what its files say; for a damaged one, only the error.
            let is_intact = matches!(
                error.downcast_ref(),
                Some(Error::Architecture { .. } | Error::Unsupported { .. })
            );
            let description = is_intact.then(|| model::read_description(&arguments.model)).flatten();
            if let Some(description) = description {
                if arguments.json {
                    output::print_json(&describe::as_json(&description, &error))?
                } else {
                    output::print(&describe::as_text(&description, arguments.all))?
                }
            }
            return Err(error);
        }
    };
    let device_fit = if arguments.no_device {
        None
    } else {
        Some(DeviceFit::new(&checkpoint, device::open(global)?)?)
    };
    if arguments.json {
        output::print_json(&as_json(&checkpoint, device_fit.as_ref()))?
    } else {
        output::print(&as_text(&checkpoint, device_fit.as_ref(), arguments.all))?
    }
    if let Some(device_fit) = device_fit {
        device::report(global, &device_fit.device);
    }
    Ok(())
}

impl DeviceFit {
    fn new(checkpoint: &Checkpoint, device: Device) -> anyhow::Result<Self> {
        let requirements = Requirements::of(checkpoint, CacheTypes::of_device(&device));
        let capacity = Capacity::measure(&device)?;
        let fit = Fit { requirements, capacity };
        Ok(Self { device, fit })
    }
}

fn as_text(checkpoint: &Checkpoint, device_fit: Option<&DeviceFit>, all: bool) -> String {
    let mut lines = summary(checkpoint);
    lines.extend(device_fit.into_iter().flat_map(fit_lines));
    let mut text: String = lines
        .iter()
        .map(|(key, value)| format!("{key:<14} {value}\n"))
        .collect();
    text.push_str(&table(checkpoint.tensors(), all));
    text
}

/// Bytes of all tensors.
fn total_bytes(checkpoint: &Checkpoint) -> u64 {
    weight_bytes(checkpoint) + mtp_bytes(checkpoint)
}

fn summary(checkpoint: &Checkpoint) -> Vec<(&'static str, String)> {
    let config = checkpoint.config();
    let tensors: Vec<&TensorInfo> = checkpoint.tensors().collect();
    let parameters: usize = tensors.iter().map(|tensor| tensor.values()).sum();
    vec![
        ("architecture", config.family.to_string()),
        ("format", format_name(checkpoint.format()).to_owned()),
        ("parameters", human_count(parameters as u64)),
        (
            "weights",
            format!("{} in {} tensors", human_bytes(total_bytes(checkpoint)), tensors.len()),
        ),
        (
            "layers",
            format!(
                "{}{}, hidden size {}, feed-forward size {}",
                config.layers,
                if config.mtp_layers > 0 {
                    " and one for multi-token prediction"
                } else {
                    ""
                },
                config.hidden_size,
                config.feed_forward.intermediate_size
            ),
        ),
        ("attention", attention(&config.attention)),
        ("RoPE", rope(config)),
        (
            "vocabulary",
            format!(
                "{} tokens, {}",
                config.vocab_size,
                if config.tie_word_embeddings {
                    "tied embeddings"
                } else {
                    "separate output head"
                }
            ),
        ),
        ("context length", format!("{} tokens", config.max_position)),
    ]
}

fn fit_lines(device_fit: &DeviceFit) -> Vec<(&'static str, String)> {
    let fit = &device_fit.fit;
    vec![
        ("device", device::describe(&device_fit.device)),
        (
            "KV cache",
            format!("{} per token", human_bytes(fit.requirements.kv_per_position)),
        ),
        ("memory", fit::room(fit)),
        (
            "max speed",
            format!(
                "about {} tokens/s: a token reads {} at {} GB/s (measured now)",
                about_rate(fit.bound(0)),
                human_bytes(fit.read_per_token(0)),
                about_rate(fit.capacity.bandwidth / 1e9)
            ),
        ),
    ]
}

fn format_name(format: Format) -> &'static str {
    match format {
        Format::Safetensors => "safetensors",
        Format::Mlx => "safetensors, quantised by MLX",
        Format::Gguf => "GGUF",
    }
}

fn attention(attention: &AttentionConfig) -> String {
    let AttentionConfig {
        heads,
        kv_heads,
        head_dim,
        value_dim,
        ..
    } = attention;
    let values = if value_dim == head_dim {
        String::new()
    } else {
        format!(", value head size {value_dim}")
    };
    format!("{heads} query heads, {kv_heads} KV heads, head size {head_dim}{values}")
}

fn rope(config: &ModelConfig) -> String {
    let scaling = match &config.positions.scaling {
        RopeScaling::None => String::new(),
        other => format!(", scaling {other}"),
    };
    format!("base {}{scaling}", config.positions.theta)
}

fn as_json(checkpoint: &Checkpoint, device_fit: Option<&DeviceFit>) -> Value {
    let config = checkpoint.config();
    json!({
        "architecture": config.family.name,
        "format": format_name(checkpoint.format()),
        "parameters": checkpoint.tensors().map(TensorInfo::values).sum::<usize>(),
        "weight_bytes": total_bytes(checkpoint),
        "layers": config.layers,
        "mtp_layers": config.mtp_layers,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.feed_forward.intermediate_size,
        "heads": config.attention.heads,
        "kv_heads": config.attention.kv_heads,
        "head_dim": config.attention.head_dim,
        "value_dim": config.attention.value_dim,
        "vocab_size": config.vocab_size,
        "context": config.max_position,
        "tied_head": config.tie_word_embeddings,
        "rope_theta": config.positions.theta,
        "device": device_fit.map(|DeviceFit { device, fit }| json!({
            "name": device.name(),
            "free_bytes": fit.capacity.free,
            "kv_bytes_per_token": fit.requirements.kv_per_position,
            "context_that_fits": fit.context(),
            "probe_gb_per_s": fit.capacity.bandwidth / 1e9,
            "read_bytes_per_token": fit.read_per_token(0),
            "tokens_per_s_bound": fit.bound(0),
        })),
        "tensors": checkpoint.tensors().map(tensor_json).collect::<Vec<_>>(),
    })
}

fn tensor_json(tensor: &TensorInfo) -> Value {
    json!({
        "name": tensor.name,
        "shape": tensor.shape,
        "encoding": tensor.encoding.to_string(),
        "bytes": tensor.bytes,
    })
}
