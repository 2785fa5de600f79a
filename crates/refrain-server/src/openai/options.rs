//! How a client wants its tokens picked.

use std::collections::BTreeMap;

use refrain_engine::{GenerateOptions, Sampler, SamplerOptions, random_seed};
use serde::Deserialize;

use super::likelihood::LikelihoodFields;
use super::structure::StructureFields;
use crate::error::Refusal;
use crate::served::ServedModel;

/// The most texts that one request asks for.
const MOST_CHOICES: usize = 64;
/// The most strings that end a text.
const MOST_STOPS: usize = 16;

/// What chats and completions share. What is not given comes from the model's `generation_config.json`.
#[derive(Debug, Deserialize)]
pub(crate) struct GenerationFields {
    pub model: Option<String>,
    #[serde(default)]
    pub stream: bool,
    pub stream_options: Option<StreamFields>,
    pub n: Option<usize>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    temperature: Option<f32>,
    top_k: Option<i64>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    #[serde(alias = "repeat_penalty")]
    repetition_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    logit_bias: Option<BTreeMap<String, f32>>,
    seed: Option<i64>,
    stop: Option<StopField>,
    /// Go on until there is no more room: for measurements.
    #[serde(default)]
    ignore_eos: bool,
    #[serde(flatten)]
    pub likelihoods: LikelihoodFields,
    #[serde(flatten)]
    pub structure: StructureFields,
}

/// What else a stream says.
#[derive(Debug, Deserialize)]
pub(crate) struct StreamFields {
    #[serde(default)]
    pub include_usage: bool,
}

/// A string, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum StopField {
    One(String),
    Several(Vec<String>),
}

impl GenerationFields {
    /// How each of the texts is generated.
    ///
    /// # Errors
    /// What cannot be followed, by the name of its field.
    pub fn options(&self, model: &ServedModel) -> Result<Vec<GenerateOptions>, Refusal> {
        let n = self.n.unwrap_or(1);
        if !(1..=MOST_CHOICES).contains(&n) {
            return Err(Refusal::field("n", format!("{n} is not between 1 and {MOST_CHOICES}")));
        }
        let sampler = self.sampler(model)?;
        let asked = self.max_completion_tokens.or(self.max_tokens);
        let of_choice = |choice: usize| {
            Ok(GenerateOptions {
                max_tokens: asked.or(model.max_new_tokens),
                sampler: Sampler::new(SamplerOptions {
                    seed: sampler.seed.wrapping_add(choice as u64),
                    ..sampler.clone()
                })
                .map_err(refrain_engine::Error::from)?,
                stop_ids: if self.ignore_eos {
                    vec![]
                } else {
                    model.tokenizer.eos_ids().to_vec()
                },
                stop_strings: self.stops()?,
            })
        };
        (0..n).map(of_choice).collect()
    }

    /// Whether a stream ends with what it cost.
    pub fn tells_usage(&self) -> bool {
        self.stream_options
            .as_ref()
            .is_some_and(|options| options.include_usage)
    }

    fn sampler(&self, model: &ServedModel) -> Result<SamplerOptions, Refusal> {
        let suggested = &model.suggested;
        let top_k = match self.top_k {
            // vLLM's clients say -1 for all.
            Some(k) => usize::try_from(k.max(0)).unwrap_or(usize::MAX),
            None => suggested.top_k,
        };
        Ok(SamplerOptions {
            temperature: self.temperature.unwrap_or(suggested.temperature),
            top_k,
            top_p: self.top_p.unwrap_or(suggested.top_p),
            min_p: self.min_p.unwrap_or(suggested.min_p),
            repeat_penalty: self.repetition_penalty.unwrap_or(suggested.repeat_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(suggested.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(suggested.frequency_penalty),
            repeat_last: suggested.repeat_last,
            logit_bias: self.bias(model.tokenizer.vocab_size())?,
            seed: self.seed.map_or_else(random_seed, |seed| seed as u64),
        })
    }

    fn bias(&self, vocabulary: usize) -> Result<Vec<(u32, f32)>, Refusal> {
        let entry = |(id, bias): (&String, &f32)| match id.parse::<u32>() {
            Ok(id) if (id as usize) < vocabulary => Ok((id, *bias)),
            _ => Err(Refusal::field(
                "logit_bias",
                format!("{id:?} is no token: the vocabulary has {vocabulary}, from 0 on"),
            )),
        };
        self.logit_bias.iter().flatten().map(entry).collect()
    }

    fn stops(&self) -> Result<Vec<String>, Refusal> {
        let stops = match &self.stop {
            None => vec![],
            Some(StopField::One(stop)) => vec![stop.clone()],
            Some(StopField::Several(stops)) => stops.clone(),
        };
        if stops.len() > MOST_STOPS {
            return Err(Refusal::field(
                "stop",
                format!("{} are more than {MOST_STOPS}", stops.len()),
            ));
        }
        Ok(stops)
    }
}
