//! Command-line options for speculation.

use anyhow::bail;
use clap::{Args, ValueEnum};
use refrain::Device;
use refrain_engine::{CacheTypes, Model, Speculation};
use refrain_models::{Checkpoint, ModelConfig};

use crate::cache_args::CacheArguments;
use crate::draft::DraftModel;
use crate::{Global, load, output};

/// Values of `--speculate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SpeculateArgument {
    /// As mtp if the checkpoint has such a head, otherwise as off
    Auto,
    /// Compute one token of a response at a time
    Off,
    /// Look up what followed where the last tokens occurred before, in prompt or response
    Ngram,
    /// Ask the multi-token prediction head of the model's own checkpoint
    Mtp,
}

impl SpeculateArgument {
    /// What guesses for a model.
    pub fn of(self, model: &ModelConfig) -> Speculation {
        match self {
            SpeculateArgument::Auto if model.mtp_layers > 0 => Speculation::Mtp,
            SpeculateArgument::Auto | SpeculateArgument::Off => Speculation::Off,
            SpeculateArgument::Ngram => Speculation::Ngram,
            SpeculateArgument::Mtp => Speculation::Mtp,
        }
    }

    /// Returns why a model cannot be guessed for as asked; `None` if it can.
    pub fn obstacle(self, model: &ModelConfig) -> Option<&'static str> {
        (self == SpeculateArgument::Mtp && model.mtp_layers == 0)
            .then_some("its checkpoint has no multi-token prediction head")
    }
}

/// Options of commands that generate one response at a time.
#[derive(Debug, Args)]
pub(crate) struct SpeculationArguments {
    /// Guess the next tokens, and verify several in one step; responses stay the same
    #[arg(long, value_name = "HOW", default_value = "auto")]
    speculate: SpeculateArgument,
    /// Guess the next tokens with this smaller model of the same tokenizer; responses stay the same
    #[arg(long, alias = "model-draft", value_name = "MODEL", conflicts_with = "speculate")]
    draft: Option<String>,
}

impl SpeculationArguments {
    /// Finds what guesses tokens of a model. Says so if nothing can as asked.
    ///
    /// # Errors
    /// If the draft model cannot be opened, or does not suit the model.
    pub fn guesser(&self, global: &Global, checkpoint: &Checkpoint, cache: CacheArguments) -> anyhow::Result<Guesser> {
        if let Some(name) = &self.draft {
            let draft = DraftModel::open(global, name, cache)?;
            if let Some(why) = draft.obstacle(checkpoint)? {
                bail!("--draft: {name} cannot draft for this model: {why}");
            }
            return Ok(Guesser {
                speculation: Speculation::Model,
                draft: Some(draft),
            });
        }
        let obstacle = self.speculate.obstacle(checkpoint.config());
        if let Some(why) = obstacle.filter(|_| !global.quiet) {
            output::eprint_line(&format!("note: --speculate has no effect: {why}"));
        }
        Ok(Guesser {
            speculation: self.speculate.of(checkpoint.config()),
            draft: None,
        })
    }
}

/// What guesses tokens.
#[derive(Default)]
pub(crate) struct Guesser {
    pub speculation: Speculation,
    draft: Option<DraftModel>,
}

impl Guesser {
    /// Fails early if a model and what guesses its tokens cannot fit.
    ///
    /// # Errors
    /// If there is too little memory.
    pub fn check_memory(
        &self,
        checkpoint: &Checkpoint,
        device: &Device,
        cache: CacheTypes,
        context: usize,
    ) -> anyhow::Result<()> {
        let of_draft = self
            .draft
            .as_ref()
            .map_or(0, |draft| draft.memory_needed(device, context, 1));
        let of_model = load::memory_needed(checkpoint, cache, context, self.speculation);
        load::check_memory(of_model + of_draft, device.free_memory())
    }

    /// Loads the draft model, if there is one.
    ///
    /// # Errors
    /// As [`DraftModel::load`].
    pub fn load(&self, global: &Global, device: &Device, context: usize) -> anyhow::Result<Option<Model>> {
        let draft = self.draft.as_ref();
        draft.map(|draft| draft.load(global, device, context)).transpose()
    }
}
