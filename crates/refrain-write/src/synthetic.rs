//! Writes synthetic checkpoints to disk.

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::path::Path;

use rayon::prelude::*;

use refrain_formats::write::{Target, TargetKind, WriteProgress};
use refrain_formats::{Error, Format, RowOrder, Tensor, TensorInfo, TensorOrder, store_block};
use refrain_models::config::{write_gguf, write_json};
use refrain_models::tensors::TensorRow;
use refrain_models::{Checkpoint, FAMILIES, ModelConfig, SyntheticSpec};

use crate::convert::experts;
use crate::files::{Conversion, Item, ListedTensor, directory, gguf};

#[cfg(test)]
mod tests;

/// Writes the synthetic checkpoint `spec` (`ARCH:FORMAT`) to `out`. `f32`, `f16` and `bf16` write a Hugging Face
/// directory (in several files above 4 GiB), `mlx2` to `mlx8` an MLX-quantised directory, all other formats a GGUF
/// file. The weights are those of [`Checkpoint::synthetic`].
///
/// `progress` is called after each piece and may break to cancel.
///
/// # Errors
/// If `spec` is unknown, `out` exists, the disk is full, another I/O error occurs, or `progress` cancelled. In that
/// case nothing is left at or beside `out`.
pub fn write(spec: &str, out: &Path, progress: &dyn Fn(WriteProgress) -> ControlFlow<()>) -> Result<(), Error> {
    write_shards(
        &SyntheticSpec::parse(spec, FAMILIES)?,
        out,
        directory::SHARD_BYTES,
        progress,
    )
}

/// As [`write()`], for a parsed spec. [`SyntheticSpec::parse`] also accepts further families.
///
/// # Errors
/// As [`write()`].
pub fn write_spec(
    spec: &SyntheticSpec,
    out: &Path,
    progress: &dyn Fn(WriteProgress) -> ControlFlow<()>,
) -> Result<(), Error> {
    write_shards(spec, out, directory::SHARD_BYTES, progress)
}

/// As [`write()`], with weight files of at most `shard` bytes, if the format splits them.
fn write_shards(
    spec: &SyntheticSpec,
    out: &Path,
    shard: u64,
    progress: &dyn Fn(WriteProgress) -> ControlFlow<()>,
) -> Result<(), Error> {
    let checkpoint = Checkpoint::from_spec(spec);
    let gguf = spec.format() == Format::Gguf;
    if gguf != out.extension().is_some_and(|extension| extension == "gguf") {
        return Err(Error::Synthetic {
            spec: spec.label(),
            reason: if gguf {
                format!(
                    "this format is written to a GGUF file, whose name must end in .gguf, not {}",
                    out.display()
                )
            } else {
                format!("this format is written to a directory, not {}", out.display())
            },
        });
    }
    let kind = if gguf { TargetKind::File } else { TargetKind::Directory };
    let mut target = Target::new(out, kind, false, progress)?;
    let mut config = checkpoint.config().clone();
    if config.quantisation.is_some() {
        // mlx-lm takes a checkpoint with a multi-token prediction head for one that it has not converted.
        config.mtp_layers = 0;
    }
    let config = &config;
    let written = |info: &&TensorInfo| config.uses(&info.name);
    let tensors = checkpoint.tensors().filter(written);
    let tensors = tensors.filter_map(|info| checkpoint.tensor(&info.name));
    if !gguf {
        let (ordered, plain): (Vec<_>, Vec<_>) = tensors
            .map(|tensor| (tensor, experts::order(config, &tensor.info.name)))
            .partition(|(_, order)| order.is_some());
        let ordered = Vec::from_iter(ordered.into_iter().map(|(tensor, order)| transposed(tensor, order)));
        let items = plain
            .into_iter()
            .map(|(tensor, _)| published(config, Item::planes(tensor)));
        let items = items.chain(ordered.iter().map(Conversion::item));
        let contents = directory::DirectoryContents {
            config: write_json::object(config, spec.weights().vector_encoding()),
            files: Vec::new(),
            framework: match config.quantisation {
                Some(_) => "mlx",
                None => "pt",
            },
        };
        let written = directory::write(&contents, items.collect(), shard, &mut target)?;
        return target.finish_directory(written);
    }
    if config.family.gguf.is_none() {
        return Err(Error::Synthetic {
            spec: spec.label(),
            reason: "this architecture has no GGUF format; use f32, f16, bf16 or an MLX format".to_owned(),
        });
    }
    let mut metadata = write_gguf::metadata(&spec.name(), spec.weights().file_type(), config);
    metadata.extend(write_gguf::no_tokenizer(config));
    let rows = (config.family.tensors)(config);
    let known: HashMap<&str, _> = rows.iter().map(|row| (&row.name[..], row)).collect();
    let known = tensors.filter_map(|tensor| Some((*known.get(&tensor.info.name[..])?, tensor)));
    let (plain, blocks): (Vec<_>, Vec<_>) = known.partition(|(_, tensor)| !tensor.is_quantised());
    let plain = Vec::from_iter(plain.into_iter().map(|(row, tensor)| in_gguf(row, tensor)));
    let mut items = gguf::vectors(write_gguf::rope_factors(config));
    items.extend(plain.iter().map(Conversion::item));
    items.extend(blocks.into_iter().map(|(row, tensor)| gguf_item(row, tensor)));
    let written = gguf::write(&metadata, &items, &mut target)?;
    target.finish_file(written)
}

