//! Which models are loaded. Models are loaded on request, and unloaded when others need the memory or nobody uses them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use refrain_engine::{Engine, EngineLoad};
use tokio::sync::Notify;

use crate::error::Refusal;
pub use crate::keep_alive::keep_alive;
use crate::lease::{EngineLease, EngineUsage};

/// Loads a model onto the device.
pub type EngineLoader = Box<dyn Fn() -> Result<Engine, LoadFailure> + Send + Sync>;

/// Why a model is not loaded.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LoadFailure {
    /// Other models take up the memory.
    #[error("{0}")]
    NoRoom(String),
    /// It cannot be loaded.
    #[error("{0}")]
    Other(String),
}

/// Time that a model stays loaded, while it is used, before another may take its memory. Without it, two models that
/// do not fit together would be loaded for each request.
const MIN_STAY: Duration = Duration::from_secs(10);
/// A model stays at least this many times as long as it took to load.
const MIN_STAY_FACTOR: u32 = 2;
/// A model without requests for this long may be unloaded before that.
const IDLE_GAP: Duration = Duration::from_millis(500);
/// Maximum time to wait for the requests of a model that is to be unloaded for another.
const MAX_DRAIN: Duration = Duration::from_secs(600);
/// Maximum time in which engines end when the server does.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which waiting loads look for a model to unload.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The models of a server, by their slots.
pub struct ModelRegistry {
    slots: Mutex<Vec<RegistrySlot>>,
    /// Held while a model is loaded: one at a time.
    loading: Arc<tokio::sync::Mutex<()>>,
    /// How long idle models stay loaded; `None` until their memory is needed.
    keep_alive: Option<Duration>,
    /// Wakes whoever unloads idle models.
    changed: Arc<Notify>,
}

/// How long a model stays loaded.
#[derive(Debug, Clone, Copy, Default)]
pub struct ModelStay {
    /// How long it stays when nobody uses it, unless clients say otherwise; `None` for the server's setting.
    pub keep_alive: Option<Option<Duration>>,
    /// Never unload it, neither for other models nor when nobody uses it.
    pub is_pinned: bool,
}

struct RegistrySlot {
    load: Arc<EngineLoader>,
    is_pinned: bool,
    /// What `keep_alive` is until clients set it.
    default_keep_alive: Option<Duration>,
    loaded: Option<LoadedEngine>,
    /// An engine that is unloaded once its requests have finished.
    draining: Option<Arc<Engine>>,
    keep_alive: Option<Duration>,
    /// Counters of engines that were unloaded.
    totals: EngineLoad,
}

struct LoadedEngine {
    engine: Arc<Engine>,
    usage: Arc<EngineUsage>,
    since: Instant,
    /// How long it stays, in use, before another model may take its memory.
    min_stay: Duration,
}

impl LoadedEngine {
    fn new(engine: Engine, load_time: Duration, changed: &Arc<Notify>) -> LoadedEngine {
        LoadedEngine {
            engine: Arc::new(engine),
            usage: EngineUsage::new(changed.clone()),
            since: Instant::now(),
            min_stay: MIN_STAY.max(MIN_STAY_FACTOR * load_time),
        }
    }

    fn lease(&self) -> EngineLease {
        EngineLease::new(self.engine.clone(), &self.usage)
    }

    /// Whether another model may take its memory.
    fn may_be_replaced(&self) -> bool {
        self.usage.idle_time().is_some_and(|idle| idle >= IDLE_GAP) || self.since.elapsed() >= self.min_stay
    }
}

impl RegistrySlot {
    /// Takes the engine out. What clients set is forgotten.
    fn unload(&mut self) -> Option<LoadedEngine> {
        self.keep_alive = self.default_keep_alive;
        self.loaded.take()
    }
}

impl ModelRegistry {
    /// Creates a registry whose idle models stay loaded for `keep_alive`; `None` until their memory is needed.
    pub fn new(keep_alive: Option<Duration>) -> Arc<ModelRegistry> {
        Arc::new(ModelRegistry {
            slots: Mutex::default(),
            loading: Arc::default(),
            keep_alive,
            changed: Arc::default(),
        })
    }

