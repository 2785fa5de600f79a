//! An engine of requests: many texts on one device at once.
//!
//! Requests join and leave a running batch between submits. Their keys and values lie in pages of one pool, granted ahead
//! of the tape, so that nothing is recorded anew; what requests leave behind serves others that begin alike. The engine
//! has a thread of its own, and calls its requests' listeners from it.
//!
//! ```no_run
//! use refrain_engine::{Device, Engine, EngineEvent, EngineOptions, EngineRequest, GenerateOptions, LoadOptions, Model};
//! use refrain_models::Checkpoint;
//!
//! let checkpoint = Checkpoint::open("Qwen3-0.6B".as_ref())?;
//! let tokenizer = checkpoint.tokenizer()?;
//! let model = Model::load(&checkpoint, &Device::auto()?, &LoadOptions::default())?;
//! let engine = Engine::start(&model, &EngineOptions::default())?;
//! let (events, heard) = std::sync::mpsc::channel();
//! let prompt = tokenizer.encode("Once upon a time", true)?;
//! let request = EngineRequest::new(prompt, GenerateOptions::suggested(&checkpoint, &tokenizer)?);
//! let _ticket = engine.submit(request, Box::new(move |event| drop(events.send(event))))?;
//! while let Ok(EngineEvent::Token(token)) = heard.recv() {
//!     println!("{}", token.id);
//! }
//! # Ok::<(), refrain_engine::Error>(())
//! ```

mod batcher;
mod checkpoints;
mod pages;
mod recovery;
mod request;
mod rounds;
mod steps;
mod turns;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use batcher::Batcher;
pub use recovery::Reload;
use recovery::{Recovery, fail, guarded};
use request::Waiting;
pub use request::{EngineEvent, EngineListener, EngineRequest, EngineTicket, PickedToken, TokenConstraint};

use crate::model::check_ids;
use crate::{Error, Finish, Model};

/// Positions of a page.
const PAGE: usize = 64;
/// How long nobody asks before what later requests may need is made: who asks again at once shall not wait for it.
const QUIET: Duration = Duration::from_millis(50);

/// How an engine runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineOptions {
    /// Tokens that prompt and text of a request may have together.
    pub context: usize,
    /// Requests that are decoded at once, at most: a power of two wastes nothing.
    pub streams: usize,
    /// Tokens whose keys and values are kept, of all requests together; one request may fill its context in any case.
    pub cache_tokens: usize,
    /// Requests that may wait for their turn.
    pub queue: usize,
    /// Whether requests find what others that began alike have computed. Of recurrent states there are copies at ends of
    /// pages: at the last of a prompt, and where a later prompt was seen to part from it.
    pub prefix_cache: bool,
    /// Whether a request's tokens are the same to the last bit of their logits, whoever else is there: steps always have
    /// rows for all streams, prompts are always cut alike, no request finds what another computed, and each has its pages
    /// before it begins, so that none has to make room. On one device and driver, with these options.
    pub deterministic: bool,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            context: 4096,
            streams: 4,
            cache_tokens: 4 * 4096,
            queue: 256,
            prefix_cache: true,
            deterministic: false,
        }
    }
}

/// How much is going on in an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EngineLoad {
    /// Requests that wait for their turn.
    pub waiting: usize,
    /// Requests whose tokens are being computed.
    pub running: usize,
    /// Pages of the cache.
    pub pages: usize,
    /// Pages that requests hold.
    pub pages_in_use: usize,
    /// Tokens of all prompts so far.
    pub prompt_tokens: u64,
    /// Those of them that were found in the cache.
    pub cached_tokens: u64,
    /// Tokens that were picked so far.
    pub generated_tokens: u64,
    /// Steps that picked a token for at least one request: each reads the weights once.
    pub decode_steps: u64,
    /// Times that a request gave its place up and its tokens are taken in again: pages or memory ran out.
    pub preemptions: u64,
    /// Times that the model was brought onto a device again which had failed.
    pub restarts: u64,
}

/// Many texts on one device at once. Dropping it lets all that was asked for come to its end.
pub struct Engine {
    commands: Option<Sender<Waiting>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    options: EngineOptions,
    vocabulary: usize,
    next: AtomicU64,
}

#[derive(Default)]
struct Shared {
    load: Mutex<EngineLoad>,
    /// Requests that no listener has heard the end of.
    open: AtomicUsize,
    failed: AtomicBool,
    recovering: AtomicBool,
}

