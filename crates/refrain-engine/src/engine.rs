//! The engine: continuous batching of many requests on one device.
//!
//! Requests join and leave the running batch between submits. Their keys and values lie in pages of one pool, which
//! are assigned without rebuilding the recorded commands. Pages of finished requests serve later requests with the
//! same prefix. The engine has its own thread, and calls the listeners of its requests from it.
//!
//!
//! ```no_run
//! use refrain_engine::{Device, Engine, EngineEvent, EngineOptions, EngineRequest, GenerateOptions, LoadOptions, Model};
//! use refrain_models::Checkpoint;
//!
//! let checkpoint = Checkpoint::open("Qwen3-0.6B".as_ref())?;
//! let tokenizer = checkpoint.tokenizer()?;
//! let model = Model::load(&checkpoint, &Device::auto()?, &LoadOptions::default())?;
//! let engine = Engine::start(&model, &EngineOptions::default())?;
//! let (sender, events) = std::sync::mpsc::channel();
//! let prompt = tokenizer.encode("Once upon a time", true)?;
//! let request = EngineRequest::new(prompt, GenerateOptions::suggested(&checkpoint, &tokenizer)?);
//! let _ticket = engine.submit(request, Box::new(move |event| drop(sender.send(event))))?;
//! while let Ok(EngineEvent::Token(token)) = events.recv() {
//!     println!("{}", token.id);
//! }
//! # Ok::<(), refrain_engine::Error>(())
//! ```

mod batcher;
mod calls;
mod checkpoints;
mod constraint;
mod fair_queue;
mod fork;
mod growth;
mod load;
mod pages;
mod prefix_store;
mod prefix_times;
mod recent_mean;
mod recovery;
mod request;
mod row_copy;
mod row_count;
mod runner;
mod sizing;
mod speculation;
mod step_times;
mod steps;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use batcher::Batcher;
use calls::Command;
pub use calls::{EngineMemory, Restriction, StepCost};
use constraint::Constraint;
pub use load::EngineLoad;
pub use prefix_store::PrefixStoreOptions;
use prefix_store::StoredPrefix;
use recovery::{Recovery, fail, guarded};
pub use recovery::{Reload, ReloadedModels};
use request::Waiting;
pub use request::{
    EngineEvent, EngineListener, EngineRequest, EngineTicket, PickedToken, PromptOutputs, TokenConstraint,
};
use runner::DeviceRunner;
pub use speculation::{MAX_DRAFTS, Speculation, draft_memory, draft_obstacle};

use crate::model::check_ids;
use crate::{Error, Finish, Mode, Model};

/// Tokens per page of the KV cache.
pub(crate) const PAGE_SIZE: usize = 64;
/// Idle time before programs for later requests are compiled, or prefixes are stored. A client that asks again at once
/// must not wait for that.
const IDLE_BEFORE_WORK: Duration = Duration::from_millis(50);
/// Default of [`EngineOptions::target_gap`]: on fast cards, about 30 tokens a second while prompts are computed.
const DEFAULT_TARGET_GAP: Duration = Duration::from_millis(35);

/// Settings of an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Limit of a request's tokens, prompt and output together.
    pub context: usize,
    /// Limit of the requests that are decoded at once.
    pub streams: usize,
    /// Capacity of the KV cache in tokens, shared by all requests. It is raised if necessary so that one request
    /// can fill its context.
    pub cache_tokens: usize,
    /// Limit of the requests that wait for a slot.
    pub queue: usize,
    /// Whether requests reuse the KV cache of others with the same prefix. Recurrent states are copied at page
    /// boundaries: at the last one of a prompt, at the last one of a text, and where a later prompt was seen to diverge.
    pub prefix_cache: bool,
    /// Where cached prefixes outlive the engine, unless none are cached. They are written while there are no requests,
    /// and when it ends.
    pub prefix_store: Option<PrefixStoreOptions>,
    /// Whether a request's logits are bit-identical regardless of other requests, for the same device, driver and
    /// options. Steps then always have rows for all streams, prompts are cut the same way, and no prefix is reused.
    /// Each request gets all its pages before it starts, so that none is preempted.
    pub deterministic: bool,
    /// Target for the longest time between two tokens of a text while prompts of other requests are computed. It
    /// decides how many tokens of a prompt a step computes. Steps that take longer by themselves exceed it.
    pub target_gap: Duration,
    /// Limit of the tokens of prompts that a chunk has; `None` for what suits the device. Deterministic engines have a limit
    /// of their own.
    pub max_chunk: Option<usize>,
    /// Whether programs for later requests are made while there are no requests.
    pub prepares: bool,
    /// How decode steps are executed. [`Mode::Auto`] measures nothing: it is the device's default executor.
    pub mode: Mode,
    /// Limit of the decode steps of one submit; `None` for as many as fit in 10 ms.
    pub tokens_per_submit: Option<usize>,
    /// What guesses at the next tokens of texts, which a step then verifies together. Texts stay the same.
    pub speculation: Speculation,
    /// The model that guesses for [`Speculation::Model`], on the same device. If it fails, or once the device failed and
    /// the model was loaded again, texts go on without guesses.
    pub draft: Option<Model>,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            context: 4096,
            streams: 4,
            cache_tokens: 4 * 4096,
            queue: 256,
            prefix_cache: true,
            prefix_store: None,
            deterministic: false,
            target_gap: DEFAULT_TARGET_GAP,
            max_chunk: None,
            prepares: true,
            mode: Mode::Auto,
            tokens_per_submit: None,
            speculation: Speculation::Off,
            draft: None,
        }
    }
}

