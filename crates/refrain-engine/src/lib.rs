//! The inference engine: loads a model onto a device, and generates text with it.
//!
//! An [`Engine`] answers requests, one or many at once, with continuous batching, a paged KV cache and prefix reuse. It takes
//! a [`Model`], which holds the weights of a [`Checkpoint`](refrain_models::Checkpoint) on a [`Device`]. A request has a
//! prompt, and [`GenerateOptions`] with the [`Sampler`]'s settings.
//!
//! # Generate tokens
//!
//! This example runs on the CPU, with a tiny model of random weights:
//!
//! ```
//! use refrain_engine::{Device, Engine, EngineOptions, EngineRequest, GenerateOptions, LoadOptions, Model};
//! use refrain_models::Checkpoint;
//!
//! let checkpoint = Checkpoint::synthetic("tiny:f32")?;
//! let model = Model::load(&checkpoint, &Device::cpu(), &LoadOptions::default())?;
//! let engine = Engine::start(&model, &EngineOptions::single(64))?;
//! let options = GenerateOptions {
//!     max_tokens: Some(8),
//!     ..GenerateOptions::default()
//! };
//! let request = EngineRequest::new(vec![1, 2, 3], options);
//! let ids: Vec<u32> = engine.generate(request)?.collect::<Result<_, _>>()?;
//! assert_eq!(ids.len(), 8);
//! # Ok::<(), refrain_engine::Error>(())
//! ```
//!
//! # Generate text
//!
//! With a real model, on the best device, text arrives piece by piece:
//!
//! ```no_run
//! use refrain_engine::{Device, Engine, EngineOptions, EngineRequest, GenerateOptions, LoadOptions, Model};
//! use refrain_models::Checkpoint;
//!
//! let checkpoint = Checkpoint::open("Qwen3-0.6B".as_ref())?;
//! let tokenizer = checkpoint.tokenizer()?;
//! let model = Model::load(&checkpoint, &Device::auto()?, &LoadOptions::default())?;
//! let engine = Engine::start(&model, &EngineOptions::single(4096))?;
//! let prompt = tokenizer.encode("Once upon a time", true)?;
//! let options = GenerateOptions::suggested(&checkpoint, &tokenizer)?;
//! for piece in engine.generate(EngineRequest::new(prompt, options))?.text(&tokenizer) {
//!     print!("{}", piece?);
//! }
//! # Ok::<(), refrain_engine::Error>(())
//! ```
//!
//! # More
//!
//! - [`fit`]: memory and expected speed of a model on a device, before it is loaded.
//! - [`Programs`] and [`cost`]: a model's compiled programs, with their dispatches, bytes and times.
//! - [`Engine::submit`]: many requests at once, whose events go to listeners.
//! - [`Snapshot`]: saves and restores what was computed of a text.
//! - [`Engine::logits`] and [`Engine::logprobs`]: what the model says after each token of a text.
//! - [`perplexity`] and [`divergence`]: quality of a model on a text.
//! - [`Verified`]: compares two executors step by step.

pub mod cost;
mod engine;
mod error;
mod evaluate;
pub mod fit;
mod generate;
mod logprob;
mod masks;
mod mode;
mod model;
mod pace;
mod prefill;
mod programs;
mod sampler;
mod snapshot;
mod step;
mod verify;

pub use engine::{
    Engine, EngineEvent, EngineListener, EngineLoad, EngineMemory, EngineOptions, EngineRequest, EngineTicket,
    MAX_DRAFTS, PickedToken, PrefixStoreOptions, PromptOutputs, Reload, ReloadedModels, Restriction, Speculation,
    StepCost, TokenConstraint, draft_memory, draft_obstacle,
};
pub use error::Error;
pub use evaluate::{Divergence, Score, Windows, divergence, perplexity};
pub use generate::{DecodedPiece, Finish, GenerateOptions, GeneratedText, GeneratedTokens, Generation, TextDecoder};
pub use logprob::MAX_TOP_LOGPROBS;
pub use mode::{Mode, ModeCache, ModeChoice};
pub use model::{LoadOptions, Model};
pub use programs::Programs;
pub use refrain::Device;
pub use refrain_lm::Logprobs;
pub use refrain_models::{CacheType, CacheTypes, Progress};
pub use sampler::{InvalidSetting, Sampler, SamplerOptions, random_seed};
pub use snapshot::{Restored, Snapshot};
pub use verify::{Freeze, Verified, VerifiedTokens, find_region};
