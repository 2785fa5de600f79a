//! Compiles grammars on threads with room for deep ones, a few at a time, within a time limit.

use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{CancellationHandle, Matcher, ParserFactory, panic_utils};
use refrain_text::{TokenBytes, Tokenizer};

use crate::call_watch::CallWatch;
use crate::cancellation::{Cancellation, Deadline};
use crate::constraint::{GrammarConstraint, ReasoningTokens};
use crate::error::{NO_VALUE, TOO_LONG};
use crate::limits::{self, COMPILE_STACK, COMPILE_TIMEOUT, QUEUE_TIMEOUT};
use crate::reasoning_budget::{ReasoningBudget, ReasoningSource};
use crate::schema::IgnoredKeyword;
use crate::{Grammar, GrammarError};

/// Interval in which a caller that waits looks whether it is cancelled.
const POLL: Duration = Duration::from_millis(20);

/// Compiles grammars for the tokens of one tokenizer.
pub struct GrammarCompiler(Arc<Shared>);

struct Shared {
    factory: ParserFactory,
    end_ids: Vec<u32>,
}

/// What a thread reports of a compilation.
enum Report {
    /// The first mask is being computed; this cancels it.
    Started(CancellationHandle),
    Done(Box<Result<(Matcher, Vec<IgnoredKeyword>), GrammarError>>),
}

