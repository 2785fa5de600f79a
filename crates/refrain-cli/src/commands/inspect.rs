//! `refrain inspect`: what a checkpoint holds, and how it fits this device.

use clap::Args;
use refrain::Device;
use refrain_engine::fit::{Fit, Needs, Offer, weight_bytes};
use refrain_formats::{Error, Format, TensorInfo};
use refrain_models::config::{AttentionConfig, RopeScaling};
use refrain_models::{Checkpoint, ModelConfig};
use serde_json::{Value, json};

use crate::output::{self, about_rate, human_bytes, human_count};
use crate::{Global, device, fit, model};

mod describe;

const EXAMPLES: &str = "Examples:
  refrain inspect demo
  refrain inspect model.gguf --json --no-device";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model
    model: String,
    /// Write one JSON object
    #[arg(long)]
    json: bool,
    /// Leave out the device: no memory, no measurement
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
            // All that can be said of a model that cannot run; of one that is damaged, what is wrong with it.
            let whole = matches!(
                error.downcast_ref(),
                Some(Error::Architecture { .. } | Error::Unsupported { .. })
            );
            let description = whole.then(|| model::described(&arguments.model)).flatten();
            if let Some(description) = description {
                if arguments.json {
                    output::print_json(&describe::as_json(&description, &error))?
                } else {
                    output::print(&describe::as_text(&description))?
                }
            }
            return Err(error);
        }
    };
    let placed = if arguments.no_device {
        None
    } else {
        Some(DeviceFit::new(&checkpoint, device::open(global)?)?)
    };
    if arguments.json {
        output::print_json(&as_json(&checkpoint, placed.as_ref()))?
    } else {
        output::print(&as_text(&checkpoint, placed.as_ref()))?
    }
    if let Some(placed) = placed {
        device::report(global, &placed.device);
    }
    Ok(())
}

impl DeviceFit {
    fn new(checkpoint: &Checkpoint, device: Device) -> anyhow::Result<Self> {
        let needs = Needs::of(checkpoint, &device);
        let offer = Offer::measure(&device)?;
        let fit = Fit { needs, offer };
        Ok(Self { device, fit })
    }
}

fn as_text(checkpoint: &Checkpoint, placed: Option<&DeviceFit>) -> String {
    let mut lines = summary(checkpoint);
    lines.extend(placed.into_iter().flat_map(fit_lines));
    let mut text: String = lines
        .iter()
        .map(|(key, value)| format!("{key:<14} {value}\n"))
        .collect();
    text.push_str(&table(checkpoint.tensors()));
    text
}

/// The lines of tensors, under a head.
fn table<'a>(tensors: impl Iterator<Item = &'a TensorInfo>) -> String {
    let tensors = Vec::from_iter(tensors);
    let width = tensors.iter().map(|tensor| tensor.name.len()).max().unwrap_or(0);
    let mut text = format!(
        "\n{:<width$}  {:<16} {:<14} {:>10}\n",
        "tensor", "shape", "stored as", "bytes"
    );
    for tensor in tensors {
        let stored = tensor.encoding.to_string();
        text.push_str(&format!(
            "{:<width$}  {:<16} {stored:<14} {:>10}\n",
            tensor.name,
            format!("{:?}", tensor.shape),
            tensor.bytes
        ));
    }
    text
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
            format!("{} in {} tensors", human_bytes(weight_bytes(checkpoint)), tensors.len()),
        ),
        (
            "shape",
            format!(
                "{} layers, hidden size {}, feed-forward {}",
                config.layers, config.hidden_size, config.feed_forward.intermediate_size
            ),
        ),
        ("attention", attention(&config.attention)),
        ("positions", rope(config)),
        (
            "vocabulary",
            format!(
                "{} tokens, {}",
                config.vocab_size,
                if config.tie_word_embeddings {
                    "embedding is also the head"
                } else {
                    "separate head"
                }
            ),
        ),
        ("context", format!("{} tokens", config.max_position)),
    ]
}

fn fit_lines(placed: &DeviceFit) -> Vec<(&'static str, String)> {
    let fit = &placed.fit;
    vec![
        ("device", device::describe(&placed.device)),
        (
            "KV cache",
            format!("{} a token", human_bytes(fit.needs.kv_per_position)),
        ),
        ("memory", fit::room(fit)),
        (
            "speed limit",
            format!(
                "about {} tokens/s: {} read a token at {} GB/s (measured now)",
                about_rate(fit.bound(0)),
                human_bytes(fit.read_per_token(0)),
                about_rate(fit.offer.bandwidth / 1e9)
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
        format!(", whose values have {value_dim}")
    };
    format!("{heads} query heads, {kv_heads} key-value heads of {head_dim}{values}")
}

fn rope(config: &ModelConfig) -> String {
    let scaling = match &config.positions.scaling {
        RopeScaling::None => String::new(),
        other => format!(", scaled: {other}"),
    };
    format!("rotary, base {}{scaling}", config.positions.theta)
}

fn as_json(checkpoint: &Checkpoint, placed: Option<&DeviceFit>) -> Value {
    let config = checkpoint.config();
    json!({
        "architecture": config.family.name,
        "format": format_name(checkpoint.format()),
        "parameters": checkpoint.tensors().map(TensorInfo::values).sum::<usize>(),
        "weight_bytes": weight_bytes(checkpoint),
        "layers": config.layers,
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
        "device": placed.map(|DeviceFit { device, fit }| json!({
            "name": device.name(),
            "free_bytes": fit.offer.free,
            "kv_bytes_per_token": fit.needs.kv_per_position,
            "context_that_fits": fit.context(),
            "probe_gb_per_s": fit.offer.bandwidth / 1e9,
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
