//! A checkpoint: the files of a model of a known family, under one naming.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use refrain_formats::{
    CheckpointFiles, Encoding, Error, Format, GenerationConfig, RowOrder, Tensor, TensorInfo, TensorOrder,
};
use refrain_text::{ChatTemplate, Tokenizer};

use crate::config::{ModelConfig, keys, rope_gguf, wrapper};
use crate::families::FAMILIES;
use crate::family::{self, Family};
use crate::synthetic::SyntheticSpec;
use crate::tensors::TensorRow;

/// A checkpoint, opened and checked. Its weights stay in the mapped files until they are read.
#[derive(Debug)]
pub struct Checkpoint {
    files: CheckpointFiles,
    config: ModelConfig,
    generation: GenerationConfig,
    text_part: bool,
}

impl Checkpoint {
    /// Open a checkpoint: a directory with `config.json` and `*.safetensors` files (plain, or
    /// quantised by MLX), a `.gguf` file (of a split model any part), or a directory that holds one
    /// GGUF model. The files are mapped, not read; headers, configuration, and every tensor's byte
    /// range and shape are checked.
    ///
    /// # Errors
    /// If there is no checkpoint at `path`, a file is missing or damaged, or the model is of a kind
    /// that is not supported.
    pub fn open(path: &Path) -> Result<Checkpoint, Error> {
        Self::read(CheckpointFiles::open(path)?, FAMILIES)
    }

    /// Open a checkpoint that is embedded in the program: the files that a checkpoint directory
    /// would hold, by name.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_files(
        files: impl IntoIterator<Item = (impl Into<String>, impl Into<Cow<'static, [u8]>>)>,
    ) -> Result<Checkpoint, Error> {
        Self::read(CheckpointFiles::from_files(files)?, FAMILIES)
    }