impl GrammarCompiler {
    /// Builds the trie of the tokenizer's tokens. Takes about a second for large vocabularies.
    ///
    /// # Errors
    /// If no trie can be built from the vocabulary.
    pub fn new(tokenizer: &Tokenizer) -> Result<GrammarCompiler, GrammarError> {
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie(tokenizer)));
        let made = panic_utils::catch_unwind(AssertUnwindSafe(|| ParserFactory::new_simple(&environment)));
        let mut factory = made.map_err(GrammarError::of)?;
        limits::parser(factory.quiet().limits_mut());
        let end_ids = tokenizer.eos_ids().to_vec();
        Ok(GrammarCompiler(Arc::new(Shared { factory, end_ids })))
    }

    /// Compiles a grammar for one sequence, which may begin with reasoning. Blocks for at most 2 s after the
    /// compilation begins.
    ///
    /// # Errors
    /// If the grammar is invalid, too large, takes too long, or uses unsupported features.
    pub fn constraint(
        &self,
        grammar: &Grammar,
        reasoning: Option<ReasoningTokens>,
    ) -> Result<GrammarConstraint, GrammarError> {
        self.cancellable_constraint(grammar, reasoning, &Cancellation::default())
    }

    /// Like [`constraint`](Self::constraint), and returns early if `cancellation` is cancelled. What is compiled
    /// then ends by itself, and counts as one of those that are compiled at once.
    ///
    /// # Errors
    /// As `constraint`; if it is cancelled, [`GrammarError::is_cancelled`]; if too many grammars are compiled at
    /// once, [`GrammarError::is_busy`].
    pub fn cancellable_constraint(
        &self,
        grammar: &Grammar,
        reasoning: Option<ReasoningTokens>,
        cancellation: &Cancellation,
    ) -> Result<GrammarConstraint, GrammarError> {
        let permit = Permit::acquire(cancellation)?;
        let (sender, reports) = sync_channel(2);
        let (shared, compiled) = (self.0.clone(), grammar.clone());
        let is_cancelled = cancellation.clone();
        let thread = std::thread::Builder::new()
            .name("grammar".to_owned())
            .stack_size(COMPILE_STACK);
        let started = thread.spawn(move || {
            let _permit = permit;
            shared.compile(&compiled, &is_cancelled, &sender);
        });
        started.map_err(|why| GrammarError::new(format!("no thread can be started for the grammar: {why}")))?;
        let deadline = Instant::now() + COMPILE_TIMEOUT;
        let mut mask: Option<CancellationHandle> = None;
        let end = loop {
            match reports.recv_timeout(POLL) {
                Ok(Report::Started(handle)) => mask = Some(handle),
                Ok(Report::Done(result)) => break *result,
                Err(RecvTimeoutError::Disconnected) => break Err(GrammarError::new("the grammar cannot be compiled")),
                Err(RecvTimeoutError::Timeout) if cancellation.is_cancelled() => break Err(GrammarError::cancelled()),
                Err(RecvTimeoutError::Timeout) if Instant::now() > deadline => break Err(GrammarError::new(TOO_LONG)),
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        if end.is_err() {
            cancellation.cancel();
            mask.iter().for_each(CancellationHandle::cancel);
        }
        let (matcher, ignored) = end?;
        let constraint = GrammarConstraint::new(matcher, reasoning, self.0.end_ids.clone(), ignored);
        Ok(match grammar {
            Grammar::Calls(calls) => constraint.watching(CallWatch::new(calls, self.0.factory.tok_env().clone())),
            _ => constraint,
        })
    }

    /// Returns a limit of `limit` tokens of reasoning. `None` if the model does not reason. `tokenizer` is the one that
    /// the compiler was made for.
    pub fn reasoning_budget(
        &self,
        limit: usize,
        source: ReasoningSource<'_>,
        tokenizer: &Tokenizer,
    ) -> Option<ReasoningBudget> {
        ReasoningBudget::new(limit, source, tokenizer, self.0.factory.tok_env().clone())
    }
}

impl Shared {
    fn compile(&self, grammar: &Grammar, cancellation: &Cancellation, reports: &SyncSender<Report>) {
        // Nobody may listen any more.
        let report = |report| drop(reports.send(report));
        let made = panic_utils::catch_unwind(AssertUnwindSafe(|| {
            let rules = match grammar.rules() {
                Ok(rules) => rules,
                Err(why) => return Ok(Err(why)),
            };
            if cancellation.is_cancelled() {
                return Ok(Err(GrammarError::cancelled()));
            }
            let parser = self.factory.create_parser(TopLevelGrammar::from_lark(rules.lark));
            let mut matcher = Matcher::new(parser).into_cancellable();
            let handle = matcher.cancellation_handle().filter(|_| !matcher.is_error());
            let _deadline = handle
                .clone()
                .and_then(|handle| Deadline::start(handle, COMPILE_TIMEOUT));
            handle.into_iter().for_each(|handle| report(Report::Started(handle)));
            // Some errors only show when the first mask is computed.
            let mask = matcher.compute_mask_or_eos()?;
            let is_empty = mask.num_set() == 0;
            Ok(if is_empty {
                Err(GrammarError::new(NO_VALUE))
            } else {
                Ok((matcher, rules.ignored))
            })
        }));
        let made = made.unwrap_or_else(|why| {
            let why = GrammarError::of(why);
            Err(if matches!(grammar, Grammar::Lark(_)) {
                why
            } else {
                why.without_position()
            })
        });
        report(Report::Done(Box::new(made)));
    }
}

/// The permission to compile one grammar.
struct Permit(&'static Permits);

struct Permits {
    free: Mutex<usize>,
    returned: Condvar,
}

impl Permit {
    /// Waits for a permit.
    ///
    /// # Errors
    /// If it is cancelled, or none is free for [`QUEUE_TIMEOUT`].
    fn acquire(cancellation: &Cancellation) -> Result<Permit, GrammarError> {
        static PERMITS: OnceLock<Permits> = OnceLock::new();
        let permits = PERMITS.get_or_init(|| Permits {
            // Each may need 256 MB.
            free: Mutex::new(std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 4))),
            returned: Condvar::new(),
        });
        let deadline = Instant::now() + QUEUE_TIMEOUT;
        let mut free = permits.free.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if cancellation.is_cancelled() {
                return Err(GrammarError::cancelled());
            }
            if *free > 0 {
                *free -= 1;
                return Ok(Permit(permits));
            }
            if Instant::now() > deadline {
                return Err(GrammarError::busy());
            }
            let waited = permits.returned.wait_timeout(free, POLL);
            free = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.returned.notify_one();
    }
}

/// Builds the trie of all tokens by their bytes. Special tokens match no text.
fn trie(tokenizer: &Tokenizer) -> TokTrie {
    let written = |token: Option<TokenBytes>| match token {
        Some(TokenBytes { bytes, is_special }) if is_special => [&[TokTrie::SPECIAL_TOKEN_MARKER], &bytes[..]].concat(),
        Some(TokenBytes { bytes, .. }) => bytes,
        None => vec![],
    };
    let mut words: Vec<Vec<u8>> = tokenizer.vocabulary().into_iter().map(written).collect();
    let mut ends: Vec<u32> = (tokenizer.eos_ids().iter().copied())
        .filter(|id| (*id as usize) < words.len())
        .collect();
    if ends.is_empty() {
        // The trie needs an end token: this one is never sampled.
        ends.push(words.len() as u32);
        words.push(b"\xff<|end|>".to_vec());
    }
    let info = TokRxInfo::new(words.len() as u32, ends[0]);
    TokTrie::from(&info, &words).with_eos_tokens(&ends)
}
