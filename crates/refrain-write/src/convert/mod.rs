//! Converting a checkpoint to another format: any that opens, to a GGUF file or a directory of safetensors.

mod compare;
mod directory;
pub(crate) mod experts;
mod gguf;
mod recipe;
mod tokenizer_files;
mod vocabulary;

use std::ops::ControlFlow;
use std::path::Path;

use refrain_formats::write::{Shape, Target, WriteProgress};
use refrain_formats::{Encoding, Error};
use refrain_models::{Checkpoint, ModelConfig};

use crate::files::ValueChange;
pub use crate::files::{Converted, Deviation};
pub use recipe::Recipe;
pub use refrain_formats::MixedFile;

/// How to convert.
pub struct ConvertOptions<'a> {
    /// What the weights become.
    pub recipe: Recipe,
    /// What the model is called in the file, where the source has no name for it.
    pub name: &'a str,
    /// Whether a checkpoint that is at the destination already may be replaced.
    pub replace: bool,
    /// Told after every piece that is written; may break to stop.
    pub progress: &'a dyn Fn(WriteProgress) -> ControlFlow<()>,
}

/// What became of a checkpoint.
#[derive(Debug, Clone)]
pub struct Report {
    /// One entry for each tensor, in the order of their names.
    pub tensors: Vec<Converted>,
    /// What the new format cannot say, and what else the user should know.
    pub notes: Vec<String>,
}

/// Convert `source` to `out`: a GGUF file if the recipe is one of GGUF's or `out` ends in `.gguf`, else a
/// directory. Tensors pass through memory a few rows at a time. What was written is opened and compared with the
/// source before it gets its name.
///
/// # Errors
/// If recipe and destination do not fit, something is there already, the new format cannot hold the model, a
/// tensor is damaged, the disk is full, or `progress` stopped it. Nothing is left at `out` then, nor beside it,
/// and what was there before still is.
pub fn convert(source: &Checkpoint, out: &Path, options: &ConvertOptions<'_>) -> Result<Report, Error> {
    let gguf = out.extension().is_some_and(|extension| extension == "gguf");
    if gguf != options.recipe.is_gguf(gguf) {
        return Err(Error::Conversion(format!(
            "{} makes {}; {} is no name for that",
            options.recipe,
            if gguf {
                "a directory"
            } else {
                "a GGUF file, whose name must end in .gguf"
            },
            out.display()
        )));
    }
    let family = source.config().family;
    if gguf && family.gguf.is_none() {
        return Err(Error::Conversion(format!(
            "checkpoints of {family} have no names in GGUF files"
        )));
    }
    let shape = if gguf { Shape::File } else { Shape::Directory };
    let mut target = Target::new(out, shape, options.replace, options.progress)?;
    let mut report = if gguf {
        gguf::write(source, options, &mut target)?
    } else {
        directory::write(source, options, &mut target)?
    };
    report.notes.extend(twice_quantised(&report.tensors, options.recipe));
    Ok(report)
}

/// What becomes of the values of the tensor of this name, if it is one that the two kinds of files have otherwise.
fn change(name: &str, [from, to]: [&ModelConfig; 2]) -> ValueChange {
    let rates = |config: &ModelConfig| config.delta_nets.as_ref().is_some_and(|nets| nets.rates);
    if name.ends_with("linear_attn.A_log") {
        return match (rates(from), rates(to)) {
            (false, true) => ValueChange::NegatedExp,
            (true, false) => ValueChange::LogOfNegated,
            _ => ValueChange::NONE,
        };
    }
    if name.ends_with("norm.weight") && !name.ends_with("linear_attn.norm.weight") {
        ValueChange::Added(from.norm.offset - to.norm.offset)
    } else {
        ValueChange::NONE
    }
}

/// What to say where values lose again that have lost before.
fn twice_quantised(tensors: &[Converted], recipe: Recipe) -> Option<String> {
    let is_quantised = |encoding: Encoding| encoding.quant_bits().is_some();
    let twice = |tensor: &&Converted| is_quantised(tensor.from) && is_quantised(tensor.to) && tensor.from != tensor.to;
    let found = tensors.iter().filter(|_| recipe.is_quantised()).find(twice)?;
    Some(format!(
        "the source is quantised already ({}): what follows from that stays, and {recipe} loses more; better convert \
         the model that it was made of",
        found.from
    ))
}
