//! Writing a synthetic checkpoint to disk.

use std::ops::{ControlFlow, Range};
use std::path::Path;

use rayon::prelude::*;

use super::Spec;
use crate::blocks::{RowOrder, store_block};
use crate::gguf;
use crate::write::{
    Item, ListedTensor, Shape, Target, WriteProgress, config_json, directory, gguf as gguf_file, gguf_metadata, hybrid,
};
use crate::{Architecture, Checkpoint, Error, Format, ModelConfig, Tensor};

/// Write the synthetic checkpoint `spec` (`ARCH:FORMAT`) to `out`: a directory as Hugging Face has it
/// for `f32`, `f16` and `bf16` (of several files above 4 GiB), the same quantised by MLX for `mlx2` to
/// `mlx8`, a GGUF file for the rest. The weights are those of [`Checkpoint::synthetic`].
///
/// `progress` is told after every piece, and may break to stop.
///
/// # Errors
/// If `spec` is not known, something is at `out` already, the disk is full or the system refuses
/// otherwise, or `progress` stopped it. Nothing is left at `out` then, nor beside it.
pub fn write(spec: &str, out: &Path, progress: &dyn Fn(WriteProgress) -> ControlFlow<()>) -> Result<(), Error> {
    write_shards(spec, out, directory::SHARD, progress)
}

/// [`write()`] with files of at most `shard` bytes of weights, where the format splits them.
pub(super) fn write_shards(
    spec: &str,
    out: &Path,
    shard: u64,
    progress: &dyn Fn(WriteProgress) -> ControlFlow<()>,
) -> Result<(), Error> {
    let checkpoint = Checkpoint::synthetic(spec)?;
    let spec = Spec::parse(spec)?;
    let gguf = spec.format() == Format::Gguf;
    if gguf != out.extension().is_some_and(|extension| extension == "gguf") {
        return Err(Error::Synthetic {
            spec: spec.label(),
            reason: match gguf {
                true => format!(
                    "it is a GGUF file, whose name must end in .gguf; {} is no name for that",
                    out.display()
                ),
                false => format!("it is a directory; {} is no name for that", out.display()),
            },
        });
    }
    let shape = if gguf { Shape::File } else { Shape::Directory };
    let mut target = Target::new(out, shape, false, progress)?;
    let config = checkpoint.config();
    let tensors = checkpoint.tensors().filter_map(|info| checkpoint.tensor(&info.name));
    if !gguf {
        let items = tensors.map(|tensor| hybrid::published(config, Item::planes(tensor)));
        let contents = directory::DirectoryContents {
            config: config_json::object(config, spec.weights().of_vectors()),
            files: Vec::new(),
            framework: match config.quantisation {
                Some(_) => "mlx",
                None => "pt",
            },
        };
        let written = directory::write(&contents, items.collect(), shard, &mut target)?;
        return target.finish_directory(written);
    }
    if config.architecture == Architecture::Qwen3_5Moe {
        return Err(Error::Synthetic {
            spec: spec.label(),
            reason: "no GGUF file of this architecture can be written; f32, f16, bf16 and MLX's formats can".to_owned(),
        });
    }
    let mut metadata = gguf_metadata::metadata(&spec.name(), spec.weights().file_type(), config);
    metadata.extend(gguf_metadata::no_tokenizer(config));
    let mut items = gguf_metadata::rope_items(config);
    items.extend(tensors.map(|tensor| gguf_item(config, tensor)));
    let written = gguf_file::write(&metadata, &items, &mut target)?;
    target.finish_file(written)
}

/// A tensor as a GGUF file has it.
fn gguf_item<'a>(config: &ModelConfig, tensor: Tensor<'a>) -> Item<'a> {
    let info = tensor.info;
    let part = ListedTensor {
        name: gguf::name(config.architecture, &info.name).unwrap_or_else(|| info.name.clone()),
        encoding: info.encoding,
        shape: info.shape.clone(),
        bytes: info.bytes,
    };
    if !tensor.is_quantised() {
        let mut item = Item::planes(tensor);
        item.parts = vec![part];
        return item;
    }
    let order = gguf::row_order(config, &info.name);
    Item::single(part, info.rows(), move |rows, out| pack_rows(&tensor, rows, order, out))
}

/// Packs these rows of the file into `out`.
fn pack_rows(tensor: &Tensor<'_>, rows: Range<usize>, order: RowOrder, out: &mut [u8]) -> Result<(), Error> {
    let Some(format) = tensor.info.encoding.block() else {
        return Ok(());
    };
    let all = tensor.info.rows().max(1) as u64;
    let [quants, scales, biases] =
        [tensor.quants_bytes(), tensor.scales_bytes(), tensor.biases_bytes()].map(|bytes| (bytes / all) as usize);
    let blocks = tensor.info.columns() / format.values;
    let buffers = || [vec![0; quants], vec![0; scales], vec![0; biases]];
    let pack = |[quants, scales, biases]: &mut [Vec<u8>; 3], (out, row): (&mut [u8], usize)| {
        let row = order.logical(row) as u64;
        tensor.write_quants(row * quants.len() as u64, quants)?;
        tensor.write_scales(row * scales.len() as u64, scales)?;
        if !biases.is_empty() {
            tensor.write_biases(row * biases.len() as u64, biases)?;
        }
        let block_bytes = out.len() / blocks;
        for (index, block) in out.chunks_exact_mut(block_bytes).enumerate() {
            let [quants, scale, bias] = [&*quants, &*scales, &*biases].map(|plane| {
                let bytes = plane.len() / blocks;
                &plane[index * bytes..][..bytes]
            });
            store_block(format, quants, scale, bias, block);
        }
        Ok(())
    };
    let row_bytes = tensor.info.bytes as usize / all as usize;
    let rows = out.par_chunks_exact_mut(row_bytes).zip(rows);
    rows.try_for_each_init(buffers, pack)
}
