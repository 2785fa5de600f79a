//! How the tokens of an answer are sampled, and when it ends.

use refrain_engine::{EngineRequest, GenerateOptions, Sampler, SamplerOptions, random_seed};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::constraints::MinTokens;
use super::fields::FieldReader;
use super::logprob::LogprobFields;
use super::structure::StructureFields;
use crate::answer_constraint::AnswerConstraint;
use crate::error::Refusal;
use crate::served::ServedModel;

/// Limit of the answers of one request.
const MAX_CHOICES: usize = 64;
/// Limit of the strings that end an answer.
const MAX_STOPS: usize = 16;

/// The fields that chats and completions share. What is absent comes from the model's `generation_config.json`.
#[derive(Debug)]
pub(crate) struct GenerationFields {
    pub model: Option<String>,
    pub stream: bool,
    /// Whether a stream ends with its usage.
    pub include_usage: bool,
    n: Option<usize>,
    best_of: Option<usize>,
    max_tokens: Option<usize>,
    min_tokens: usize,
    truncate_prompt_tokens: Option<usize>,
    temperature: Option<f32>,
    top_k: Option<i64>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
    /// Number of last tokens that penalties count, prompt included, as llama.cpp has it. Without it they count what was
    /// generated.
    repeat_last_n: Option<usize>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    logit_bias: Vec<(u32, f32)>,
    seed: Option<u64>,
    stop: Vec<String>,
    stop_token_ids: Vec<u32>,
    /// Whether the answer goes on until a limit is reached: for measurements.
    ignore_eos: bool,
    pub logprobs: LogprobFields,
    pub structure: StructureFields,
}

impl<'de> Deserialize<'de> for GenerationFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Map::<String, Value>::deserialize(deserializer)?;
        GenerationFields::read(FieldReader::new(fields)).map_err(D::Error::custom)
    }
}

/// Fields that ask for something this server does not have, and the values that ask for nothing.
const UNSUPPORTED: [(&str, &str); 9] = [
    ("allowed_token_ids", "use a grammar or `logit_bias`"),
    ("bad_words", "use `logit_bias` to forbid tokens"),
    (
        "include_stop_str_in_output",
        "stop strings are never part of the answer",
    ),
    ("return_tokens", "use /tokenize for the tokens of a text"),
    ("return_token_ids", "use /tokenize for the tokens of a text"),
    ("prompt_logprobs", "use `echo` with `logprobs` of /v1/completions"),
    ("use_beam_search", "beam search is not supported"),
    ("logits_processors", "logits processors are not supported"),
    ("audio", "audio is not supported"),
];

impl GenerationFields {
    /// Reads the fields of a request.
    ///
    /// # Errors
    /// If one has the wrong type, or asks for something this server does not have.
    pub fn read(mut fields: FieldReader) -> Result<GenerationFields, Refusal> {
        let stream_options = fields.value("stream_options").unwrap_or_default();
        for (name, why) in UNSUPPORTED {
            if fields
                .value(name)
                .is_some_and(|value| value != false && value != serde_json::json!([]))
            {
                return Err(Refusal::field(name, why));
            }
        }
        check_reasoning_form(&mut fields)?;
        if stream_options["continuous_usage_stats"] == true {
            let why = "continuous_usage_stats is not supported; include_usage counts at the end";
            return Err(Refusal::field("stream_options", why));
        }
        let max_tokens = fields.limit("max_tokens")?;
        let penalty = fields.number("repeat_penalty")?;
        Ok(GenerationFields {
            model: fields.text("model")?,
            stream: fields.flag("stream")?.unwrap_or(false),
            include_usage: stream_options["include_usage"] == true,
            n: fields.count("n")?,
            best_of: fields.count("best_of")?,
            max_tokens: fields.limit("max_completion_tokens")?.or(max_tokens),
            min_tokens: fields.count("min_tokens")?.unwrap_or(0),
            truncate_prompt_tokens: fields.limit("truncate_prompt_tokens")?,
            temperature: fields.number("temperature")?,
            top_k: fields.integer("top_k")?,
            top_p: fields.number("top_p")?,
            min_p: fields.number("min_p")?,
            repetition_penalty: fields.number("repetition_penalty")?.or(penalty),
            repeat_last_n: fields.limit("repeat_last_n")?,
            presence_penalty: fields.number("presence_penalty")?,
            frequency_penalty: fields.number("frequency_penalty")?,
            logit_bias: bias(fields.value("logit_bias"))?,
            seed: fields.seed("seed")?,
            stop: fields.text_or_texts("stop")?.unwrap_or_default(),
            stop_token_ids: fields.ids("stop_token_ids")?.unwrap_or_default(),
            ignore_eos: fields.flag("ignore_eos")?.unwrap_or(false),
            logprobs: LogprobFields::read(&mut fields),
            structure: StructureFields::read(&mut fields)?,
        })
    }

