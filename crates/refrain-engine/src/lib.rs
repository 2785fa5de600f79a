//! Sessions: loading, prefill, paged KV cache, decode and sampling.
//!
//! ```no_run
//! use refrain_engine::{Device, GenerateOptions, LoadOptions, Model, Session};
//! use refrain_models::Checkpoint;
//!
//! let checkpoint = Checkpoint::open("Qwen3-0.6B".as_ref())?;
//! let tokenizer = checkpoint.tokenizer()?;
//! let model = Model::load(&checkpoint, &Device::auto()?, &LoadOptions::default())?;
//! let mut session = Session::new(&model, 4096)?;
//! let prompt = tokenizer.encode("Once upon a time", true)?;
//! let options = GenerateOptions::suggested(&checkpoint, &tokenizer)?;
//! for piece in session.generate(&prompt, &options)?.text(&tokenizer) {
//!     print!("{}", piece?);
//! }
//! # Ok::<(), refrain_engine::Error>(())
//! ```

pub mod cost;
mod engine;
mod error;
mod evaluate;
pub mod fit;
mod generate;
mod likelihood;
mod mode;
mod model;
mod pace;
mod prompts;
mod rollback;
mod sampler;
mod session;
mod snapshot;
mod step;
mod stream;
mod verify;

pub use engine::{
    Engine, EngineEvent, EngineListener, EngineLoad, EngineOptions, EngineRequest, EngineTicket, PickedToken, Reload,
    TokenConstraint,
};
pub use error::Error;
pub use evaluate::{Divergence, Score, Windows, divergence, perplexity};
pub use generate::{Finish, GenerateOptions, GeneratedText, GeneratedTokens, Generation, Passed, TextDecoder};
pub use likelihood::MOST_LIKELIEST;
pub use mode::{Mode, ModeCache, ModeChoice};
pub use model::{LoadOptions, Model};
pub use refrain::Device;
pub use refrain_lm::Likelihoods;
pub use refrain_models::Progress;
pub use sampler::{InvalidSetting, Sampler, SamplerOptions, random_seed};
pub use session::{Session, SessionMemory};
pub use snapshot::{Restored, Snapshot};
pub use stream::Stream;
pub use verify::{Freeze, Verified, VerifiedTokens, find_region};