    /// Adds a model that `load` loads. `engine` is its engine if it is loaded. Returns its slot.
    pub(crate) fn add(&self, load: EngineLoader, engine: Option<Engine>, stay: ModelStay) -> usize {
        let mut slots = self.slots();
        let keep_alive = stay.keep_alive.unwrap_or(self.keep_alive);
        slots.push(RegistrySlot {
            load: Arc::new(load),
            loaded: engine.map(|engine| LoadedEngine::new(engine, Duration::ZERO, &self.changed)),
            draining: None,
            is_pinned: stay.is_pinned,
            default_keep_alive: keep_alive,
            keep_alive,
            totals: EngineLoad::default(),
        });
        slots.len() - 1
    }

    fn slots(&self) -> MutexGuard<'_, Vec<RegistrySlot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the engine of a slot, if it is loaded. This does not count as use.
    pub(crate) fn loaded(&self, slot: usize) -> Option<Arc<Engine>> {
        self.slots()[slot].loaded.as_ref().map(|loaded| loaded.engine.clone())
    }

    /// Returns the load of a slot's engine. Its counters include those of engines that were unloaded.
    pub(crate) fn counters(&self, slot: usize) -> EngineLoad {
        let slots = self.slots();
        let slot = &slots[slot];
        let mut load = slot
            .loaded
            .as_ref()
            .map_or(EngineLoad::default(), |loaded| loaded.engine.load());
        add_counters(&mut load, &slot.totals);
        if let Some(draining) = &slot.draining {
            let draining = draining.load();
            add_counters(&mut load, &draining);
            load.running += draining.running;
            load.waiting += draining.waiting;
        }
        load
    }

    fn lease(&self, slot: usize) -> Option<EngineLease> {
        self.slots()[slot].loaded.as_ref().map(LoadedEngine::lease)
    }