    /// Returns how each of the answers is generated.
    ///
    /// # Errors
    /// If a value is out of its range, by the name of its field.
    pub fn options(&self, model: &ServedModel) -> Result<Vec<GenerateOptions>, Refusal> {
        let n = self.n.unwrap_or(1);
        if !(1..=MAX_CHOICES).contains(&n) {
            return Err(Refusal::field("n", format!("{n} is not between 1 and {MAX_CHOICES}")));
        }
        if self.best_of.is_some_and(|best_of| best_of != n) {
            let why = "choosing the best of several answers is not supported; leave it out or set it to n";
            return Err(Refusal::field("best_of", why));
        }
        if let Some(limit) = self.max_tokens.filter(|limit| *limit < self.min_tokens) {
            let why = format!(
                "{} is more than the {limit} tokens that the answer may have",
                self.min_tokens
            );
            return Err(Refusal::field("min_tokens", why));
        }
        if self.stop.len() > MAX_STOPS {
            let why = format!("{} strings are more than the limit of {MAX_STOPS}", self.stop.len());
            return Err(Refusal::field("stop", why));
        }
        let sampler = self.sampler(model)?;
        let ends = if self.ignore_eos {
            &[]
        } else {
            model.tokenizer.eos_ids()
        };
        let of_choice = |choice: usize| {
            Ok(GenerateOptions {
                max_tokens: self.max_tokens.or(model.max_new_tokens),
                sampler: Sampler::new(SamplerOptions {
                    seed: sampler.seed.wrapping_add(choice as u64),
                    ..sampler.clone()
                })
                .map_err(refrain_engine::Error::from)?,
                stop_ids: [ends, &self.stop_token_ids].concat(),
                // An empty string would end every answer at once.
                stop_strings: self.stop.iter().filter(|stop| !stop.is_empty()).cloned().collect(),
                stop_strings_after: self.min_tokens,
            })
        };
        (0..n).map(of_choice).collect()
    }

    /// Shortens a prompt to `truncate_prompt_tokens`: its last tokens stay.
    pub fn truncate(&self, prompt: &mut Vec<u32>, model: &ServedModel) {
        if let Some(limit) = self.truncate_prompt_tokens {
            // An answer needs room for a token of its own.
            let limit = limit.clamp(1, model.context.saturating_sub(1).max(1));
            prompt.drain(..prompt.len().saturating_sub(limit));
        }
    }

    /// Returns the request for an answer to `prompt` within `constraint`, with `min_tokens` applied.
    pub fn request(&self, prompt: Vec<u32>, options: GenerateOptions, constraint: &AnswerConstraint) -> EngineRequest {
        let constraint = constraint.of_answer();
        let constraint = match self.min_tokens {
            0 => constraint,
            count => Some(MinTokens::boxed(count, &options.stop_ids, constraint)),
        };
        EngineRequest {
            constraint,
            ..EngineRequest::new(prompt, options)
        }
    }

