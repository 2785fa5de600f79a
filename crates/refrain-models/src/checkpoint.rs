//! A checkpoint of a supported model: tensors under Hugging Face names, configuration, tokenizer and chat template.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use refrain_formats::{CheckpointFiles, Error, Format, GenerationConfig, RowOrder, Tensor, TensorInfo, TensorOrder};
use refrain_text::{ChatTemplate, Tokenizer};

use crate::config::{ModelConfig, keys, rope_gguf, wrapper};
use crate::demo;
use crate::families::FAMILIES;
use crate::family::{self, Family};
use crate::synthetic::SyntheticSpec;
use crate::tensors::TensorRow;

/// A checkpoint, opened and checked. Weights stay in the mapped files until they are read.
#[derive(Debug)]
pub struct Checkpoint {
    files: CheckpointFiles,
    config: ModelConfig,
    generation: GenerationConfig,
    is_text_part: bool,
}

impl Checkpoint {
    /// Opens a checkpoint: a directory with `config.json` and `*.safetensors` files (plain, or quantised by MLX), a
    /// `.gguf` file (any part of a split model), or a directory with one GGUF model. Maps the files without reading
    /// the weights. Checks headers, configuration, and every tensor's byte range and shape.
    ///
    /// # Errors
    /// If there is no checkpoint at `path`, a file is missing or corrupt, or the model is not supported.
    pub fn open(path: &Path) -> Result<Checkpoint, Error> {
        Self::read(CheckpointFiles::open(path)?, FAMILIES)
    }

    /// Opens a checkpoint by the name that a user gives: `demo`, `synthetic:ARCH:FORMAT`, a path, or a name that
    /// `locate` finds the path of.
    ///
    /// # Errors
    /// As [`Checkpoint::open`] and [`Checkpoint::synthetic`], and those of `locate`.
    pub fn named<E: From<Error>>(name: &str, locate: impl FnOnce(&str) -> Result<PathBuf, E>) -> Result<Checkpoint, E> {
        if name == demo::NAME {
            return Ok(demo::checkpoint()?);
        }
        if let Some(spec) = name.strip_prefix("synthetic:") {
            return Ok(Self::synthetic(spec)?);
        }
        let path = Path::new(name);
        let path = if path.exists() { path.to_owned() } else { locate(name)? };
        Ok(Self::open(&path)?)
    }

    /// Opens a checkpoint that is embedded in the program: the files of a checkpoint directory, by name.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_files(
        files: impl IntoIterator<Item = (impl Into<String>, impl Into<Cow<'static, [u8]>>)>,
    ) -> Result<Checkpoint, Error> {
        Self::read(CheckpointFiles::from_files(files)?, FAMILIES)
    }