    /// Open a GGUF file that is held in memory.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_gguf_bytes(bytes: impl Into<Cow<'static, [u8]>>) -> Result<Checkpoint, Error> {
        Self::read(CheckpointFiles::from_gguf_bytes(bytes)?, FAMILIES)
    }

    /// A checkpoint of random weights in the shape of a real model: `ARCH:FORMAT`, such as
    /// `qwen3-8b:q4_0` ([`crate::architectures`] and [`refrain_formats::synthetic::formats`] list both). It takes
    /// no memory: weights are made when they are read, always the same. It has no tokenizer.
    ///
    /// # Errors
    /// If architecture or format are not known.
    pub fn synthetic(spec: &str) -> Result<Checkpoint, Error> {
        Ok(Self::made(&SyntheticSpec::parse(spec, FAMILIES)?))
    }

    /// [`Checkpoint::synthetic`] of a name that has been read.
    pub fn made(spec: &SyntheticSpec) -> Checkpoint {
        let config = spec.config();
        Self {
            files: spec.files(&config),
            generation: GenerationConfig {
                eos_ids: config.eos_ids.clone(),
                ..GenerationConfig::default()
            },
            config,
            text_part: false,
        }
    }

    /// What opened files hold, if it is a model of one of `families`: [`FAMILIES`], or others.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn read(mut files: CheckpointFiles, families: &[&'static Family]) -> Result<Checkpoint, Error> {
        let Some(metadata) = files.metadata() else {
            return Err(Error::file(files.name(), "says nothing of a model"));
        };
        let (metadata, text_part) = match metadata.object() {
            None => (metadata, false),
            Some(object) => match wrapper::text_config(object, families) {
                (Cow::Owned(text), true) => (metadata.with_object(text), true),
                _ => (metadata, false),
            },
        };
        let family = family::find(&metadata, families)?;
        keys::check(&metadata, family)?;
        let mut config = (family.read)(&metadata)?;
        if let Some(quantisation) = config.quantisation.as_mut().filter(|_| text_part) {
            let overrides = std::mem::take(&mut quantisation.overrides).into_iter();
            quantisation.overrides = overrides
                .filter_map(|(layer, own)| Some((wrapper::text_name(&layer)?, own)))
                .collect();
        }
        config.validate(metadata.file())?;
        let mut generation = files.generation()?;
        if generation.eos_ids.is_empty() {
            generation.eos_ids = config.eos_ids.clone();
        }
        match files.format() {
            Format::Gguf => arrange_gguf(&mut files, &config)?,
            _ => read_directory(&mut files, &mut config, text_part)?,
        }
        let mut opened = Checkpoint {
            files,
            config,
            generation,
            text_part,
        };
        if opened.format() != Format::Gguf {
            opened.config.tie_word_embeddings &= !opened.has_head_of_its_own();
        }
        Ok(opened)
    }

    /// Whether there is an output head of other values than the token embedding. Where the configuration says that they
    /// are one, transformers (from version 5 on) and llama.cpp believe the weights; mlx-lm, the configuration.
    fn has_head_of_its_own(&self) -> bool {
        let named = |name: &str| self.tensor(name).filter(|tensor| !tensor.is_quantised());
        let (Some(embedding), Some(head)) = (named("model.embed_tokens.weight"), named("lm_head.weight")) else {
            return false;
        };
        let (Ok(one), Ok(other)) = (embedding.data(), head.data()) else {
            return false;
        };
        if self.format() == Format::Mlx || embedding.info.shape != head.info.shape {
            return false;
        }
        if embedding.info.encoding != head.info.encoding {
            return true;
        }
        let (rows, width) = (embedding.info.rows(), one.len() / embedding.info.rows().max(1));
        let row = |number: usize| number * width..(number + 1) * width;
        // Published heads are often copies of the embedding, which to read as a whole would take as long as to load it.
        // Those that were trained differ in nearly every row, or in the last, which tokens were added as.
        let mut compared = (0..rows).step_by((rows / 1024).max(1)).chain(rows.checked_sub(1));
        compared.any(|number| one.get(row(number)) != other.get(row(number)))
    }

    /// Its files.
    pub fn files(&self) -> &CheckpointFiles {
        &self.files
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        self.files.name()
    }

    /// The kind of checkpoint; of a synthetic one, the kind that is made of it when it is written.
    pub fn format(&self) -> Format {
        self.files.format()
    }

    /// What most bytes of the weights are, such as `q4_k`.
    pub fn weight_format(&self) -> String {
        let mut bytes: BTreeMap<String, u64> = BTreeMap::new();
        for tensor in self.tensors() {
            *bytes.entry(tensor.encoding.to_string().to_lowercase()).or_default() += tensor.bytes;
        }
        let most = bytes.into_iter().max_by_key(|(_, bytes)| *bytes);
        most.map_or_else(String::new, |(format, _)| format)
    }

    /// The model's hyperparameters.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// How the model's makers suggest to sample from it, and the tokens that end a text.
    pub fn generation(&self) -> &GenerationConfig {
        &self.generation
    }

    /// Whether this is the text model of a checkpoint that also takes images, which are not supported.
    pub fn is_text_part(&self) -> bool {
        self.text_part
    }

    /// All tensors, sorted by name.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.files.tensors()
    }

    /// A tensor by its name in Hugging Face's naming.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.files.tensor(name)
    }

    /// A tensor that the model needs, in the shape that it needs.
    ///
    /// # Errors
    /// If there is no such tensor, its shape is another, or its encoding is one that no model
    /// reads.
    pub fn expect(&self, name: &str, shape: &[usize]) -> Result<Tensor<'_>, Error> {
        let Some(tensor) = self.tensor(name) else {
            if self.tensors().next().is_none() {
                let reason =
                    "holds no weights, only what goes with them: it can tokenize texts and render chat templates";
                return Err(Error::file(self.name(), reason));
            }
            return Err(Error::MissingTensor {
                checkpoint: self.name().to_owned(),
                tensor: name.to_owned(),
            });
        };
        if tensor.info.shape != shape {
            return Err(Error::Shape {
                checkpoint: self.name().to_owned(),
                tensor: name.to_owned(),
                found: tensor.info.shape.clone(),
                expected: shape.to_owned(),
            });
        }
        if let Encoding::Other(kind) = tensor.info.encoding {
            return Err(tensor.error(format!("weights stored as {kind} are not supported")));
        }
        Ok(tensor)
    }

    /// The model's tokenizer.
    ///
    /// # Errors
    /// If there is none, or it is damaged or of a kind that is not supported.
    pub fn tokenizer(&self) -> Result<Tokenizer, Error> {
        Ok(Tokenizer::of(&self.files)?.with_eos_ids(&self.generation.eos_ids))
    }

    /// The special tokens that have a role (`bos_token`, `eos_token` …), as templates see them.
    ///
    /// # Errors
    /// If a file that names them is damaged.
    pub fn special_tokens(&self) -> Result<BTreeMap<String, String>, Error> {
        refrain_text::special_tokens(&self.files)
    }

    /// The model's chat template, `None` if it has none.
    ///
    /// # Errors
    /// If the file that holds it is damaged. Whether it parses is seen when it is rendered.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, Error> {
        ChatTemplate::of(&self.files)
    }
}

