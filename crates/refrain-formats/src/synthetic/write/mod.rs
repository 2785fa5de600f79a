//! Writing a synthetic checkpoint to disk, a piece at a time.

mod config_json;
mod directory;
mod gguf;
mod gguf_header;

use std::fs::File;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;

use super::Spec;
use crate::{Checkpoint, Error, Format, Tensor};

/// Bytes that are made before they are written: what writing takes of memory.
const PIECE: usize = 16 << 20;

/// Safetensors files are split above this many bytes.
const SHARD: u64 = 4 << 30;

/// How far writing has come, in bytes of weights.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Written so far.
    pub done: u64,
    /// To be written in all.
    pub total: u64,
}

/// What is told of the progress; it may ask to stop.
type Report<'a> = &'a dyn Fn(Progress) -> ControlFlow<()>;

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
    write_shards(spec, out, SHARD, progress)
}

/// [`write`] with files of at most `shard` bytes of weights, where the format splits them.
pub(super) fn write_shards(spec: &str, out: &Path, shard: u64, progress: Report<'_>) -> Result<(), Error> {
    let checkpoint = Checkpoint::synthetic(spec)?;
    let spec = Spec::parse(spec)?;
    if out.symlink_metadata().is_ok() {
        let reason = "it exists already; remove it, or choose another name";
        return Err(failed(out)(io::Error::new(io::ErrorKind::AlreadyExists, reason)));
    }
    let mut target = Target {
        out,
        done: 0,
        total: checkpoint.tensors().map(|tensor| tensor.bytes).sum(),
        progress,
    };
    match spec.format() {
        Format::Gguf => gguf::write(&spec, &checkpoint, &mut target),
        Format::Safetensors | Format::Mlx => directory::write(&checkpoint, shard, &mut target),
    }
}

/// What goes wrong in writing `out`.
fn failed(out: &Path) -> impl Fn(io::Error) -> Error + use<> {
    let path = out.to_owned();
    move |source| Error::Write {
        path: path.clone(),
        source,
    }
}

/// The directory that `out` lies in.
fn parent(out: &Path) -> &Path {
    match out.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Names of unfinished files and directories, which get the permissions that new ones get.
fn unfinished<'a>() -> tempfile::Builder<'a, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".refrain-").suffix(".partial");
    builder
}

/// The permissions of new files (before the user's mask), rather than those of private ones.
#[cfg(unix)]
fn permissions(mode: u32) -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(mode)
}

/// What is written, and how far that has come.
struct Target<'a> {
    out: &'a Path,
    done: u64,
    total: u64,
    progress: Report<'a>,
}

impl Target<'_> {
    fn io<T>(&self, result: io::Result<T>) -> Result<T, Error> {
        result.map_err(failed(self.out))
    }

    /// Writes bytes that count for the progress.
    fn write(&mut self, file: &mut File, bytes: &[u8]) -> Result<(), Error> {
        self.io(file.write_all(bytes))?;
        self.done += bytes.len() as u64;
        let progress = Progress {
            done: self.done.min(self.total),
            total: self.total,
        };
        match (self.progress)(progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Stopped {
                path: self.out.to_owned(),
            }),
        }
    }

    /// Writes a whole plane of a tensor.
    fn write_plane(&mut self, file: &mut File, tensor: &Tensor<'_>, plane: Plane) -> Result<(), Error> {
        let total = plane.bytes(tensor);
        let mut piece = vec![0; total.min(PIECE as u64) as usize];
        let mut offset = 0;
        while offset < total {
            let length = (total - offset).min(PIECE as u64) as usize;
            plane.read(tensor, offset, &mut piece[..length])?;
            self.write(file, &piece[..length])?;
            offset += length as u64;
        }
        Ok(())
    }
}

/// The planes of a tensor.
#[derive(Debug, Clone, Copy)]
enum Plane {
    Data,
    Quants,
    Scales,
    Biases,
}

impl Plane {
    fn bytes(self, tensor: &Tensor<'_>) -> u64 {
        match self {
            Plane::Data => tensor.data_bytes(),
            Plane::Quants => tensor.quants_bytes(),
            Plane::Scales => tensor.scales_bytes(),
            Plane::Biases => tensor.biases_bytes(),
        }
    }

    fn read(self, tensor: &Tensor<'_>, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        match self {
            Plane::Data => tensor.write_data(offset, out),
            Plane::Quants => tensor.write_quants(offset, out),
            Plane::Scales => tensor.write_scales(offset, out),
            Plane::Biases => tensor.write_biases(offset, out),
        }
    }
}
