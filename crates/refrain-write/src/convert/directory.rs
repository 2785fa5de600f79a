//! Converts to a directory of config.json and safetensors, as transformers and mlx-lm read it.

use std::collections::BTreeMap;

use refrain_formats::write::Target;
use refrain_formats::{Encoding, Error, LayerFormat, Quantisation};
use refrain_models::config::{RopeScaling, write_json};
use refrain_models::{Checkpoint, ModelConfig};
use serde_json::{Value, json};

use crate::files::{Conversion, directory};

use super::{ConvertOptions, Report, compare, experts, tokenizer_files};

pub(super) fn write(
    source: &Checkpoint,
    options: &ConvertOptions<'_>,
    target: &mut Target<'_>,
) -> Result<Report, Error> {
    let plain = match options.recipe.affine() {
        Some(_) => plain_encoding(source),
        None => Encoding::F16,
    };
    let mut config = as_hugging_face(source)?;
    let mut notes = Vec::new();
    if options.recipe.affine().is_some() {
        if config.delta_net.is_some() {
            // mlx-lm adds the offset to the norm weights that it stores.
            config.norm.offset = 0.0;
        }
        if std::mem::take(&mut config.mtp_layers) > 0 {
            // mlx-lm takes a checkpoint with such tensors for one whose norms it has not changed.
            notes.push("the multi-token prediction head is left out, as mlx-lm leaves it out".to_owned());
        }
    }
    let conversions = conversions(source, &config, plain, options)?;
    config.quantisation = quantisation(&conversions, options);
    let contents = directory::DirectoryContents {
        config: config_object(source, &config, plain),
        files: tokenizer_files::files(source)?,
        framework: match options.recipe.affine() {
            Some(_) => "mlx",
            None => "pt",
        },
    };
    let items = conversions.iter().map(Conversion::item).collect();
    let written = directory::write(&contents, items, directory::SHARD_BYTES, target)?;
    compare::check(source, &compare::reopen(source, written.path())?, &mut notes)?;
    target.finish_directory(written)?;
    Ok(Report {
        tensors: conversions.iter().map(Conversion::outcome).collect(),
        notes,
    })
}

/// Returns the encoding of tensors that are not quantised: that of the source's matrices, if it has one.
fn plain_encoding(source: &Checkpoint) -> Encoding {
    let embedding = source.tensor("model.embed_tokens.weight");
    let stored = embedding.map(|tensor| match tensor.info.encoding {
        Encoding::Quantised(record) if record.is_mlx_affine() => tensor.scale_encoding().unwrap_or(Encoding::F16),
        encoding => encoding,
    });
    match stored {
        Some(encoding @ (Encoding::F32 | Encoding::BF16)) => encoding,
        _ => Encoding::F16,
    }
}

/// Returns the configuration for config.json. GGUF files list divisors of Llama's rotary frequencies instead.
fn as_hugging_face(source: &Checkpoint) -> Result<ModelConfig, Error> {
    let mut config = source.config().clone();
    let from = config.family;
    (from.gguf_to_hf)(&mut config);
    if let RopeScaling::Factors(factors) = &config.positions.scaling {
        config.positions.scaling = llama3_scaling(&config, factors).ok_or_else(|| {
            Error::Conversion(format!(
                "{}: config.json cannot represent its rotary frequency factors",
                source.name()
            ))
        })?;
    }
    Ok(config)
}

/// Recovers Llama 3's scaling if the divisors come from it. All published models use 1 and 4 as low and high
/// frequency factors; the divisor of a frequency in between tells the original context length.
fn llama3_scaling(config: &ModelConfig, divisors: &[f32]) -> Option<RopeScaling> {
    let (low, high) = (1.0, 4.0);
    let factor = f64::from(divisors.iter().copied().fold(1.0, f32::max));
    let context = |(pair, divisor): (usize, &f32)| {
        let kept = (1.0 / f64::from(*divisor) - 1.0 / factor) / (1.0 - 1.0 / factor);
        let frequency = config
            .positions
            .theta
            .powf(-2.0 * pair as f64 / config.positions.dims as f64);
        let turns = low + kept * (high - low);
        (0.01..0.99)
            .contains(&kept)
            .then_some((turns * std::f64::consts::TAU / frequency).round())
    };
    let scaling = RopeScaling::Llama3 {
        factor,
        low_freq_factor: low,
        high_freq_factor: high,
        original_max_position: divisors.iter().enumerate().find_map(context).unwrap_or(8192.0),
    };
    let mut guess = config.clone();
    guess.positions.scaling = scaling.clone();
    compare::same_rotation(config, &guess).then_some(scaling)
}

