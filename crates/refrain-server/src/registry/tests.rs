//! Tests of loading, unloading and counting.

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
        registry.add(Box::new(load), None, ModelStay::default());
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
    if !refrain_testing::drawn(8) {
        return;
    }
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
    alone.add(
        Box::new(|| Err(LoadFailure::Other("never".to_owned()))),
        Some(engine()),
        ModelStay::default(),
    );
    alone.keep(0, Some(Duration::ZERO));
    sweep(&alone);
    assert!(alone.loaded(0).is_some(), "the only model stays");
}

#[test]
fn alternating_clients_do_not_reload_for_each_request() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let (registry, loads) = registry(1, None);
    let begin = Instant::now();
    let requests: usize = std::thread::scope(|scope| {
        let client = |slot| {
            let registry = &registry;
            scope.spawn(move || {
                let mut requests = 0;
                while begin.elapsed() < Duration::from_secs(2) {
                    let lease = registry.lease(slot).unwrap_or_else(|| {
                        let _turn = registry.loading.blocking_lock();
                        registry.load(slot).expect("loads")
                    });
                    drop(lease);
                    requests += 1;
                    std::thread::sleep(Duration::from_millis(20));
                }
                requests
            })
        };
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
fn pinned_models_are_never_unloaded() {
    let registry = ModelRegistry::new(Some(Duration::ZERO));
    let stay = ModelStay {
        keep_alive: None,
        is_pinned: true,
    };
    let full = || Err(LoadFailure::NoRoom("full".to_owned()));
    registry.add(Box::new(full), Some(engine()), stay);
    registry.add(Box::new(full), None, ModelStay::default());
    assert!(matches!(registry.load(1), Err(LoadFailure::NoRoom(_))));
    registry.keep(0, Some(Duration::ZERO));
    sweep(&registry);
    assert!(registry.loaded(0).is_some());
    assert_eq!(registry.time_left(0), None);
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
    // The engine counts a step behind its events.
    while registry.counters(0).running > 0 {
        std::thread::yield_now();
    }
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
