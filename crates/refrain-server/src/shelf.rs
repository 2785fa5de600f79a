//! Which models are on the device: they are brought there when they are asked for, and leave when others need the room or
//! nobody asked for a while.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use refrain_engine::Engine;

use crate::error::Refusal;

/// Brings a model onto the device.
pub type EngineLoader = Box<dyn Fn() -> Result<Engine, LoadFailure> + Send + Sync>;

/// Why a model is not there.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LoadFailure {
    /// Others take up the room.
    #[error("{0}")]
    NoRoom(String),
    /// It cannot be loaded.
    #[error("{0}")]
    Other(String),
}

/// How often is looked whether a model's last text is over.
const LOOK: Duration = Duration::from_millis(20);

/// Models of a server, by their places.
pub struct EngineShelf {
    places: Mutex<Vec<ShelfPlace>>,
    /// One is loaded at a time.
    loading: Arc<tokio::sync::Mutex<()>>,
    /// How long models stay that nobody asks for; `None`: until their room is needed.
    keep: Option<Duration>,
}

struct ShelfPlace {
    load: Arc<EngineLoader>,
    engine: Option<Arc<Engine>>,
    /// When it was last asked for or gave a token.
    used: Instant,
    keep: Option<Duration>,
}

impl ShelfPlace {
    /// Without its engine; whoever asks for it next says how long it stays, else `keep` does.
    fn leave(&mut self, keep: Option<Duration>) -> Option<Arc<Engine>> {
        self.keep = keep;
        self.engine.take()
    }

    fn is_idle(&self) -> bool {
        self.engine
            .as_ref()
            .is_some_and(|engine| Arc::strong_count(engine) == 1)
    }
}

impl EngineShelf {
    /// Of models that stay for so long when nobody asks for them; `None`: until their room is needed.
    pub fn new(keep: Option<Duration>) -> Arc<EngineShelf> {
        Arc::new(EngineShelf {
            places: Mutex::default(),
            loading: Arc::default(),
            keep,
        })
    }

    /// Takes a model that `load` brings onto the device, where `engine` says it is not there yet; its place.
    pub(crate) fn add(&self, load: EngineLoader, engine: Option<Engine>) -> usize {
        let mut places = self.places();
        places.push(ShelfPlace {
            load: Arc::new(load),
            engine: engine.map(Arc::new),
            used: Instant::now(),
            keep: self.keep,
        });
        places.len() - 1
    }

    fn places(&self) -> MutexGuard<'_, Vec<ShelfPlace>> {
        self.places.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    /// The model at a place, if it is loaded; this is no use of it.
    pub(crate) fn loaded(&self, place: usize) -> Option<Arc<Engine>> {
        self.places()[place].engine.clone()
    }

    fn taken(&self, place: usize) -> Option<Arc<Engine>> {
        let place = &mut self.places()[place];
        place.used = Instant::now();
        place.engine.clone()
    }

    /// The model at a place, brought onto the device if it is not there. It stays at least as long as this is held.
    ///
    /// # Errors
    /// What cannot be loaded, or finds no room even without the others.
    pub(crate) async fn engine(self: &Arc<Self>, place: usize) -> Result<Arc<Engine>, Refusal> {
        if let Some(engine) = self.taken(place) {
            return Ok(engine);
        }
        let turn = self.loading.clone().lock_owned().await;
        let shelf = self.clone();
        // Who leaves meanwhile does not end it.
        let loaded = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            shelf.load(place)
        });
        Ok(loaded.await.map_err(|_| Refusal::Silence)??)
    }

    fn load(&self, place: usize) -> Result<Arc<Engine>, LoadFailure> {
        if let Some(engine) = self.taken(place) {
            return Ok(engine);
        }
        let load = self.places()[place].load.clone();
        loop {
            match load() {
                Ok(engine) => {
                    let engine = Arc::new(engine);
                    let place = &mut self.places()[place];
                    (place.engine, place.used) = (Some(engine.clone()), Instant::now());
                    return Ok(engine);
                }
                Err(LoadFailure::NoRoom(why)) if !self.make_room() => return Err(LoadFailure::NoRoom(why)),
                Err(LoadFailure::NoRoom(_)) => {}
                Err(why) => return Err(why),
            }
        }
    }

    /// Lets go of the model that was used least recently, one without texts if there is such; whether there was any. Its
    /// texts come to their ends first; who asks for it meanwhile waits.
    fn make_room(&self) -> bool {
        let engine = {
            let mut places = self.places();
            let loaded = places.iter_mut().filter(|place| place.engine.is_some());
            let first = loaded.min_by_key(|place| (!place.is_idle(), place.used));
            first.and_then(|place| place.leave(self.keep))
        };
        let Some(engine) = engine else { return false };
        while Arc::strong_count(&engine) > 1 {
            std::thread::sleep(LOOK);
        }
        true
    }

    /// Notes how long the model at a place shall stay when nobody asks for it.
    pub(crate) fn keep(&self, place: usize, keep: Option<Duration>) {
        let mut places = self.places();
        // The only one stays, unless whoever started the server wants it otherwise.
        if places.len() > 1 || self.keep.is_some() {
            places[place].keep = keep;
        }
    }

    /// In how long the model at a place leaves if nobody asks for it.
    pub(crate) fn stays(&self, place: usize) -> Option<Duration> {
        let place = &self.places()[place];
        Some(place.keep?.saturating_sub(place.used.elapsed()))
    }

    /// Lets go of those that nobody asked for in time.
    pub(crate) fn sweep(&self) {
        let mut gone = vec![];
        for place in self.places().iter_mut() {
            if place.engine.is_some() && !place.is_idle() {
                place.used = Instant::now();
            }
            if place.is_idle() && place.keep.is_some_and(|keep| place.used.elapsed() >= keep) {
                gone.extend(place.leave(self.keep));
            }
        }
        // What takes its time, the others do not wait for.
        drop(gone);
    }
}

