//! Writing a synthetic checkpoint to disk.

use std::ops::{ControlFlow, Range};
use std::path::Path;

use rayon::prelude::*;

use super::Spec;
use crate::blocks::{RowOrder, pack_q4_0};
use crate::gguf;
use crate::write::{Item, Part, Progress, Target, config_json, directory, gguf as gguf_file, gguf_metadata};
use crate::{Checkpoint, Encoding, Error, Format, ModelConfig, Tensor};

/// Write the synthetic checkpoint `spec` (`ARCH:FORMAT`) to `out`: a directory as Hugging Face has it
/// for `f16` (of several files above 4 GiB), the same quantised by MLX for `mlx4`, a GGUF file for
/// `q8_0` and `q4_0`. The weights are those of [`Checkpoint::synthetic`].
///
/// `progress` is told after every piece, and may break to stop.
///
/// # Errors
/// If `spec` is not known, something is at `out` already, the disk is full or the system refuses
/// otherwise, or `progress` stopped it. Nothing is left at `out` then, nor beside it.
pub fn write(spec: &str, out: &Path, progress: &dyn Fn(Progress) -> ControlFlow<()>) -> Result<(), Error> {
    write_shards(spec, out, directory::SHARD, progress)
}

/// [`write()`] with files of at most `shard` bytes of weights, where the format splits them.
pub(super) fn write_shards(
    spec: &str,
    out: &Path,
    shard: u64,
    progress: &dyn Fn(Progress) -> ControlFlow<()>,
) -> Result<(), Error> {
    let checkpoint = Checkpoint::synthetic(spec)?;
    let spec = Spec::parse(spec)?;
    let mut target = Target::new(out, false, progress)?;
    let config = checkpoint.config();
    let tensors = checkpoint.tensors().filter_map(|info| checkpoint.tensor(&info.name));
    if spec.format() != Format::Gguf {
        let contents = directory::Contents {
            config: config_json::object(config),
            files: Vec::new(),
            framework: match config.quantisation {
                Some(_) => "mlx",
                None => "pt",
            },
        };
        return directory::write(&contents, tensors.map(Item::planes).collect(), shard, &mut target);
    }
    let file_type = match spec.matrix_encoding() {
        Encoding::Q8_0 => 7,
        _ => 2,
    };
    let mut metadata = gguf_metadata::metadata(&spec.name(), file_type, config);
    metadata.extend(gguf_metadata::no_tokenizer(config));
    let mut items = Vec::from_iter(gguf_metadata::rope_item(config));
    items.extend(tensors.map(|tensor| gguf_item(config, tensor)));
    gguf_file::write(&metadata, &items, &mut target)
}

/// A tensor as a GGUF file has it.
fn gguf_item<'a>(config: &ModelConfig, tensor: Tensor<'a>) -> Item<'a> {
    let info = tensor.info;
    let part = Part {
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
    let groups = tensor.info.columns() / 32;
    let quant_bytes = tensor.info.encoding.quant_bits().unwrap_or(8) * 32 / 8;
    let row_bytes = groups * (2 + quant_bytes);
    let buffers = || (vec![0; groups * quant_bytes], vec![0; groups * 2]);
    let pack = |(quants, scales): &mut (Vec<u8>, Vec<u8>), (out, row): (&mut [u8], usize)| {
        let row = order.logical(row) as u64;
        tensor.write_quants(row * quants.len() as u64, quants)?;
        tensor.write_scales(row * scales.len() as u64, scales)?;
        let planes = quants.chunks_exact(quant_bytes).zip(scales.chunks_exact(2));
        for (block, (quants, scale)) in out.chunks_exact_mut(2 + quant_bytes).zip(planes) {
            block[..2].copy_from_slice(scale);
            match tensor.info.encoding {
                Encoding::Q4_0 => pack_q4_0(quants, &mut block[2..]),
                _ => block[2..].copy_from_slice(quants),
            }
        }
        Ok(())
    };
    let rows = out.par_chunks_exact_mut(row_bytes).zip(rows);
    rows.try_for_each_init(buffers, pack)
}
