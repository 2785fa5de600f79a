//! To a GGUF file, as llama.cpp reads it.

use super::tensor::Conversion;
use super::{ConvertOptions, Report, compare, vocabulary};
use crate::config::{Architecture, ModelConfig};
use crate::write::{Target, gguf, gguf_metadata};
use crate::{Checkpoint, Error, gguf as reader};

pub(super) fn write(
    source: &Checkpoint,
    options: &ConvertOptions<'_>,
    target: &mut Target<'_>,
) -> Result<Report, Error> {
    let config = as_gguf(source)?;
    let conversions = conversions(source, &config, options)?;
    let name = source.gguf().and_then(|(gguf, _)| gguf.model_name());
    let mut notes = Vec::new();
    let mut metadata = gguf_metadata::metadata(name.unwrap_or(options.name), options.recipe.file_type(), &config);
    metadata.extend(vocabulary::metadata(source, &mut notes)?);
    let mut items = gguf_metadata::rope_items(&config);
    items.extend(conversions.iter().map(Conversion::item));
    let written = gguf::write(&metadata, &items, target)?;
    compare::check(source, &Checkpoint::open(written.path())?, &mut notes)?;
    target.finish_file(written)?;
    Ok(Report {
        tensors: conversions.iter().map(Conversion::outcome).collect(),
        notes,
    })
}

/// The model as a GGUF file has it: some families go by another's name, and gains of norms are whole.
fn as_gguf(source: &Checkpoint) -> Result<ModelConfig, Error> {
    let config = source.config();
    Ok(ModelConfig {
        architecture: Architecture::by_gguf_name(config.architecture.gguf_name(), source.name())?,
        norm_offset: 0.0,
        quantisation: None,
        ..config.clone()
    })
}

fn conversions<'a>(
    source: &'a Checkpoint,
    config: &ModelConfig,
    options: &ConvertOptions<'_>,
) -> Result<Vec<Conversion<'a>>, Error> {
    let mut conversions = Vec::new();
    for tensor in source.tensors().filter_map(|info| source.tensor(&info.name)) {
        let info = tensor.info;
        // Left over from training, or never read.
        if info.name.ends_with("rotary_emb.inv_freq") || (config.tie_word_embeddings && info.name == "lm_head.weight") {
            continue;
        }
        let Some(name) = reader::name(config.architecture, &info.name) else {
            return Err(tensor.error("has no name in GGUF files of this architecture"));
        };
        let mut conversion = Conversion::new(tensor, name, options.recipe.gguf_encoding(config, info));
        conversion.order = reader::row_order(config, &info.name);
        if info.name.ends_with("norm.weight") {
            conversion.added = source.config().norm_offset;
        }
        conversions.push(conversion);
    }
    Ok(conversions)
}