/// How long a model stays when nobody asks for it, as Ollama's clients say it: `5m`, `1h30m`, or seconds; 0 is not at all, and
/// what is negative is for ever (`None`).
///
/// # Errors
/// What is no such text.
pub fn keep_alive(text: &str) -> Result<Option<Duration>, String> {
    let wrong = || format!("{text:?} is no time such as 5m, 1h30m or 300 (seconds)");
    let (is_negative, mut rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let mut seconds = 0.0;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let number = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let unit = rest[number..]
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len() - number);
        let value: f64 = rest[..number].parse().map_err(|_| wrong())?;
        seconds += value
            * match &rest[number..number + unit] {
                "" | "s" => 1.0,
                "ms" => 1e-3,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return Err(wrong()),
            };
        rest = &rest[number + unit..];
    }
    let time = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
    // Beyond a century nobody waits.
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
    Ok((!is_negative && time < CENTURY).then_some(time))
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

    /// A shelf of three models on a device that has room for so many.
    fn shelf(room: usize, keep: Option<Duration>) -> (Arc<EngineShelf>, Arc<AtomicUsize>) {
        let (shelf, loads) = (EngineShelf::new(keep), Arc::new(AtomicUsize::new(0)));
        for _ in 0..3 {
            let (there, loads) = (Arc::downgrade(&shelf), loads.clone());
            let load = move || {
                let there = there.upgrade().expect("it is asked");
                let loaded = there.places().iter().filter(|place| place.engine.is_some()).count();
                if loaded < room {
                    loads.fetch_add(1, Ordering::Relaxed);
                    Ok(engine())
                } else {
                    Err(LoadFailure::NoRoom("full".to_owned()))
                }
            };
            shelf.add(Box::new(load), None);
        }
        (shelf, loads)
    }

    fn loaded(shelf: &EngineShelf) -> Vec<usize> {
        (0..3).filter(|place| shelf.loaded(*place).is_some()).collect()
    }

    #[test]
    fn the_model_that_was_used_least_recently_makes_room() {
        let (shelf, loads) = shelf(2, None);
        for (place, expected) in [
            (0, vec![0]),
            (1, vec![0, 1]),
            (0, vec![0, 1]),
            (2, vec![0, 2]),
            (1, vec![1, 2]),
        ] {
            drop(shelf.load(place).expect("loads"));
            assert_eq!(loaded(&shelf), expected, "after {place}");
        }
        assert_eq!(loads.load(Ordering::Relaxed), 4);
        let (none, _) = self::shelf(0, None);
        assert!(matches!(none.load(0), Err(LoadFailure::NoRoom(_))));
    }

    #[test]
    fn a_model_that_answers_makes_room_when_it_has_done_so() {
        let (shelf, _) = shelf(2, None);
        let held = shelf.load(0).expect("loads");
        drop(shelf.load(1).expect("loads"));
        // The one without texts goes first, though it was used later.
        let other = shelf.load(2).expect("loads");
        assert_eq!(loaded(&shelf), [0, 2]);
        let waiting = std::thread::spawn({
            let shelf = shelf.clone();
            move || shelf.load(1).map(drop)
        });
        while loaded(&shelf) != [2] {
            std::thread::sleep(LOOK);
        }
        std::thread::sleep(3 * LOOK);
        assert!(!waiting.is_finished(), "its text is under way");
        drop(held);
        waiting.join().expect("ends").expect("loads");
        assert_eq!(loaded(&shelf), [1, 2]);
        drop(other);
    }

    #[test]
    fn models_leave_when_nobody_asked_for_as_long_as_was_said() {
        let (shelf, _) = shelf(3, None);
        let held = shelf.load(0).expect("loads");
        drop(shelf.load(1).expect("loads"));
        drop(shelf.load(2).expect("loads"));
        for place in [0, 1] {
            shelf.keep(place, Some(Duration::ZERO));
        }
        shelf.sweep();
        assert_eq!(loaded(&shelf), [0, 2], "what answers stays");
        drop(held);
        shelf.sweep();
        assert_eq!(loaded(&shelf), [2]);
        assert_eq!(shelf.stays(2), None);
        shelf.keep(2, Some(Duration::from_secs(1000)));
        assert!(shelf.stays(2).is_some_and(|left| left > Duration::from_secs(900)));
        let alone = EngineShelf::new(None);
        alone.add(Box::new(|| Err(LoadFailure::Other("never".to_owned()))), Some(engine()));
        alone.keep(0, Some(Duration::ZERO));
        alone.sweep();
        assert!(alone.loaded(0).is_some(), "the only one stays");
    }

    #[test]
    fn times_to_stay_are_read_as_ollamas_are() {
        let seconds = |text: &str| keep_alive(text).map(|time| time.map(|time| time.as_millis()));
        assert_eq!(seconds("5m"), Ok(Some(300_000)));
        assert_eq!(seconds("1h30m"), Ok(Some(5_400_000)));
        assert_eq!(seconds("1.5s"), Ok(Some(1500)));
        assert_eq!((seconds("20"), seconds("0")), (Ok(Some(20_000)), Ok(Some(0))));
        assert_eq!(
            (seconds("-1"), seconds("-5m"), seconds("9999999h")),
            (Ok(None), Ok(None), Ok(None))
        );
        for wrong in ["", "-", "m", "5x", "1e9999", "five", "5 m"] {
            assert!(keep_alive(wrong).is_err(), "{wrong}");
        }
    }
}