    fn sampler(&self, model: &ServedModel) -> Result<SamplerOptions, Refusal> {
        let suggested = &model.suggested;
        let mut top_k = match self.top_k {
            // vLLM's clients send -1 for all.
            Some(k) => usize::try_from(k.max(0)).unwrap_or(usize::MAX),
            None => suggested.top_k,
        };
        let fraction = |number: f32| (0.0..=1.0).contains(&number);
        checked("temperature", self.temperature, |number| number >= 0.0, "0 or more")?;
        checked("top_p", self.top_p, fraction, "between 0 and 1")?;
        checked("min_p", self.min_p, fraction, "between 0 and 1")?;
        checked(
            "repetition_penalty",
            self.repetition_penalty,
            |number| number > 0.0,
            "above 0",
        )?;
        let mut top_p = self.top_p.unwrap_or(suggested.top_p);
        // The smallest set of tokens is the most likely one.
        if self.top_p == Some(0.0) {
            (top_k, top_p) = (1, 1.0);
        }
        Ok(SamplerOptions {
            temperature: self.temperature.unwrap_or(suggested.temperature),
            top_k,
            top_p,
            min_p: self.min_p.unwrap_or(suggested.min_p),
            repeat_penalty: self.repetition_penalty.unwrap_or(suggested.repeat_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(suggested.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(suggested.frequency_penalty),
            repeat_last: self.repeat_last_n.unwrap_or(suggested.repeat_last),
            penalises_generated: self.repeat_last_n.is_none(),
            logit_bias: self.bias(model.tokenizer.vocab_size())?,
            seed: self.seed.unwrap_or_else(random_seed),
        })
    }

    fn bias(&self, vocabulary: usize) -> Result<Vec<(u32, f32)>, Refusal> {
        match self.logit_bias.iter().find(|(id, _)| *id as usize >= vocabulary) {
            None => Ok(self.logit_bias.clone()),
            Some((id, _)) => {
                let why = format!("{id} is no token: the vocabulary has {vocabulary}, from 0 on");
                Err(Refusal::field("logit_bias", why))
            }
        }
    }
}

/// Checks that a number is in its range, if it is given.
fn checked(
    field: &'static str,
    number: Option<f32>,
    is_in_range: impl Fn(f32) -> bool,
    range: &str,
) -> Result<(), Refusal> {
    match number.filter(|number| !is_in_range(*number)) {
        None => Ok(()),
        Some(number) => Err(Refusal::field(
            field,
            format!("{number} is out of range: it must be {range}"),
        )),
    }
}

/// Refuses to leave reasoning out of an answer, and to write it into the text: it has a field of its own.
fn check_reasoning_form(fields: &mut FieldReader) -> Result<(), Refusal> {
    if fields.flag("include_reasoning")? == Some(false) {
        let why = "reasoning is always returned; switch it off with reasoning_effort \"none\"";
        return Err(Refusal::field("include_reasoning", why));
    }
    match fields.text("reasoning_format")?.as_deref() {
        None | Some("auto" | "deepseek") => Ok(()),
        Some(other) => {
            let why = format!("{other:?} is not supported; reasoning is returned as reasoning_content (\"deepseek\")");
            Err(Refusal::field("reasoning_format", why))
        }
    }
}

/// Reads `logit_bias`: an object from token ids to numbers, or a list of pairs as llama-server takes it.
fn bias(value: Option<Value>) -> Result<Vec<(u32, f32)>, Refusal> {
    let entry = |id: &str, bias: &Value| {
        let id = id
            .parse()
            .map_err(|_| Refusal::field("logit_bias", format!("{id:?} is no token id")))?;
        match bias {
            Value::Bool(false) => Ok((id, f32::NEG_INFINITY)),
            bias => match bias.as_f64().map(|bias| bias as f32).filter(|bias| bias.is_finite()) {
                Some(bias) => Ok((id, bias)),
                None => Err(Refusal::field("logit_bias", format!("{bias} is not a number"))),
            },
        }
    };
    match value {
        None => Ok(vec![]),
        Some(Value::Object(entries)) => entries.iter().map(|(id, bias)| entry(id, bias)).collect(),
        Some(Value::Array(pairs)) if pairs.iter().all(|pair| pair[0].is_u64()) => {
            pairs.iter().map(|pair| entry(&pair[0].to_string(), &pair[1])).collect()
        }
        Some(_) => Err(Refusal::field(
            "logit_bias",
            "expected an object from token ids to numbers",
        )),
    }
}