/// Gives the tensors of a GGUF file their names and the order of their rows; what holds settings is left out.
fn arrange_gguf(files: &mut CheckpointFiles, config: &ModelConfig) -> Result<(), Error> {
    let rows = (config.family.tensors)(config);
    let known: HashMap<&str, &TensorRow> = rows.iter().map(|row| (&row.gguf[..], row)).collect();
    files.arrange(|info| {
        if rope_gguf::holds_factors(&info.name) || is_beyond(&info.name, "blk.", config.layers) {
            return Ok(None);
        }
        let Some(row) = known.get(&info.name[..]) else {
            return Ok(Some(RowOrder::AsStored.into()));
        };
        info.name.clone_from(&row.name);
        if info.shape == row.gguf_shape() {
            info.shape.clone_from(&row.shape);
        }
        Ok(Some(row.in_gguf()))
    })
}

/// Whether a tensor belongs to a layer behind the model's, which predicts further tokens.
fn is_beyond(name: &str, prefix: &str, layers: usize) -> bool {
    let number = name
        .strip_prefix(prefix)
        .and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
    number.is_some_and(|number| number >= layers)
}

/// Reads the weights of a directory, under the names and in the shapes of transformers, whichever tool wrote them:
/// experts in one tensor are `mlp.experts.PART` `[E, N, K]`; the weights of short convolutions are `[C, W]`.
fn read_directory(files: &mut CheckpointFiles, config: &mut ModelConfig, text_part: bool) -> Result<(), Error> {
    let layers = config.layers;
    let own = |name: &str| match text_part {
        true => wrapper::text_name(name),
        // What predicts further tokens is not read.
        false => (!name.starts_with("mtp.") && !is_beyond(name, "model.layers.", layers)).then(|| name.to_owned()),
    };
    files.read_weights(config.quantisation.as_ref(), &own)?;
    let rows = if config
        .feed_forward
        .mixture
        .as_ref()
        .is_some_and(|mixture| mixture.style.transposed)
    {
        (config.family.tensors)(config)
    } else {
        Vec::new()
    };
    let known: HashMap<&str, &TensorRow> = rows.iter().map(|row| (&row.name[..], row)).collect();
    files.arrange(|info| {
        if let Some(name) = of_experts(&info.name) {
            info.name = name;
            // mlx-lm, which alone names them so, has added a family's one to the norms' weights.
            config.norm.offset = 0.0;
            return Ok(Some(RowOrder::AsStored.into()));
        }
        if let Some(row) = known.get(&info.name[..]) {
            return Ok(Some(order_in_directory(row, info).into()));
        }
        // Taps and the one channel of each filter, in either order.
        if info.name.ends_with("conv1d.weight")
            && let [channels, first, last] = info.shape[..]
        {
            info.shape = vec![channels, first * last];
            if last == 1 && first > 1 {
                // mlx-lm, which alone has them in this order, has added a family's one to the norms' weights.
                config.norm.offset = 0.0;
            }
        }
        Ok(Some(TensorOrder::from(RowOrder::AsStored)))
    })?;
    if text_part {
        // The configurations of the whole and of the text model contradict each other here.
        config.tie_word_embeddings = files.tensor("lm_head.weight").is_none();
    }
    Ok(())
}

/// The order in which a directory of transformers has the rows of a tensor, which gets the shape of `row` where the file
/// has its values in another.
fn order_in_directory(row: &TensorRow, info: &mut TensorInfo) -> RowOrder {
    if info.encoding.quantised().is_some() {
        return if info.shape == row.shape {
            row.in_directory.of_columns()
        } else {
            RowOrder::AsStored
        };
    }
    if info.shape != row.in_directory.stored_shape(&row.shape) {
        return RowOrder::AsStored;
    }
    info.shape.clone_from(&row.shape);
    row.in_directory
}

/// The name of a tensor of all experts that mlx-lm named, as transformers would have it.
fn of_experts(name: &str) -> Option<String> {
    let (layer, part) = name
        .split_once(".switch_mlp.")
        .or_else(|| name.split_once(".experts."))?;
    let (part, kind) = part.split_once('.')?;
    match kind {
        "weight" => Some(format!("{layer}.experts.{part}")),
        "bias" => Some(format!("{layer}.experts.{part}_bias")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_of_mlx_are_named_as_those_of_transformers() {
        let name = "model.layers.3.mlp.switch_mlp.up_proj.weight";
        assert_eq!(of_experts(name).as_deref(), Some("model.layers.3.mlp.experts.up_proj"));
        let name = "model.layers.3.mlp.experts.up_proj.bias";
        assert_eq!(
            of_experts(name).as_deref(),
            Some("model.layers.3.mlp.experts.up_proj_bias")
        );
        for name in [
            "model.layers.3.mlp.experts.up_proj",
            "model.layers.3.mlp.experts.3.up_proj.weight",
        ] {
            assert_eq!(of_experts(name), None);
        }
    }
}
