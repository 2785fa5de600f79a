//! Evaluations on a thread of their own.

use refrain_mlx::index::{self, Index};
use refrain_mlx::{Value, compute_device, ops};

const SLOTS: usize = 64;

/// A loop as mlx-lm writes it: each step reads the last result and writes it into a cache.
struct Loop {
    cache: Value,
    used: i64,
}

impl Loop {
    fn new() -> Loop {
        let zeros = Value::from_slice(&[0.0f32; 4 * SLOTS], &[SLOTS, 4]).expect("fits");
        // Memory of its own, which updates can take over.
        let zeros = ops::multiply(&(&zeros).into(), &1i64.into()).expect("multiplies");
        refrain_mlx::eval(std::slice::from_ref(&zeros)).expect("computes");
        Loop { cache: zeros, used: 0 }
    }

    fn step(&mut self, x: &Value) -> Value {
        let slot = Index::Slice {
            start: Some(self.used),
            stop: Some(self.used + 1),
            step: None,
        };
        let row = ops::reshape(x, &[1, 4]).expect("fits");
        self.cache = index::set(&self.cache, &[slot, Index::ALL], &(&row).into()).expect("fits");
        self.used += 1;
        let sum = ops::sum(&self.cache, Some(&[0]), false).expect("sums");
        let half = ops::multiply(&(&sum).into(), &0.5.into()).expect("multiplies");
        ops::add(&(&half).into(), &1i64.into()).expect("adds")
    }
}

fn first() -> Value {
    Value::from_slice(&[0.0f32, 1.0, -1.0, 0.5], &[4]).expect("fits")
}

#[test]
fn loop_that_is_a_step_ahead_computes_what_a_waiting_one_does() {
    let expected: Vec<Vec<f32>> = {
        let (mut steps, mut x) = (Loop::new(), first());
        let mut step = || {
            x = steps.step(&x);
            refrain_mlx::eval(std::slice::from_ref(&x)).expect("computes");
            x.to_vec().expect("reads")
        };
        (0..40).map(|_| step()).collect()
    };
    let before = compute_device().program_counts();
    let (mut steps, mut found) = (Loop::new(), vec![]);
    let mut x = steps.step(&first());
    refrain_mlx::async_eval(std::slice::from_ref(&x));
    for _ in 0..40 {
        let next = steps.step(&x);
        refrain_mlx::async_eval(std::slice::from_ref(&next));
        found.push(x.to_vec::<f32>().expect("reads"));
        x = next;
    }
    assert_eq!(found, expected);
    refrain_mlx::finish_submitting();
    let after = compute_device().program_counts();
    // The programs of the first loop, whose cache is never copied.
    assert_eq!(after.lowerings, before.lowerings, "{}", compute_device().explain());
    assert_eq!(
        [after.in_place - before.in_place, after.copies - before.copies],
        [41, 0]
    );
}

#[test]
fn threads_start_and_read_side_by_side() {
    std::thread::scope(|scope| {
        for thread in 0..4i64 {
            scope.spawn(move || {
                let mut x = Value::from_slice(&[thread as f32; 8], &[8]).expect("fits");
                for step in 0..50 {
                    x = ops::add(&(&x).into(), &1i64.into()).expect("adds");
                    refrain_mlx::async_eval(std::slice::from_ref(&x));
                    if step % 7 == 0 {
                        assert_eq!(x.to_vec::<f32>().expect("reads"), [(thread + step + 1) as f32; 8]);
                    }
                }
                assert_eq!(x.to_vec::<f32>().expect("reads"), [(thread + 50) as f32; 8]);
            });
        }
    });
}
