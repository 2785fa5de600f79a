//! Random programs of 5 to 20 operations on numbers that every device computes exactly. Whole programs (fused, written
//! through, placed, scheduled) must equal their operations computed one at a time.

use refrain::{Array, DType, Device, Function, concatenate, eval, fast};
use refrain_testing::sample;

use crate::common::{Contents, Random, assert_equal, assert_silent, contents, plain, vulkan};

const ROWS: usize = 6;

/// Device and mode of a run.
struct Run<'a> {
    device: &'a Device,
    /// Whether each operation is evaluated separately.
    stepwise: bool,
    /// Creates the program's argument with a number and a shape.
    argument: &'a mut dyn FnMut(usize, &[usize]) -> Array,
}

/// A program's arrays so far, and the newest version of its state `[ROWS, width]`.
struct Program<'a> {
    run: Run<'a>,
    random: Random,
    arrays: Vec<Array>,
    state: Array,
}

/// Multiples of 1/8 in ±8: sums and products of a few of them are exact in f32, in any order.
fn snapped(x: &Array) -> Array {
    ((x.astype(DType::F32) * 8.0).round() * 0.125)
        .minimum(8.0)
        .maximum(-8.0)
}

impl Program<'_> {
    fn add(&mut self, x: Array) {
        if self.run.stepwise {
            x.eval().unwrap_or_else(|error| panic!("{x:?}: {error}"));
        }
        if x.count() <= 2000 {
            self.arrays.push(x);
        }
    }

    fn any(&mut self) -> Array {
        // Prefers recent arrays, so that chains grow.
        let n = self.arrays.len();
        let back = if self.random.one_in(2) {
            self.random.below(n.min(2))
        } else {
            self.random.below(n)
        };
        self.arrays[n - 1 - back].clone()
    }

    /// An array that broadcasts with `x`.
    fn partner(&mut self, x: &Array) -> Array {
        let fits = |y: &&Array| y.rank() <= x.rank() && y.shape() == &x.shape()[x.rank() - y.rank()..];
        let found: Vec<Array> = self.arrays.iter().filter(fits).cloned().collect();
        found[self.random.below(found.len())].clone()
    }

    fn step(&mut self) {
        let x = self.any();
        let axis = if x.rank() == 0 { 0 } else { self.random.below(x.rank()) };
        match self.random.below(14) {
            0 | 1 => self.elementwise(&x),
            2 | 3 => self.view(&x, axis),
            4 if x.rank() > 0 => self.add(snapped(&x.sum(&[axis as isize]))),
            5 if x.rank() > 1 => {
                let x = snapped(&x);
                self.add(snapped(&x.matmul(&x.swap_axes(-1, -2))));
            }
            6 if x.rank() == 2 => {
                let x = snapped(&x);
                let heads = x.expand_dims(1).matmul(&x.transpose()).permute(&[1, 0, 2]);
                self.add(snapped(&heads.contiguous()));
            }
            7 => {
                let dtype = self.random.pick(&DType::ALL);
                self.add(x.astype(dtype));
            }
            8 if x.rank() > 0 => {
                let y = self.partner(&x).broadcast_to(x.shape());
                self.add(concatenate(&[&x, &y], axis as isize));
            }
            9 if x.rank() > 0 && x.shape()[x.rank() - 1] > 0 => {
                let k = self.random.below(x.shape()[x.rank() - 1]) + 1;
                let order = x.top_k(k);
                self.add(x.take_along(&order));
                self.add(order);
            }
            10 if x.rank() > 0 => {
                let indices: Vec<i32> = (0..4).map(|_| self.random.below(7) as i32 - 1).collect();
                let indices = Array::from_slice(self.run.device, &indices, &[2, 2]);
                self.add(x.take(&indices, axis as isize));
            }
            11 | 12 => self.write(&x),
            13 => self.read(),
            _ => self.add(&x + 0.5),
        }
    }

    fn elementwise(&mut self, x: &Array) {
        let y = self.partner(x);
        let made = match self.random.below(7) {
            0 => snapped(&(x + &y)),
            1 => snapped(&(x * &y)),
            2 => x.maximum(&y) - 1.0,
            3 => x.gt(&y).select(x, &(&y * 0.5)),
            4 => snapped(&x.astype(DType::F32).abs()).floor(),
            5 => snapped(&(x - &Array::arange(self.run.device, DType::F32, x.count()).reshape(&signed(x.shape())))),
            _ => snapped(&(-x).silu()).round(),
        };
        self.add(made);
    }

    fn view(&mut self, x: &Array, axis: usize) {
        let n = x.shape().get(axis).copied().unwrap_or(1);
        let made = match self.random.below(5) {
            0 => x.permute(&self.random.axes(x.rank())),
            1 if x.rank() > 0 => {
                let start = self.random.below(n + 1);
                x.slice_by(axis as isize, start, n, 1 + self.random.below(2))
            }
            2 => x.reshape(&[-1]),
            3 if x.rank() < 4 => x.expand_dims(0).broadcast_to(&[&[2], x.shape()].concat()),
            _ => x.transpose().reshape(&signed(x.shape())),
        };
        self.add(made);
    }

    /// Writes rows to random slots of the state, some of them out of range.
    fn write(&mut self, x: &Array) {
        let width = self.state.shape()[1];
        let t = (x.count() / width).min(ROWS);
        let rows = x
            .reshape(&[-1])
            .slice(0, 0, t * width)
            .reshape(&[t as isize, width as isize]);
        let rows_order = self.random.order(ROWS);
        let outside =
            |random: &mut Random, slot: usize| random.pick(&[slot as i32, slot as i32, slot as i32 - ROWS as i32]);
        let slots: Vec<i32> = rows_order[..t]
            .iter()
            .map(|&slot| outside(&mut self.random, slot))
            .collect();
        let slots = Array::from_slice(self.run.device, &slots, &[t]);
        self.state = self.state.write_rows(&snapped(&rows), &slots);
        if self.run.stepwise {
            self.state.eval().expect("the state is written");
        }
    }

    fn read(&mut self) {
        let state = self.state.clone();
        match self.random.below(4) {
            0 => self.add(snapped(&(&state * 0.5))),
            // Writes rows of the state into the state itself.
            1 => self.write(&state.slice(0, 1, 5)),
            2 => self.add(state.transpose().contiguous()),
            _ => self.add(state.slice(0, 1, ROWS).astype(DType::F32) + 0.0),
        }
    }
}

