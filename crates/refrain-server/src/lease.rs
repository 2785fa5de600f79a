//! Counts who uses a loaded engine, so that it is unloaded only when nobody does.

use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use refrain_engine::Engine;
use tokio::sync::Notify;

/// The uses of one loaded engine.
pub(crate) struct EngineUsage {
    uses: Mutex<Uses>,
    idle: Condvar,
    /// Wakes whoever unloads idle models.
    changed: Arc<Notify>,
}

struct Uses {
    count: usize,
    /// When the last use began or ended.
    last: Instant,
}

impl EngineUsage {
    pub fn new(changed: Arc<Notify>) -> Arc<EngineUsage> {
        let uses = Uses {
            count: 0,
            last: Instant::now(),
        };
        Arc::new(EngineUsage {
            uses: Mutex::new(uses),
            idle: Condvar::new(),
            changed,
        })
    }

    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long nobody has used it; `None` while somebody does.
    pub fn idle_time(&self) -> Option<Duration> {
        let uses = self.uses();
        (uses.count == 0).then(|| uses.last.elapsed())
    }

    /// Engines are unloaded in ascending order: idle ones first, then by their last use.
    pub fn eviction_order(&self) -> (bool, Instant) {
        let uses = self.uses();
        (uses.count > 0, uses.last)
    }

    /// Waits until nobody uses it, at most for `timeout`. Returns whether that is so.
    pub fn wait_until_idle(&self, timeout: Duration) -> bool {
        let waited = self
            .idle
            .wait_timeout_while(self.uses(), timeout, |uses| uses.count > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.count == 0
    }
}

/// One use of an engine. It does not hold the engine itself, so it may be dropped on the engine's own thread.
pub(crate) struct EngineUse(Arc<EngineUsage>);

impl EngineUse {
    fn new(usage: &Arc<EngineUsage>) -> EngineUse {
        let mut uses = usage.uses();
        uses.count += 1;
        uses.last = Instant::now();
        drop(uses);
        EngineUse(usage.clone())
    }
}

impl Drop for EngineUse {
    fn drop(&mut self) {
        let mut uses = self.0.uses();
        uses.count -= 1;
        uses.last = Instant::now();
        let is_idle = uses.count == 0;
        drop(uses);
        if is_idle {
            self.0.idle.notify_all();
            self.0.changed.notify_one();
        }
    }
}

/// A loaded engine, which stays loaded while this exists.
pub(crate) struct EngineLease {
    engine: Arc<Engine>,
    in_use: EngineUse,
}

impl EngineLease {
    pub fn new(engine: Arc<Engine>, usage: &Arc<EngineUsage>) -> EngineLease {
        let in_use = EngineUse::new(usage);
        EngineLease { engine, in_use }
    }

    /// Returns a further use, for a request that the engine works on.
    pub fn hold(&self) -> EngineUse {
        EngineUse::new(&self.in_use.0)
    }
}

impl Clone for EngineLease {
    fn clone(&self) -> EngineLease {
        EngineLease::new(self.engine.clone(), &self.in_use.0)
    }
}

impl Deref for EngineLease {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}
