//! A GGUF file.

use std::fs::File;
use std::io::Write;
use std::ops::Range;

use rayon::prelude::*;

use super::gguf_header::{ALIGNMENT, Entry, header, rope_divisors};
use super::{PIECE, Plane, Target, parent, unfinished};
use crate::blocks::{RowOrder, pack_q4_0};
use crate::gguf::{self, ROPE_FACTORS};
use crate::synthetic::Spec;
use crate::{Architecture, Checkpoint, Encoding, Error, Tensor, TensorInfo};

/// Writes all of it beside the target, then gives it its name.
pub(super) fn write(spec: &Spec, checkpoint: &Checkpoint, target: &mut Target<'_>) -> Result<(), Error> {
    let config = checkpoint.config();
    let divisors = rope_divisors(config);
    let mut entries: Vec<Entry> = divisors.iter().map(|divisors| rope_entry(divisors)).collect();
    entries.extend(checkpoint.tensors().map(|info| entry(config.architecture, info)));
    let header = header(&spec.name(), spec.matrix_encoding(), config, &entries);

    let mut builder = unfinished();
    #[cfg(unix)]
    builder.permissions(super::permissions(0o666));
    let mut unfinished = target.io(builder.tempfile_in(parent(target.out)))?;
    let file = unfinished.as_file_mut();
    target.io(file.write_all(&header))?;
    if let Some(divisors) = divisors {
        let bytes: Vec<u8> = divisors.iter().flat_map(|divisor| divisor.to_le_bytes()).collect();
        target.io(file.write_all(&bytes))?;
        pad(file, bytes.len() as u64, target)?;
    }
    for info in checkpoint.tensors() {
        let tensor = checkpoint.expect(&info.name, &info.shape)?;
        match tensor.is_quantised() {
            true => write_blocks(file, &tensor, gguf::row_order(config, &info.name), target)?,
            false => target.write_plane(file, &tensor, Plane::Data)?,
        }
        pad(file, info.bytes, target)?;
    }
    target.io(file.sync_all())?;
    target.io(unfinished.persist_noclobber(target.out).map_err(|error| error.error))?;
    Ok(())
}

fn rope_entry(divisors: &[f32]) -> Entry {
    Entry {
        name: ROPE_FACTORS.to_owned(),
        shape: vec![divisors.len()],
        encoding: Encoding::F32,
        bytes: 4 * divisors.len() as u64,
    }
}

fn entry(architecture: Architecture, info: &TensorInfo) -> Entry {
    Entry {
        name: gguf::name(architecture, &info.name).unwrap_or_else(|| info.name.clone()),
        shape: info.shape.clone(),
        encoding: info.encoding,
        bytes: info.bytes,
    }
}

/// Goes on to where the next tensor begins, after one of so many bytes.
fn pad(file: &mut File, bytes: u64, target: &Target<'_>) -> Result<(), Error> {
    let missing = bytes.next_multiple_of(ALIGNMENT) - bytes;
    target.io(file.write_all(&[0; ALIGNMENT as usize][..missing as usize]))
}

/// Writes a matrix as blocks, its rows in the file's order.
fn write_blocks(file: &mut File, tensor: &Tensor<'_>, order: RowOrder, target: &mut Target<'_>) -> Result<(), Error> {
    let rows = tensor.info.rows();
    let row_bytes = tensor.info.bytes as usize / rows.max(1);
    let per_piece = (PIECE / row_bytes.max(1)).max(1);
    let mut piece = vec![0; per_piece.min(rows) * row_bytes];
    let mut start = 0;
    while start < rows {
        let end = (start + per_piece).min(rows);
        let bytes = &mut piece[..(end - start) * row_bytes];
        pack_rows(tensor, start..end, order, bytes)?;
        target.write(file, bytes)?;
        start = end;
    }
    Ok(())
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