fn signed(shape: &[usize]) -> Vec<isize> {
    shape.iter().map(|&n| n as isize).collect()
}

/// Runs the program of a seed. Returns its results, the state's newest version last.
fn program(seed: u64, run: Run<'_>, state: &Array) -> Vec<Array> {
    let mut random = Random::new(seed);
    let (m, n) = (random.pick(&[1, 3, 8]), random.pick(&[2, 5, 17]));
    let shapes = [vec![m, n], vec![n], vec![n, m, 2], vec![]];
    let arrays: Vec<Array> = shapes
        .iter()
        .enumerate()
        .map(|(i, shape)| (run.argument)(i, shape))
        .collect();
    let steps = 5 + random.below(16);
    let mut program = Program {
        run,
        random,
        arrays,
        state: state.clone(),
    };
    (0..steps).for_each(|_| program.step());
    let x = program.any();
    let mut results = program.arrays.split_off(4);
    let kept = results.len().saturating_sub(6);
    let mut results = results.split_off(kept);
    results.push(x.astype(DType::F32).reshape(&[-1, 1]).sum(&[0]));
    // The copy is a new array: later reads of it are not reads of an old version of the state.
    results.push(program.state.astype(DType::F32) + 0.0);
    results
}

fn new_state(device: &Device, seed: u64) -> Array {
    let dtype = [DType::F32, DType::F16, DType::BF16][seed as usize % 3];
    Array::state(device, dtype, &[ROWS, 3]).expect("a small state")
}

/// The elements of argument `number` in call `call`.
fn elements(seed: u64, call: u64, number: usize, shape: &[usize]) -> Vec<f32> {
    let mut random = Random::new(seed * 1000 + call * 10 + number as u64);
    (0..shape.iter().product())
        .map(|_| random.below(65) as f32 / 8.0 - 4.0)
        .collect()
}

/// Two runs of a program with different arguments and the same state.
fn evaluated(seed: u64, device: &Device, stepwise: bool) -> Vec<Contents> {
    let mut state = new_state(device, seed);
    let mut found = vec![];
    for call in 0..2 {
        let argument =
            &mut |number, shape: &[usize]| Array::from_slice(device, &elements(seed, call, number, shape), shape);
        let results = program(
            seed,
            Run {
                device,
                stepwise,
                argument,
            },
            &state,
        );
        eval(&results.iter().collect::<Vec<_>>()).unwrap_or_else(|e| panic!("seed {seed} on {device:?}: {e}"));
        found.extend(results.iter().map(|a| contents(a).expect("evaluated")));
        // The newest version, as the next run finds it.
        let rows = results.last().expect("the state").astype(state.dtype());
        state = new_state(device, seed);
        let all = Array::arange(device, DType::I32, ROWS);
        state = state.write_rows(&rows, &all);
        state.eval().expect("the state is written");
    }
    found
}