impl EngineOptions {
    /// Returns the options of an engine for one request at a time, with a context of `context` tokens.
    pub fn single(context: usize) -> EngineOptions {
        EngineOptions {
            context,
            streams: 1,
            cache_tokens: context,
            ..EngineOptions::default()
        }
    }
}

/// Serves many requests at once on one device. Dropping it waits for all submitted requests to finish.
pub struct Engine {
    commands: Option<Sender<Command>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    options: EngineOptions,
    vocabulary: usize,
    next: AtomicU64,
}

#[derive(Default)]
struct Shared {
    load: Mutex<EngineLoad>,
    /// Requests that have not ended.
    open: AtomicUsize,
    failed: AtomicBool,
    recovering: AtomicBool,
}

impl Engine {
    /// Starts an engine with its own KV cache beside the model's weights.
    ///
    /// # Errors
    /// If the context exceeds the model's limit, the draft model does not suit the model ([`draft_obstacle`]), or there is
    /// too little memory for the cache.
    pub fn start(model: &Model, options: &EngineOptions) -> Result<Engine, Error> {
        Engine::begin(model.clone(), options, None)
    }

    /// As [`Engine::start`], but reloads the models with `reload` if the device fails. Requests then continue from
    /// their tokens; with other kernels than before, their logits may differ in the last bits. The engine must own
    /// the only handles of the model and of the draft model, so that their memory is free before the reload. The engine
    /// fails if several reloads in a row produce no token; it then tries again every 30 seconds.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub fn start_reloading(model: Model, options: &EngineOptions, reload: Reload) -> Result<Engine, Error> {
        Engine::begin(model, options, Some(reload))
    }

    fn begin(model: Model, options: &EngineOptions, reload: Option<Reload>) -> Result<Engine, Error> {
        let limit = model.config().max_position;
        if options.context == 0 || options.context > limit {
            let requested = options.context;
            return Err(Error::ContextRange { requested, limit });
        }
        if let Some(draft) = options
            .draft
            .as_ref()
            .filter(|_| options.speculation == Speculation::Model)
            && let Some(why) = draft_obstacle(draft.config(), model.config())
        {
            return Err(Error::UnsuitableDraft(why));
        }
        let batcher = Batcher::new(&model, options)?;
        // The batcher has the only handle of the draft model.
        let options = EngineOptions {
            draft: None,
            ..options.clone()
        };
        let recovery = Recovery::new(reload, options.clone());
        let shared = Arc::new(Shared::default());
        *lock(&shared.load) = batcher.load();
        let (commands, requests) = mpsc::channel();
        let thread = std::thread::Builder::new().name("engine".to_owned()).spawn({
            let shared = shared.clone();
            move || run(batcher, &requests, &shared, recovery)
        });
        Ok(Engine {
            commands: Some(commands),
            shared,
            thread: Some(thread.map_err(Error::Thread)?),
            options,
            vocabulary: model.config().vocab_size,
            next: AtomicU64::new(0),
        })
    }

    /// Returns its settings, without the draft model.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// Returns its model's vocabulary size: the length of a row of logits.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Checks that tokens exist, as [`Engine::submit`] does.
    ///
    /// # Errors
    /// [`Error::TokenRange`] for the first that does not.
    pub fn check_ids(&self, tokens: &[u32]) -> Result<(), Error> {
        check_ids(tokens, self.vocabulary)
    }

    /// Returns its current load.
    pub fn load(&self) -> EngineLoad {
        *lock(&self.shared.load)
    }

    /// Whether the device has failed for good: nothing will be computed any more.
    pub fn has_failed(&self) -> bool {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// Whether the device has failed and the model is being reloaded. Requests wait meanwhile.
    pub fn is_recovering(&self) -> bool {
        self.shared.recovering.load(Ordering::Relaxed) && !self.has_failed()
    }

    /// Submits a request; `listener` receives its events until the ticket is dropped.
    ///
    /// # Errors
    /// If the prompt is empty, fills the context or has unknown tokens, if too many requests are waiting, or if the
    /// engine has failed.
    pub fn submit(&self, request: EngineRequest, mut listener: EngineListener) -> Result<EngineTicket, Error> {
        let cancelled = Arc::new(AtomicBool::new(false));
        let EngineRequest {
            prompt,
            generated_tokens,
            options,
            top_logprobs,
            constraint,
            prompt_outputs,
            embeds,
            client,
            cached_tokens,
        } = request;
        let context = self.options.context;
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        let has_text = !embeds && options.max_tokens != Some(0);
        // A text needs room for a generated token.
        let tokens = prompt.len() + usize::from(has_text);
        if tokens > context {
            return Err(Error::ContextFull { tokens, context });
        }
        self.check_ids(&prompt)?;
        let prompt_outputs = prompt_outputs.map(|outputs| (outputs, outputs.tokens(prompt.len(), has_text)));
        let prompt_outputs = prompt_outputs.filter(|(_, tokens)| !tokens.is_empty());
        if !has_text && !embeds && prompt_outputs.is_none() {
            listener(EngineEvent::End(Finish::Length));
            return Ok(EngineTicket(cancelled));
        }
        let most = prompt.len().saturating_add(options.max_tokens.unwrap_or(usize::MAX));
        let limit = most.min(context);
        let at_limit = if most <= context {
            Finish::Length
        } else {
            Finish::Context
        };
        let mut settings = options.settings(prompt.len().saturating_sub(generated_tokens));
        settings.last_position = limit as u32 - 1;
        settings.encode()?;
        self.enter()?;
        let shared = self.shared.clone();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting {
            number,
            tokens: prompt,
            limit,
            at_limit,
            options,
            settings,
            top_logprobs,
            constraint: constraint.map(Constraint::new),
            prompt_outputs,
            embeds,
            client,
            cached_tokens: Some(cached_tokens),
            awaited: None,
            stored: StoredPrefix::default(),
            listener,
            cancelled: cancelled.clone(),
            _leaving: Leaving(shared),
        };
        self.command(Command::Request(Box::new(waiting)))?;
        Ok(EngineTicket(cancelled))
    }

    /// Whether another request may be submitted now: neither the batch nor the queue is full.
    pub fn has_room(&self) -> bool {
        self.shared.open.load(Ordering::Relaxed) < self.options.streams + self.options.queue
    }

    /// Counts a request in, unless there are too many.
    fn enter(&self) -> Result<(), Error> {
        if self.has_failed() {
            return Err(Error::EngineFailed);
        }
        let most = self.options.streams + self.options.queue;
        let open = &self.shared.open;
        let entered = open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| {
            (open < most).then_some(open + 1)
        });
        entered.map(drop).map_err(|_| Error::Busy { max: most })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Counts a request out when it is dropped.
struct Leaving(Arc<Shared>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Computes until the engine is dropped and all requests have ended, or the device fails.
fn run(mut batcher: Batcher<DeviceRunner>, requests: &Receiver<Command>, shared: &Shared, mut recovery: Recovery) {
    let mut is_open = true;
    while is_open || !batcher.is_idle() {
        while is_open {
            let next = match (batcher.is_idle(), batcher.idle_wait()) {
                (true, None) => requests.recv().map_err(|_| TryRecvError::Disconnected),
                (true, Some(wait)) => requests.recv_timeout(wait).map_err(|error| match error {
                    RecvTimeoutError::Timeout => TryRecvError::Empty,
                    RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
                }),
                (false, _) => requests.try_recv(),
            };
            match next {
                Ok(Command::Request(request)) => batcher.add(*request),
                // A panic is the caller's error: nobody replies.
                Ok(Command::Call(call)) => drop(guarded(|| call(&mut batcher))),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => is_open = false,
            }
        }
        let stepped = guarded(|| match batcher.step() {
            Err(error) if error.is_out_of_memory() => batcher.preempt(error),
            stepped => stepped,
        });
        let stepped = stepped.and_then(|stepped| stepped);
        *lock(&shared.load) = batcher.load();
        let Err(error) = stepped else { continue };
        let why = error.to_string();
        let counted = batcher.load();
        batcher = match recovery.go_on(batcher, error, shared) {
            Some(batcher) => batcher,
            None => {
                // Requests that were submitted meanwhile fail too.
                fail(requests.try_iter().filter_map(Command::into_request), &why);
                match recovery.wait_for_device(requests, counted, shared) {
                    Some(batcher) => batcher,
                    None => return,
                }
            }
        };
    }
    batcher.close();
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