    /// Opens a GGUF file in memory.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_gguf_bytes(bytes: impl Into<Cow<'static, [u8]>>) -> Result<Checkpoint, Error> {
        Self::read(CheckpointFiles::from_gguf_bytes(bytes)?, FAMILIES)
    }

    /// Creates a checkpoint of random weights with the shape of a real model: `ARCH:FORMAT`, such as `qwen3-8b:q4_0`.
    /// [`crate::architectures`] and [`refrain_formats::synthetic::formats`] list both. Weights are generated on each
    /// read, so they take no memory and are always the same. There is no tokenizer.
    ///
    /// # Errors
    /// If the architecture or format is unknown.
    pub fn synthetic(spec: &str) -> Result<Checkpoint, Error> {
        Ok(Self::from_spec(&SyntheticSpec::parse(spec, FAMILIES)?))
    }

    /// [`Checkpoint::synthetic`] of a parsed name.
    pub fn from_spec(spec: &SyntheticSpec) -> Checkpoint {
        let config = spec.config();
        Self {
            files: spec.files(&config),
            generation: GenerationConfig {
                eos_ids: config.eos_ids.clone(),
                ..GenerationConfig::default()
            },
            config,
            is_text_part: false,
        }
    }

    /// Reads the model of open files, which must be of one of `families` (usually [`FAMILIES`]).
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn read(mut files: CheckpointFiles, families: &[&'static Family]) -> Result<Checkpoint, Error> {
        let Some(metadata) = files.metadata() else {
            return Err(Error::file(files.name(), "has no model configuration"));
        };
        let (metadata, is_text_part) = match metadata.object() {
            None => (metadata, false),
            Some(object) => match wrapper::text_config(object, families) {
                (Cow::Owned(text), true) => (metadata.with_object(text), true),
                _ => (metadata, false),
            },
        };
        let family = family::find(&metadata, families)?;
        keys::check(&metadata, family)?;
        let mut config = (family.read)(&metadata)?;
        let is_nested = is_text_part || family.wrapper.is_some();
        if let Some(quantisation) = config.quantisation.as_mut().filter(|_| is_nested) {
            let overrides = std::mem::take(&mut quantisation.overrides).into_iter();
            quantisation.overrides = overrides
                .filter_map(|(layer, own)| Some((wrapper::text_name(&layer)?, own)))
                .collect();
        }
        config.validate(metadata.file())?;
        let mut generation = files.generation()?;
        for id in &config.eos_ids {
            if !generation.eos_ids.contains(id) {
                generation.eos_ids.push(*id);
            }
        }
        match files.format() {
            Format::Gguf => map_gguf_tensors(&mut files, &config)?,
            _ => read_directory(&mut files, &mut config, is_text_part)?,
        }
        let mut opened = Checkpoint {
            files,
            config,
            generation,
            is_text_part,
        };
        if opened.lacks_part_of_head() {
            opened.config.mtp_layers = 0;
        }
        if opened.format() != Format::Gguf {
            opened.config.tie_word_embeddings &= !opened.has_untied_head();
        }
        Ok(opened)
    }

    /// Whether a tensor of the multi-token prediction head is missing: the model runs without it.
    fn lacks_part_of_head(&self) -> bool {
        if self.config.mtp_layers == 0 {
            return false;
        }
        let rows = (self.config.family.tensors)(&self.config).into_iter();
        // Experts have several layouts.
        let mut needed =
            rows.filter(|row| row.required && self.config.is_mtp(&row.name) && !row.name.contains(".mlp.experts."));
        needed.any(|row| self.tensor(&row.name).is_none())
    }

    /// Whether the output head has other values than the token embedding although the configuration ties them.
    /// transformers (since version 5) and llama.cpp follow the weights then; mlx-lm follows the configuration of most
    /// families.
    fn has_untied_head(&self) -> bool {
        if self.format() == Format::Mlx && self.config.family.mlx_keeps_head {
            return self.tensor("lm_head.weight").is_some();
        }
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
        // Reading a whole head would take as long as loading it, so sample rows: published heads are often copies of
        // the embedding. A trained head differs in nearly every row, or in the last row, where added tokens are.
        let mut compared = (0..rows).step_by((rows / 1024).max(1)).chain(rows.checked_sub(1));
        compared.any(|number| one.get(row(number)) != other.get(row(number)))
    }

    /// The checkpoint's files.
    pub fn files(&self) -> &CheckpointFiles {
        &self.files
    }

    /// Name for messages.
    pub fn name(&self) -> &str {
        self.files.name()
    }

    /// Kind of checkpoint; for random weights, the kind that writing them creates.
    pub fn format(&self) -> Format {
        self.files.format()
    }

    /// Most common encoding of the weights by bytes, such as `q4_k`.
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

    /// Sampling defaults of the model, and the tokens that end a text.
    pub fn generation(&self) -> &GenerationConfig {
        &self.generation
    }

    /// Whether this is the text model of a multimodal checkpoint. Images are not supported.
    pub fn is_text_part(&self) -> bool {
        self.is_text_part
    }

    /// All tensors, sorted by name.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.files.tensors()
    }

    /// Returns a tensor by its Hugging Face name.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.files.tensor(name)
    }

    /// Returns a required tensor of this shape.
    ///
    /// # Errors
    /// If there is no such tensor, its shape differs, or no model supports its encoding.
    pub fn expect(&self, name: &str, shape: &[usize]) -> Result<Tensor<'_>, Error> {
        self.files.expect(name, shape)
    }

    /// The model's tokenizer.
    ///
    /// # Errors
    /// If there is none, or it is corrupt or not supported.
    pub fn tokenizer(&self) -> Result<Tokenizer, Error> {
        Ok(Tokenizer::of(&self.files)?.with_eos_ids(&self.generation.eos_ids))
    }

    /// The special tokens with a role (`bos_token`, `eos_token` …), as chat templates see them.
    ///
    /// # Errors
    /// If a file that lists them is corrupt.
    pub fn special_tokens(&self) -> Result<BTreeMap<String, String>, Error> {
        refrain_text::special_tokens(&self.files)
    }

    /// The model's chat template; `None` if there is none.
    ///
    /// # Errors
    /// If its file is corrupt. Syntax errors surface when the template is rendered.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, Error> {
        ChatTemplate::of(&self.files)
    }
}

/// Maps the tensors of a GGUF file to Hugging Face names and row order. Removes tensors that belong to the
/// configuration.
fn map_gguf_tensors(files: &mut CheckpointFiles, config: &ModelConfig) -> Result<(), Error> {
    let rows = (config.family.tensors)(config);
    let known: HashMap<&str, &TensorRow> = rows.iter().map(|row| (&row.gguf[..], row)).collect();
    files.map_tensors(|info| {
        if rope_gguf::holds_factors(&info.name) {
            return Ok(None);
        }
        let Some(row) = known.get(&info.name[..]) else {
            let is_model = !is_beyond(&info.name, "blk.", config.layers);
            return Ok(is_model.then(|| RowOrder::AsStored.into()));
        };
        info.name.clone_from(&row.name);
        if info.shape == row.gguf_shape() {
            info.shape.clone_from(&row.shape);
        }
        Ok(Some(row.gguf_order()))
    })
}

/// Whether a tensor belongs to a layer beyond the model's: a multi-token prediction layer.
fn is_beyond(name: &str, prefix: &str, layers: usize) -> bool {
    let number = name
        .strip_prefix(prefix)
        .and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
    number.is_some_and(|number| number >= layers)
}