/// The same by a function that is traced once and called twice.
fn called(seed: u64, device: &Device) -> Vec<Contents> {
    let state = new_state(device, seed);
    let mut shapes: Vec<Vec<usize>> = vec![];
    let argument = &mut |number: usize, shape: &[usize]| {
        shapes.push(shape.to_vec());
        Array::input(device, &format!("x{number}"), DType::F32, shape)
    };
    let results = program(
        seed,
        Run {
            device,
            stepwise: false,
            argument,
        },
        &state,
    );
    let function = Function::trace(&results.iter().collect::<Vec<_>>()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let mut found = vec![];
    for call in 0..2 {
        let names: Vec<String> = (0..shapes.len()).map(|n| format!("x{n}")).collect();
        let values: Vec<Vec<f32>> = shapes
            .iter()
            .enumerate()
            .map(|(n, s)| elements(seed, call, n, s))
            .collect();
        let arguments: Vec<(&str, &[u8])> = names
            .iter()
            .zip(&values)
            .map(|(name, v)| (name.as_str(), bytemuck::cast_slice(v)))
            .collect();
        function.call_bytes(&arguments).expect("the call is submitted");
        found.extend(
            results
                .iter()
                .enumerate()
                .map(|(number, result)| read(&function, number, result)),
        );
    }
    found
}

fn read(function: &Function, number: usize, result: &Array) -> Contents {
    let values: Vec<f64> = match result.dtype() {
        DType::F32 => function
            .read::<f32>(number)
            .expect("f32")
            .into_iter()
            .map(f64::from)
            .collect(),
        DType::F16 => function
            .read::<half::f16>(number)
            .expect("f16")
            .into_iter()
            .map(f64::from)
            .collect(),
        DType::BF16 => function
            .read::<half::bf16>(number)
            .expect("bf16")
            .into_iter()
            .map(f64::from)
            .collect(),
        DType::I32 => function
            .read::<i32>(number)
            .expect("i32")
            .into_iter()
            .map(f64::from)
            .collect(),
        DType::U32 => function
            .read::<u32>(number)
            .expect("u32")
            .into_iter()
            .map(f64::from)
            .collect(),
        DType::U8 => function
            .read::<u8>(number)
            .expect("u8")
            .into_iter()
            .map(f64::from)
            .collect(),
        DType::Bool => function
            .read::<bool>(number)
            .expect("bool")
            .into_iter()
            .map(|b| f64::from(u8::from(b)))
            .collect(),
    };
    Contents {
        dtype: result.dtype(),
        shape: result.shape().to_vec(),
        values,
    }
}

fn assert_all_equal(found: &[Contents], expected: &[Contents], context: &str) {
    assert_eq!(found.len(), expected.len(), "{context}");
    for (number, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_equal(found, expected, &format!("{context}, result {number}"));
    }
}

#[test]
fn whole_programs_equal_their_operations_one_by_one() {
    for seed in sample(1000..1150, 8) {
        let cpu = Device::cpu();
        let expected = evaluated(seed, &cpu, true);
        assert_all_equal(&evaluated(seed, &cpu, false), &expected, &format!("seed {seed}, CPU"));
        assert_all_equal(&called(seed, &cpu), &expected, &format!("seed {seed}, CPU, traced"));
    }
}

#[test]
fn programs_on_the_device_equal_those_on_the_cpu() {
    for seed in sample(1000..1040, 8) {
        let expected = evaluated(seed, &Device::cpu(), true);
        let device = if seed % 4 == 0 { plain() } else { vulkan() };
        match seed % 3 {
            0 => assert_all_equal(&evaluated(seed, device, false), &expected, &format!("seed {seed}")),
            _ => assert_all_equal(&called(seed, device), &expected, &format!("seed {seed}, traced")),
        }
        assert_silent();
    }
}

#[test]
fn programs_with_transcendental_functions_agree() {
    for seed in sample(1200..1212, 6) {
        crate::check(seed, |device, random| {
            let (t, n) = (random.pick(&[1, 5, 12]), random.pick(&[8, 24]));
            let mut x = random.viewed(device, DType::F32, &[t, n]);
            for _ in 0..3 {
                let dtype = random.pick(&[DType::F32, DType::F16]);
                let w = random.viewed(device, dtype, &[n, n]).astype(DType::F32) * 0.2;
                let norm_weight = random.dense(device, DType::F32, &[n]);
                let h = fast::rms_norm(&x, Some(&norm_weight), 1e-6).matmul(&w);
                let mixed = h.matmul(&h.transpose()).softmax().matmul(&h);
                x = &x + (&mixed.silu() * &h.tanh());
            }
            vec![x.clone(), x.mean(&[0]), x.softmax()]
        });
    }
}