/// Returns a tensor that transformers stores transposed.
fn transposed(tensor: Tensor<'_>, order: Option<RowOrder>) -> Conversion<'_> {
    let (name, encoding) = (tensor.info.name.clone(), tensor.info.encoding);
    let mut conversion = Conversion::new(tensor, name, encoding);
    conversion.order = order.unwrap_or(RowOrder::AsStored);
    conversion.shape = conversion.order.stored_shape(&tensor.info.shape);
    conversion
}

/// Returns an unquantised tensor as GGUF stores it.
fn in_gguf<'a>(row: &TensorRow, tensor: Tensor<'a>) -> Conversion<'a> {
    let mut conversion = Conversion::new(tensor, row.gguf.clone(), tensor.info.encoding);
    (conversion.order, conversion.columns) = (row.gguf_rows, row.gguf_columns);
    conversion.shape = row.gguf_shape();
    conversion
}

/// Returns a quantised tensor as GGUF stores it.
fn gguf_item<'a>(row: &TensorRow, tensor: Tensor<'a>) -> Item<'a> {
    let info = tensor.info;
    let part = ListedTensor {
        name: row.gguf.clone(),
        encoding: info.encoding,
        shape: info.shape.clone(),
        bytes: info.bytes,
    };
    let order = row.gguf_order();
    Item::single(part, info.rows(), move |rows, out| pack_rows(&tensor, rows, order, out))
}

/// Packs these rows of the file into `out`.
fn pack_rows(tensor: &Tensor<'_>, rows: Range<usize>, order: TensorOrder, out: &mut [u8]) -> Result<(), Error> {
    let Some(format) = tensor.info.encoding.block() else {
        return Ok(());
    };
    let all = tensor.info.rows().max(1) as u64;
    let [quants, scales, biases] =
        [tensor.quants_bytes(), tensor.scales_bytes(), tensor.biases_bytes()].map(|bytes| (bytes / all) as usize);
    let blocks = tensor.info.columns() / format.values;
    // If blocks span columns that are not adjacent, the planes already have the file's order.
    let columns = order.columns.in_units(format.values).unwrap_or(RowOrder::AsStored);
    let buffers = || [vec![0; quants], vec![0; scales], vec![0; biases]];
    let pack = |[quants, scales, biases]: &mut [Vec<u8>; 3], (out, row): (&mut [u8], usize)| {
        let row = order.rows.logical(row) as u64;
        tensor.write_quants(row * quants.len() as u64, quants)?;
        tensor.write_scales(row * scales.len() as u64, scales)?;
        if !biases.is_empty() {
            tensor.write_biases(row * biases.len() as u64, biases)?;
        }
        let block_bytes = out.len() / blocks;
        for (index, block) in out.chunks_exact_mut(block_bytes).enumerate() {
            let [quants, scale, bias] = [&*quants, &*scales, &*biases].map(|plane| {
                let bytes = plane.len() / blocks;
                &plane[columns.logical(index) * bytes..][..bytes]
            });
            store_block(format, quants, scale, bias, block);
        }
        Ok(())
    };
    let row_bytes = tensor.info.bytes as usize / all as usize;
    let rows = out.par_chunks_exact_mut(row_bytes).zip(rows);
    rows.try_for_each_init(buffers, pack)
}

/// Renames and reshapes an item's parts as transformers, or mlx-lm for quantised weights, does for short
/// convolutions, experts, and text decoders of multimodal models.
fn published<'a>(config: &ModelConfig, mut item: Item<'a>) -> Item<'a> {
    let mlx = config.quantisation.is_some();
    for part in &mut item.parts {
        if part.name.ends_with("conv1d.weight") {
            // The single input channel of each filter.
            part.shape.insert(if mlx { part.shape.len() } else { 1 }, 1);
        }
        if mlx {
            part.name = mlx_name(config, &part.name);
        }
    }
    item
}

fn mlx_name(config: &ModelConfig, name: &str) -> String {
    let name = match name.split_once(".mlp.experts.") {
        Some((layer, part)) => {
            let folder = config
                .feed_forward
                .moe
                .as_ref()
                .map_or("mlp.switch_mlp", |moe| moe.style.mlx_prefix);
            let (part, kind) = match part.strip_suffix("_bias") {
                Some(part) => (part, ".bias"),
                None if part.contains('.') => (part, ""),
                None => (part, ".weight"),
            };
            format!("{layer}.{folder}.{part}{kind}")
        }
        None => name.to_owned(),
    };
    match config.family.wrapper {
        Some(_) => format!("language_model.{name}"),
        None => name,
    }
}
