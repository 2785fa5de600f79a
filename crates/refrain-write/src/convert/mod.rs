//! Converts any checkpoint that opens to a GGUF file or a directory of safetensors.

mod compare;
mod directory;
pub(crate) mod experts;
mod gguf;
mod recipe;
mod tokenizer_files;
mod vocabulary;

use std::ops::ControlFlow;
use std::path::Path;

use refrain_formats::write::{Target, TargetKind, WriteProgress};
use refrain_formats::{Encoding, Error};
use refrain_models::config::is_norm;
use refrain_models::{Checkpoint, ModelConfig};

use crate::files::ValueChange;
pub use crate::files::{ConvertedTensor, Deviation};
pub use recipe::Recipe;
pub use refrain_formats::QuantMix;

/// Options of a conversion.
pub struct ConvertOptions<'a> {
    /// The target format of the weights.
    pub recipe: Recipe,
    /// The model's name in the file, if the source has none.
    pub name: &'a str,
    /// Whether an existing checkpoint at the destination may be replaced.
    pub replace: bool,
    /// Called after each piece that is written; breaks to cancel.
    pub progress: &'a dyn Fn(WriteProgress) -> ControlFlow<()>,
}

/// The result of a conversion.
#[derive(Debug, Clone)]
pub struct Report {
    /// One entry per tensor, ordered by name.
    pub tensors: Vec<ConvertedTensor>,
    /// What the new format cannot represent, and other things that the user should know.
    pub notes: Vec<String>,
}

/// Converts `source` to `out`: a GGUF file if the recipe is a GGUF format or `out` ends in `.gguf`, else a
/// directory. Tensors are streamed a few rows at a time. The result is opened and compared with the source before
/// it is moved to `out`.
///
/// # Errors
/// If the recipe does not fit the destination, or the destination exists. If the new format cannot represent the
/// model, or a tensor is damaged. If the disk is full, or `progress` cancelled. In all cases nothing is left at or
/// beside `out`, and what was there before is unchanged.
pub fn convert(source: &Checkpoint, out: &Path, options: &ConvertOptions<'_>) -> Result<Report, Error> {
    let gguf = out.extension().is_some_and(|extension| extension == "gguf");
    if gguf != options.recipe.is_gguf(gguf) {
        return Err(Error::Conversion(format!(
            "{} writes {}, not {}",
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
        return Err(Error::Conversion(format!("{family} has no tensor names in GGUF")));
    }
    let kind = if gguf { TargetKind::File } else { TargetKind::Directory };
    let mut target = Target::new(out, kind, options.replace, options.progress)?;
    let mut report = if gguf {
        gguf::write(source, options, &mut target)?
    } else {
        directory::write(source, options, &mut target)?
    };
    report
        .notes
        .extend(requantisation_note(&report.tensors, options.recipe));
    Ok(report)
}

/// Returns how the values of a tensor differ between the two formats.
fn change(name: &str, [from, to]: [&ModelConfig; 2]) -> ValueChange {
    let rates = |config: &ModelConfig| config.delta_net.as_ref().is_some_and(|nets| nets.holds_decay_rates);
    if name.ends_with("linear_attn.A_log") {
        return match (rates(from), rates(to)) {
            (false, true) => ValueChange::NegatedExp,
            (true, false) => ValueChange::LogOfNegated,
            _ => ValueChange::NONE,
        };
    }
    if is_norm(name) && !name.ends_with("linear_attn.norm.weight") {
        ValueChange::Added(from.norm.offset - to.norm.offset)
    } else {
        ValueChange::NONE
    }
}

/// Returns a note if quantised values are quantised again.
fn requantisation_note(tensors: &[ConvertedTensor], recipe: Recipe) -> Option<String> {
    let is_quantised = |encoding: Encoding| encoding.quant_bits().is_some();
    let is_requantised =
        |tensor: &&ConvertedTensor| is_quantised(tensor.from) && is_quantised(tensor.to) && tensor.from != tensor.to;
    let found = tensors.iter().filter(|_| recipe.is_quantised()).find(is_requantised)?;
    Some(format!(
        "the source is already quantised ({}), and {recipe} adds to its error; convert the original model \
         instead if you can",
        found.from
    ))
}
