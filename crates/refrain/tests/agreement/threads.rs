//! Concurrent evaluation of arrays that depend on each other.

use std::sync::Barrier;

use refrain::{Array, DType, Device, Error, Function};

use crate::common::{assert_silent, vulkan};

const THREADS: usize = 4;

/// The results of `act(thread)` on several threads that start together.
fn at_once<T: Send>(act: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let (barrier, act) = (Barrier::new(THREADS), &act);
    std::thread::scope(|scope| {
        let run = |thread: usize| {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                act(thread)
            })
        };
        let threads: Vec<_> = (0..THREADS).map(run).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    })
}

fn each_device(test: impl Fn(&Device, usize)) {
    test(&Device::cpu(), 200);
    test(vulkan(), 50);
    assert_silent();
}

/// A state's next version, with each element incremented.
fn counted(state: &Array) -> Array {
    let first = Array::zeros(state.device(), DType::I32, &[1]);
    state.write_rows(&(state + 1.0), &first)
}

#[test]
fn an_update_evaluated_by_several_threads_happens_once_and_all_see_it() {
    if !refrain_testing::drawn(6) {
        return;
    }
    each_device(|device, rounds| {
        let mut state = Array::state(device, DType::F32, &[1, 3]).expect("memory");
        for round in 1..=rounds {
            let next = counted(&state);
            // The update itself, twice; a result that depends on it; a view of it.
            let wanted = [next.clone(), next.clone(), &next * 2.0, next.slice(1, 1, 3)];
            let seen = at_once(|thread| wanted[thread].to_vec::<f32>());
            let n = round as f32;
            for (seen, expected) in seen.into_iter().zip([&[n; 3][..], &[n; 3], &[2.0 * n; 3], &[n; 2]]) {
                assert_eq!(seen.expect("the newest version"), expected, "round {round}");
            }
            state = next;
        }
    });
}

#[test]
fn updates_of_several_states_by_one_program_happen_once() {
    each_device(|device, rounds| {
        let new = || Array::state(device, DType::F32, &[1, 3]).expect("memory");
        let (mut left, mut right) = (new(), new());
        for round in 1..=rounds {
            let next = [counted(&left), counted(&right)];
            let sum = &next[0] + &next[1];
            let wanted = [next[0].clone(), sum.clone(), next[1].clone(), sum];
            let seen = at_once(|thread| wanted[thread].to_vec::<f32>());
            let n = round as f32;
            let expected = [n, 2.0 * n, n, 2.0 * n];
            for (seen, expected) in seen.into_iter().zip(expected) {
                assert_eq!(seen.expect("the newest version"), [expected; 3], "round {round}");
            }
            [left, right] = next;
        }
    });
}

#[test]
fn a_reader_concurrent_to_an_update_sees_one_whole_version_or_an_error() {
    each_device(|device, rounds| {
        let mut state = Array::state(device, DType::F32, &[1, 1000]).expect("memory");
        for round in 1..=rounds {
            let next = counted(&state);
            let before = &state * 2.0;
            let seen = at_once(|thread| match thread {
                0 => next.to_vec::<f32>(),
                1 => before.to_vec::<f32>(),
                _ => state.to_vec::<f32>(),
            });
            let n = round as f32;
            let expected = [n, 2.0 * (n - 1.0), n - 1.0, n - 1.0];
            for (thread, (seen, expected)) in seen.into_iter().zip(expected).enumerate() {
                match seen {
                    Ok(seen) => assert!(seen.iter().all(|x| *x == expected), "round {round}"),
                    Err(Error::StaleState { .. }) => assert_ne!(thread, 0, "round {round}"),
                    Err(other) => panic!("{other}"),
                }
            }
            state = next;
        }
    });
}

#[test]
fn a_function_traced_during_an_evaluation_does_not_repeat_its_update() {
    let device = Device::cpu();
    for _ in 0..200 {
        let state = Array::state(&device, DType::F32, &[1, 1]).expect("memory");
        let next = counted(&state);
        let traced = at_once(|thread| match thread {
            0 => next.eval().map(|()| None),
            _ => Function::trace(&[&(&next * 2.0)]).map(Some),
        });
        for function in traced.into_iter().map(|traced| traced.expect("a consistent view")) {
            let Some(function) = function else { continue };
            // Traced before the evaluation, it updates the state itself; traced after it, it only reads the state.
            let updates = function.graph().to_string().contains("write_rows");
            assert!(!updates || function.call_bytes(&[]).is_ok());
        }
        assert!(next.is_evaluated());
    }
}

#[test]
fn a_failed_evaluation_releases_its_locks() {
    let device = Device::cpu();
    let state = Array::state(&device, DType::F32, &[1, 1]).expect("memory");
    let argument = Array::input(&device, "x", DType::F32, &[1, 1]);
    let unbound = &counted(&state) + &argument;
    for seen in at_once(|_| unbound.eval()) {
        assert!(matches!(seen, Err(Error::UnboundInput { .. })));
    }
    assert_eq!(counted(&state).to_vec::<f32>().expect("not locked any more"), [1.0]);
}