fn conversions<'a>(
    source: &'a Checkpoint,
    config: &ModelConfig,
    plain: Encoding,
    options: &ConvertOptions<'_>,
) -> Result<Vec<Conversion<'a>>, Error> {
    let tensors = source.tensors().filter_map(|info| source.tensor(&info.name));
    let kept = tensors.filter(|tensor| !tensor.info.name.ends_with("rotary_emb.inv_freq"));
    let kept = kept.filter(|tensor| !experts::is_expert_tensor(&tensor.info.name));
    let kept = kept.filter(|tensor| config.uses(&tensor.info.name));
    let mut conversions: Vec<Conversion<'_>> = kept
        .filter(|tensor| !(config.tie_word_embeddings && tensor.info.name == "lm_head.weight"))
        .map(|tensor| {
            let info = tensor.info;
            let mlx = options.recipe.affine().is_some();
            // Decay rates and the bias of expert selection need full precision.
            let exact = ["linear_attn.A_log", ".e_score_correction_bias"];
            let to = if exact.iter().any(|end| info.name.ends_with(end)) {
                info.encoding
            } else {
                options.recipe.directory_encoding(plain, info)
            };
            let mut conversion = Conversion::new(tensor, own_name(config, &info.name, mlx), to);
            conversion.scales = plain;
            conversion.change = super::change(&info.name, [source.config(), config]);
            if info.name.ends_with("conv1d.weight") {
                // The single input channel of each filter.
                conversion.extra_axis = Some(if mlx { 2 } else { 1 });
            }
            conversion
        })
        .collect();
    let mlx = config
        .feed_forward
        .moe
        .as_ref()
        .filter(|_| options.recipe.affine().is_some());
    if mlx.is_none() && experts::is_transposed(config) {
        conversions.extend(experts::transposed(source, config, plain)?);
        return Ok(conversions);
    }
    for experts in experts::all(source, config)? {
        let to = options.recipe.directory_encoding(plain, &experts.info());
        if let Some(moe) = mlx {
            let (label, name) = (experts.name(), own_name(config, &experts.mlx_name(moe), true));
            let shape = experts.shape();
            let mut conversion = Conversion::joined(experts.each, label, shape, name, to);
            conversion.scales = plain;
            conversions.push(conversion);
            continue;
        }
        let shape = experts.shape_of_one();
        let names = Vec::from_iter((0..experts.each.len()).map(|expert| experts.name_of(expert)));
        for (own, name) in experts.each.into_iter().zip(names) {
            conversions.push(Conversion::joined(vec![own], name.clone(), shape.clone(), name, to));
        }
    }
    Ok(conversions)
}

/// Returns a tensor's name in the new files. mlx-lm nests the text decoder of some families in the whole model.
fn own_name(config: &ModelConfig, name: &str, mlx: bool) -> String {
    match config.family.wrapper.filter(|_| mlx) {
        Some(_) => format!("language_model.{name}"),
        None => name.to_owned(),
    }
}

/// Returns MLX's `quantization` object: the default, and the layers whose rows are not whole groups.
fn quantisation(conversions: &[Conversion<'_>], options: &ConvertOptions<'_>) -> Option<Quantisation> {
    let affine = options.recipe.affine()?;
    let is_matrix = |own: &&Conversion<'_>| own.shape.len() > 1 && own.extra_axis.is_none();
    let matrices = conversions.iter().filter(is_matrix);
    let left = matrices.filter(|conversion| conversion.to.quantised().is_none());
    let layers = left.filter_map(|conversion| conversion.name.strip_suffix(".weight"));
    Some(Quantisation {
        format: LayerFormat::Quantised(affine),
        overrides: layers.map(|layer| (layer.to_owned(), None)).collect::<BTreeMap<_, _>>(),
    })
}

/// Returns the source's config.json if it has one, else one built from its metadata.
fn config_object(source: &Checkpoint, config: &ModelConfig, plain: Encoding) -> Value {
    // Only the text model of a multimodal checkpoint is written.
    let metadata = source.files().metadata().filter(|_| !source.is_text_part());
    let own = metadata.and_then(|metadata| metadata.object().cloned());
    let mut object = own.map_or_else(|| write_json::text_object(config, plain), Value::Object);
    if let Some(fields) = object.as_object_mut() {
        fields.remove("quantization");
        fields.remove("quantization_config");
        fields.remove("dtype");
        fields.insert("torch_dtype".to_owned(), json!(write_json::dtype(plain)));
        write_json::add_legacy_keys(fields, config);
        if let Some(quantisation) = &config.quantisation {
            write_json::add_quantisation(fields, quantisation);
        }
    }
    write_json::wrap_if_needed(config, object)
}