/// Reads the weights of a directory under the names and shapes of transformers, whichever tool wrote them. Experts in
/// one tensor are `mlp.experts.PART` `[E, N, K]`; weights of short convolutions are `[C, W]`.
fn read_directory(files: &mut CheckpointFiles, config: &mut ModelConfig, is_text_part: bool) -> Result<(), Error> {
    // mlx-lm saves these families as a part of the multimodal model, whatever the configuration is.
    let is_nested = is_text_part || config.family.wrapper.is_some();
    let own = |name: &str| {
        if is_nested {
            wrapper::text_name(name)
        } else {
            Some(name.to_owned())
        }
    };
    files.read_weights(config.quantisation.as_ref(), &own)?;
    // Most conversions leave the head out, but not the setting.
    let [fc, _] = config.family.mtp.fc_weight(config.layers);
    if files.tensor(&fc).is_none() {
        config.mtp_layers = 0;
    }
    // Of a head, what its tensors are: copies of embedding and output head may be beside them, and further heads behind.
    let model = config.clone();
    let all = (model.mtp_layers > 0).then(|| (model.family.tensors)(&model));
    let names = all.into_iter().flatten().map(|row| row.name);
    let of_head: HashSet<String> = names.filter(|name| model.is_mtp(name)).collect();
    let experts = format!("{}.mlp.experts.", model.layer_name(model.layers));
    let is_unused = |name: &str| {
        let is_of_head = of_head.contains(name) || (!of_head.is_empty() && name.starts_with(&experts));
        model.is_mtp(name) && !is_of_head
    };
    let rows = if config.feed_forward.moe.as_ref().is_some_and(|moe| moe.style.transposed) {
        (config.family.tensors)(config)
    } else {
        Vec::new()
    };
    let known: HashMap<&str, &TensorRow> = rows.iter().map(|row| (&row.name[..], row)).collect();
    files.map_tensors(|info| {
        if is_unused(&info.name) {
            return Ok(None);
        }
        if let Some(name) = stacked_expert_name(&info.name) {
            info.name = name;
            // Only mlx-lm uses these names; it has already added 1 to the norms' weights.
            config.norm.offset = 0.0;
            return Ok(Some(RowOrder::AsStored.into()));
        }
        if let Some(row) = known.get(&info.name[..]) {
            return Ok(Some(order_in_directory(row, info).into()));
        }
        // A filter's taps and its single channel, in either order.
        if info.name.ends_with("conv1d.weight")
            && let [channels, first, last] = info.shape[..]
        {
            info.shape = vec![channels, first * last];
            if last == 1 && first > 1 {
                // Only mlx-lm uses this order; it has already added 1 to the norms' weights.
                config.norm.offset = 0.0;
            }
        }
        Ok(Some(TensorOrder::from(RowOrder::AsStored)))
    })?;
    if config.attention.mla.is_some() {
        join_latent_projections(files, config)?;
    }
    if is_text_part {
        // The configurations of the multimodal and the text model contradict each other here.
        config.tie_word_embeddings = files.tensor("lm_head.weight").is_none();
    }
    Ok(())
}

/// Joins the projections from latent vectors to keys and to values, which mlx-lm stores apart, to transformers' one.
fn join_latent_projections(files: &mut CheckpointFiles, config: &ModelConfig) -> Result<(), Error> {
    for number in 0..config.layers + config.mtp_layers {
        let name = |part: &str| format!("{}.self_attn.{part}.weight", config.layer_name(number));
        files.join_heads(&name("kv_b_proj"), [&name("embed_q"), &name("unembed_out")])?;
    }
    Ok(())
}

/// Row order of a tensor in a directory of transformers. Sets the shape to that of `row` if the file stores another.
fn order_in_directory(row: &TensorRow, info: &mut TensorInfo) -> RowOrder {
    if info.encoding.quantised().is_some() {
        return if info.shape == row.shape {
            row.hf_rows.within_column()
        } else {
            RowOrder::AsStored
        };
    }
    if info.shape != row.hf_rows.stored_shape(&row.shape) {
        return RowOrder::AsStored;
    }
    info.shape.clone_from(&row.shape);
    row.hf_rows
}

/// Converts mlx-lm's name of a tensor of all experts to that of transformers.
fn stacked_expert_name(name: &str) -> Option<String> {
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
    fn mlx_expert_names_map_to_transformers() {
        let name = "model.layers.3.mlp.switch_mlp.up_proj.weight";
        assert_eq!(
            stacked_expert_name(name).as_deref(),
            Some("model.layers.3.mlp.experts.up_proj")
        );
        let name = "model.layers.3.mlp.experts.up_proj.bias";
        assert_eq!(
            stacked_expert_name(name).as_deref(),
            Some("model.layers.3.mlp.experts.up_proj_bias")
        );
        for name in [
            "model.layers.3.mlp.experts.up_proj",
            "model.layers.3.mlp.experts.3.up_proj.weight",
        ] {
            assert_eq!(stacked_expert_name(name), None);
        }
    }
}