    /// Returns the engine of a slot, after loading it if necessary. It stays loaded while the lease exists.
    ///
    /// # Errors
    /// A model that cannot be loaded, or does not fit even without the others.
    pub(crate) async fn engine(self: &Arc<Self>, slot: usize) -> Result<EngineLease, Refusal> {
        if let Some(lease) = self.lease(slot) {
            return Ok(lease);
        }
        let turn = self.loading.clone().lock_owned().await;
        let registry = self.clone();
        // A client that leaves meanwhile does not stop the loading.
        let loaded = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            registry.load(slot)
        });
        Ok(loaded.await.map_err(|_| Refusal::Silence)??)
    }

    fn load(&self, slot: usize) -> Result<EngineLease, LoadFailure> {
        if let Some(lease) = self.lease(slot) {
            return Ok(lease);
        }
        let load = self.slots()[slot].load.clone();
        loop {
            let begin = Instant::now();
            match load() {
                Ok(engine) => {
                    let loaded = LoadedEngine::new(engine, begin.elapsed(), &self.changed);
                    let lease = loaded.lease();
                    self.slots()[slot].loaded = Some(loaded);
                    self.changed.notify_one();
                    return Ok(lease);
                }
                Err(LoadFailure::NoRoom(why)) if !self.make_room() => return Err(LoadFailure::NoRoom(why)),
                Err(LoadFailure::NoRoom(_)) => {}
                Err(why) => return Err(why),
            }
        }
    }

    /// Unloads a model: the one that was used least recently, idle ones first. Waits until it has had its stay and
    /// its requests have finished. New requests for it wait meanwhile.
    ///
    /// Returns whether a model was unloaded.
    fn make_room(&self) -> bool {
        let (slot, unloaded) = loop {
            let mut slots = self.slots();
            let unpinned = slots.iter().enumerate().filter(|(_, slot)| !slot.is_pinned);
            let loaded = unpinned.filter_map(|(number, slot)| Some((number, slot.loaded.as_ref()?)));
            let order = |(_, loaded): &(usize, &LoadedEngine)| loaded.usage.eviction_order();
            let Some((slot, first)) = loaded.min_by_key(order) else {
                return false;
            };
            if first.may_be_replaced()
                && let Some(unloaded) = slots[slot].unload()
            {
                slots[slot].draining = Some(unloaded.engine.clone());
                break (slot, unloaded);
            }
            drop(slots);
            std::thread::sleep(LOOK_INTERVAL);
        };
        let is_idle = unloaded.usage.wait_until_idle(MAX_DRAIN);
        let mut slots = self.slots();
        let slot = &mut slots[slot];
        slot.draining = None;
        if !is_idle {
            slot.loaded = Some(unloaded);
            return false;
        }
        add_counters(&mut slot.totals, &unloaded.engine.load());
        drop(slots);
        // Whoever reads the metrics may hold the engine for a moment.
        while Arc::strong_count(&unloaded.engine) > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Sets how long a slot's model stays loaded when nobody uses it.
    pub(crate) fn keep(&self, slot: usize, keep_alive: Option<Duration>) {
        let mut slots = self.slots();
        // A server's only model stays, unless the operator wants otherwise.
        if !slots[slot].is_pinned && (slots.len() > 1 || self.keep_alive.is_some()) {
            slots[slot].keep_alive = keep_alive;
            self.changed.notify_one();
        }
    }

    /// Returns in how long a slot's model is unloaded if nobody uses it; `None` if it stays.
    pub(crate) fn time_left(&self, slot: usize) -> Option<Duration> {
        let slot = &self.slots()[slot];
        if slot.is_pinned {
            return None;
        }
        let idle = slot.loaded.as_ref().and_then(|loaded| loaded.usage.idle_time());
        Some(slot.keep_alive?.saturating_sub(idle.unwrap_or_default()))
    }

    /// Unloads idle models in time, for ever.
    pub(crate) async fn unload_expired(self: Arc<Self>) {
        loop {
            let (expired, next) = self.take_expired();
            if !expired.is_empty() {
                // Freeing a model's memory takes time.
                let _ = tokio::task::spawn_blocking(move || drop(expired)).await;
            }
            let wait = tokio::time::sleep(next.unwrap_or(Duration::from_secs(86_400)));
            tokio::select! {
                () = wait => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Takes out the models that were idle for their `keep_alive`. Returns them, and when the next one expires.
    fn take_expired(&self) -> (Vec<Arc<Engine>>, Option<Duration>) {
        let (mut expired, mut next) = (vec![], None::<Duration>);
        for slot in self.slots().iter_mut().filter(|slot| !slot.is_pinned) {
            let idle = slot.loaded.as_ref().and_then(|loaded| loaded.usage.idle_time());
            let Some((idle, keep_alive)) = idle.zip(slot.keep_alive) else {
                continue;
            };
            if idle < keep_alive {
                let left = keep_alive - idle;
                next = Some(next.map_or(left, |next| next.min(left)));
            } else if let Some(unloaded) = slot.unload() {
                add_counters(&mut slot.totals, &unloaded.engine.load());
                expired.push(unloaded.engine);
            }
        }
        (expired, next)
    }

    /// Ends all engines, which store their prefixes then. Waits for that.
    pub(crate) fn close(&self) {
        let (ending, ended) = mpsc::channel::<()>();
        for loaded in self.slots().iter_mut().filter_map(RegistrySlot::unload) {
            let ending = ending.clone();
            std::thread::spawn(move || {
                // Requests that were cut off may hold it for a moment.
                while Arc::strong_count(&loaded.engine) > 1 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                drop((loaded, ending));
            });
        }
        drop(ending);
        // It is disconnected once all have ended.
        let _ = ended.recv_timeout(CLOSE_TIMEOUT);
    }
}

/// Adds what only grows.
fn add_counters(to: &mut EngineLoad, more: &EngineLoad) {
    to.prompt_tokens += more.prompt_tokens;
    to.cached_tokens += more.cached_tokens;
    to.generated_tokens += more.generated_tokens;
    to.decode_steps += more.decode_steps;
    to.mixed_steps += more.mixed_steps;
    to.preemptions += more.preemptions;
    to.restarts += more.restarts;
    to.drafts += more.drafts;
    to.draft_tokens += more.draft_tokens;
    let accepted = to.accepted_tokens.iter_mut().zip(more.accepted_tokens);
    accepted.for_each(|(to, more)| *to += more);
}

#[cfg(test)]
mod tests;
