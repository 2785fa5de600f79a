//! Converts to a GGUF file, as llama.cpp reads it.

use std::collections::HashMap;

use refrain_formats::Error;
use refrain_formats::write::Target;
use refrain_models::config::write_gguf;
use refrain_models::{Checkpoint, ModelConfig};

use crate::files::{Conversion, gguf};

use super::{ConvertOptions, Report, compare, experts, vocabulary};

pub(super) fn write(
    source: &Checkpoint,
    options: &ConvertOptions<'_>,
    target: &mut Target<'_>,
) -> Result<Report, Error> {
    let config = as_gguf(source);
    let conversions = conversions(source, &config, options)?;
    let name = source.files().model_name();
    let mut notes = Vec::new();
    let mut metadata = write_gguf::metadata(name.unwrap_or(options.name), options.recipe.file_type(), &config);
    metadata.extend(vocabulary::metadata(source, &mut notes)?);
    let mut items = gguf::vectors(write_gguf::rope_factors(&config));
    items.extend(conversions.iter().map(Conversion::item));
    let written = gguf::write(&metadata, &items, target)?;
    compare::check(source, &compare::reopen(source, written.path())?, &mut notes)?;
    target.finish_file(written)?;
    Ok(Report {
        tensors: conversions.iter().map(Conversion::outcome).collect(),
        notes,
    })
}

/// Returns the configuration as GGUF stores it: some architectures use another's name, norm weights include their
/// offset, and decays are rates.
fn as_gguf(source: &Checkpoint) -> ModelConfig {
    let config = source.config();
    let mut config = ModelConfig {
        family: config.family.gguf_family(),
        quantisation: None,
        ..config.clone()
    };
    config.norm.offset = 0.0;
    if let Some(nets) = &mut config.delta_net {
        nets.holds_decay_rates = true;
    }
    config
}

fn conversions<'a>(
    source: &'a Checkpoint,
    config: &ModelConfig,
    options: &ConvertOptions<'_>,
) -> Result<Vec<Conversion<'a>>, Error> {
    let rows = (config.family.tensors)(config);
    let known: HashMap<&str, _> = rows.iter().map(|row| (&row.name[..], row)).collect();
    let mut conversions = Vec::new();
    for tensor in source.tensors().filter_map(|info| source.tensor(&info.name)) {
        let info = tensor.info;
        if experts::is_expert_tensor(&info.name) {
            continue;
        }
        // Left over from training, or never read.
        if info.name.ends_with("rotary_emb.inv_freq") || (config.tie_word_embeddings && info.name == "lm_head.weight") {
            continue;
        }
        let Some(row) = known.get(&info.name[..]) else {
            return Err(tensor.error("has no name in GGUF for this architecture"));
        };
        let mut conversion = Conversion::new(tensor, row.gguf.clone(), options.recipe.gguf_encoding(config, info));
        (conversion.order, conversion.columns) = (row.gguf_rows, row.gguf_columns);
        conversion.shape = row.gguf_shape();
        conversion.change = super::change(&info.name, [source.config(), config]);
        conversions.push(conversion);
    }
    for experts in experts::all(source, config)? {
        let label = experts.name();
        let Some(row) = known.get(&label[..]) else {
            continue;
        };
        let to = options.recipe.gguf_encoding(config, &experts.info());
        let shape = experts.shape();
        conversions.push(Conversion::joined(experts.each, label, shape, row.gguf.clone(), to));
    }
    Ok(conversions)
}
