//! Which models are loaded. Models are loaded on request, and unloaded when others need the memory or nobody uses them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

struct RegistrySlot {
    load: Arc<EngineLoader>,
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
    /// Takes the engine out. The slot's `keep_alive` is reset to the server's.
    fn unload(&mut self, keep_alive: Option<Duration>) -> Option<LoadedEngine> {
        self.keep_alive = keep_alive;
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
    pub(crate) fn add(&self, load: EngineLoader, engine: Option<Engine>) -> usize {
        let mut slots = self.slots();
        slots.push(RegistrySlot {
            load: Arc::new(load),
            loaded: engine.map(|engine| LoadedEngine::new(engine, Duration::ZERO, &self.changed)),
            draining: None,
            keep_alive: self.keep_alive,
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
            let loaded = slots
                .iter()
                .enumerate()
                .filter_map(|(slot, of)| Some((slot, of.loaded.as_ref()?)));
            let order = |(_, loaded): &(usize, &LoadedEngine)| loaded.usage.eviction_order();
            let Some((slot, first)) = loaded.min_by_key(order) else {
                return false;
            };
            if first.may_be_replaced()
                && let Some(unloaded) = slots[slot].unload(self.keep_alive)
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
        if slots.len() > 1 || self.keep_alive.is_some() {
            slots[slot].keep_alive = keep_alive;
            self.changed.notify_one();
        }
    }

    /// Returns in how long a slot's model is unloaded if nobody uses it; `None` if it stays.
    pub(crate) fn time_left(&self, slot: usize) -> Option<Duration> {
        let slot = &self.slots()[slot];
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
        for slot in self.slots().iter_mut() {
            let idle = slot.loaded.as_ref().and_then(|loaded| loaded.usage.idle_time());
            let Some((idle, keep_alive)) = idle.zip(slot.keep_alive) else {
                continue;
            };
            if idle < keep_alive {
                let left = keep_alive - idle;
                next = Some(next.map_or(left, |next| next.min(left)));
            } else if let Some(unloaded) = slot.unload(self.keep_alive) {
                add_counters(&mut slot.totals, &unloaded.engine.load());
                expired.push(unloaded.engine);
            }
        }
        (expired, next)
    }
}

/// Adds what only grows.
fn add_counters(to: &mut EngineLoad, more: &EngineLoad) {
    to.prompt_tokens += more.prompt_tokens;
    to.cached_tokens += more.cached_tokens;
    to.generated_tokens += more.generated_tokens;
    to.decode_steps += more.decode_steps;
    to.preemptions += more.preemptions;
    to.restarts += more.restarts;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use refrain_engine::{Device, EngineOptions, LoadOptions, Model};
    use refrain_models::Checkpoint;

    use super::*;

    fn engine() -> Engine {
        let checkpoint = Checkpoint::synthetic("tiny:f32").expect("a checkpoint");
        let model = Model::load(&checkpoint, &Device::cpu(), &LoadOptions::default()).expect("loads");
        let options = EngineOptions {
            context: 64,
            ..EngineOptions::default()
        };
        Engine::start(&model, &options).expect("starts")
    }

    /// A registry of three models on a device that has room for `room` of them.
    fn registry(room: usize, keep: Option<Duration>) -> (Arc<ModelRegistry>, Arc<AtomicUsize>) {
        let (registry, loads) = (ModelRegistry::new(keep), Arc::new(AtomicUsize::new(0)));
        for _ in 0..3 {
            let (there, loads) = (Arc::downgrade(&registry), loads.clone());
            let load = move || {
                let there = there.upgrade().expect("the registry exists");
                let loaded = there.slots().iter().filter(|slot| slot.loaded.is_some()).count();
                if loaded < room {
                    loads.fetch_add(1, Ordering::Relaxed);
                    Ok(engine())
                } else {
                    Err(LoadFailure::NoRoom("full".to_owned()))
                }
            };
            registry.add(Box::new(load), None);
        }
        (registry, loads)
    }

    fn sweep(registry: &ModelRegistry) {
        drop(registry.take_expired().0);
    }

    fn loaded(registry: &ModelRegistry) -> Vec<usize> {
        (0..3).filter(|slot| registry.loaded(*slot).is_some()).collect()
    }

    #[test]
    fn unloads_the_least_recently_used_model() {
        let (registry, loads) = registry(2, None);
        for (slot, expected) in [
            (0, vec![0]),
            (1, vec![0, 1]),
            (0, vec![0, 1]),
            (2, vec![0, 2]),
            (1, vec![1, 2]),
        ] {
            drop(registry.load(slot).expect("loads"));
            assert_eq!(loaded(&registry), expected, "after {slot}");
        }
        assert_eq!(loads.load(Ordering::Relaxed), 4);
        let (none, _) = self::registry(0, None);
        assert!(matches!(none.load(0), Err(LoadFailure::NoRoom(_))));
    }

    #[test]
    fn unloads_a_busy_model_once_its_requests_have_finished() {
        let (registry, _) = registry(2, None);
        let held = registry.load(0).expect("loads");
        drop(registry.load(1).expect("loads"));
        // The idle one is unloaded first, though it was used later.
        let other = registry.load(2).expect("loads");
        assert_eq!(loaded(&registry), [0, 2]);
        let waiting = std::thread::spawn({
            let registry = registry.clone();
            move || registry.load(1).map(drop)
        });
        while loaded(&registry) != [2] {
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(100));
        assert!(!waiting.is_finished(), "its request is running");
        drop(held);
        waiting.join().expect("ends").expect("loads");
        assert_eq!(loaded(&registry), [1, 2]);
        drop(other);
    }

    #[test]
    fn unloads_models_after_their_keep_alive() {
        let (registry, _) = registry(3, None);
        let held = registry.load(0).expect("loads");
        drop(registry.load(1).expect("loads"));
        drop(registry.load(2).expect("loads"));
        for slot in [0, 1] {
            registry.keep(slot, Some(Duration::ZERO));
        }
        sweep(&registry);
        assert_eq!(loaded(&registry), [0, 2], "a busy model stays");
        drop(held);
        sweep(&registry);
        assert_eq!(loaded(&registry), [2]);
        assert_eq!(registry.time_left(2), None);
        registry.keep(2, Some(Duration::from_secs(1000)));
        assert!(
            registry
                .time_left(2)
                .is_some_and(|left| left > Duration::from_secs(900))
        );
        let alone = ModelRegistry::new(None);
        alone.add(Box::new(|| Err(LoadFailure::Other("never".to_owned()))), Some(engine()));
        alone.keep(0, Some(Duration::ZERO));
        sweep(&alone);
        assert!(alone.loaded(0).is_some(), "the only model stays");
    }

    #[test]
    fn alternating_clients_do_not_reload_for_each_request() {
        let (registry, loads) = registry(1, None);
        let begin = Instant::now();
        let requests: usize = std::thread::scope(|scope| {
            let client = |slot| {
                let registry = &registry;
                scope.spawn(move || {
                    let mut requests = 0;
                    while begin.elapsed() < Duration::from_secs(2) {
                        let turn = registry.loading.blocking_lock();
                        drop(registry.load(slot).expect("loads"));
                        drop(turn);
                        requests += 1;
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    requests
                })
            };
            // The second waits until the first has had its stay or paused.
            [client(0), client(1)]
                .map(|client| client.join().expect("ends"))
                .iter()
                .sum()
        });
        let loads = loads.load(Ordering::Relaxed);
        assert!(
            loads <= 2 + 2000 / IDLE_GAP.as_millis() as usize && requests > loads,
            "{loads} loads, {requests} requests"
        );
    }

    #[test]
    fn counters_survive_unloading() {
        let (registry, _) = registry(1, None);
        let lease = registry.load(0).expect("loads");
        let (sender, receiver) = std::sync::mpsc::channel();
        let options = refrain_engine::GenerateOptions {
            max_tokens: Some(2),
            ..refrain_engine::GenerateOptions::default()
        };
        let request = refrain_engine::EngineRequest::new(vec![1, 2, 3], options);
        let _ticket = lease
            .submit(request, Box::new(move |event| drop(sender.send(event))))
            .expect("submits");
        while receiver.recv().is_ok() {}
        drop(lease);
        let before = registry.counters(0);
        assert_eq!(before.prompt_tokens, 3);
        drop(registry.load(1).expect("loads"));
        assert_eq!(loaded(&registry), [1]);
        let after = registry.counters(0);
        assert_eq!(
            (after.prompt_tokens, after.generated_tokens),
            (3, before.generated_tokens)
        );
        assert_eq!((after.running, after.pages), (0, 0));
    }
}