impl Engine {
    /// An engine with memory of its own beside the model's weights.
    ///
    /// # Errors
    /// A context beyond the model's limit; too little memory for the cache.
    pub fn start(model: &Model, options: &EngineOptions) -> Result<Engine, Error> {
        Engine::begin(model.clone(), options, None)
    }

    /// The same, of a model that `reload` brings onto the device again should that fail: requests then go on from the
    /// tokens that they have, which with other kernels than before may differ in their last bits. Until then the engine is
    /// the only one that has the model, so that there is room for it again. It fails if several attempts bring no token.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub fn start_reloading(model: Model, options: &EngineOptions, reload: Reload) -> Result<Engine, Error> {
        Engine::begin(model, options, Some(reload))
    }

    fn begin(model: Model, options: &EngineOptions, reload: Option<Reload>) -> Result<Engine, Error> {
        let limit = model.config().max_position;
        if options.context == 0 || options.context > limit {
            let asked = options.context;
            return Err(Error::ContextRange { asked, limit });
        }
        let batcher = Batcher::new(&model, options)?;
        let recovery = Recovery::new(reload, *options);
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
            options: *options,
            vocabulary: model.config().vocab_size,
            next: AtomicU64::new(0),
        })
    }

    /// How it runs.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// How much is going on.
    pub fn load(&self) -> EngineLoad {
        *lock(&self.shared.load)
    }

    /// Whether the device has failed: nothing will be computed any more.
    pub fn has_failed(&self) -> bool {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// Whether the device has failed and the model is being brought onto it again: requests wait.
    pub fn is_recovering(&self) -> bool {
        self.shared.recovering.load(Ordering::Relaxed) && !self.has_failed()
    }

    /// Asks for a text; `listener` hears of it, and no more once the ticket is dropped.
    ///
    /// # Errors
    /// An empty prompt or one that fills the context, unknown tokens, too many requests waiting, an engine that failed.
    pub fn submit(&self, request: EngineRequest, mut listener: EngineListener) -> Result<EngineTicket, Error> {
        let cancelled = Arc::new(AtomicBool::new(false));
        let EngineRequest {
            prompt,
            options,
            likeliest,
            constraint,
            embeds,
            client,
        } = request;
        let context = self.options.context;
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        // A text needs room for a token of its own.
        let tokens = prompt.len() + usize::from(!embeds);
        if tokens > context {
            return Err(Error::ContextFull { tokens, context });
        }
        check_ids(&prompt, self.vocabulary)?;
        if options.max_tokens == Some(0) {
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
        let mut settings = options.settings(prompt.len());
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
            likeliest,
            constraint,
            embeds,
            client,
            listener,
            cancelled: cancelled.clone(),
            _leaving: Leaving(shared),
        };
        let commands = self.commands.as_ref().expect("until it is dropped");
        match commands.send(waiting) {
            Ok(()) => Ok(EngineTicket(cancelled)),
            Err(_) => Err(Error::EngineFailed),
        }
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
        entered.map(drop).map_err(|_| Error::Busy { most })
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

/// Computes until nobody can ask for more and all is done, or the device fails.
fn run(mut batcher: Batcher, requests: &Receiver<Waiting>, shared: &Shared, mut recovery: Recovery) {
    let mut is_open = true;
    while is_open || !batcher.is_idle() {
        while is_open {
            let next = match (batcher.is_idle(), batcher.is_prepared()) {
                (true, true) => requests.recv().map_err(|_| TryRecvError::Disconnected),
                (true, false) => requests.recv_timeout(QUIET).map_err(|error| match error {
                    RecvTimeoutError::Timeout => TryRecvError::Empty,
                    RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
                }),
                (false, _) => requests.try_recv(),
            };
            match next {
                Ok(request) => batcher.add(request),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => is_open = false,
            }
        }
        let turned = guarded(|| match batcher.turn() {
            Err(error) if error.is_out_of_memory() => batcher.shed(error),
            turned => turned,
        });
        let turned = turned.and_then(|turned| turned);
        *lock(&shared.load) = batcher.load();
        let Err(error) = turned else { continue };
        let why = error.to_string();
        batcher = match recovery.go_on(batcher, error, shared) {
            Some(batcher) => batcher,
            // Whoever comes from now on, or is on the way, hears of it too.
            None => return fail(requests.try_iter(), &why),
        };
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
