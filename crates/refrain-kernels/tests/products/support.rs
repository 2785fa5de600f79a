use refrain_kernels::fragments::{FragmentOrder, MatrixCores};
use refrain_kernels::projection::ProjectionCalls;
use refrain_kernels::{Call, DType, Layout, OperandSpec, Traits, Values};
use refrain_vulkan::DeviceKind;

use crate::common::{self, Arena, Random};

pub const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// The device's own traits.
pub fn device_traits() -> Traits {
    common::variants().swap_remove(0)
}

/// The device's own traits, the minimum of Vulkan, and subgroups that turn out to be half as large as the kernels
/// expect.
pub fn all_traits() -> Vec<Traits> {
    let mut traits = common::variants();
    let own = traits[0].clone();
    traits.push(Traits {
        subgroup_size: 2 * own.subgroup_size,
        full_subgroups: false,
        matrix_cores: None,
        ..own
    });
    traits
}

/// Whether a software driver runs the tests. It takes long to compile a kernel.
pub fn is_software() -> bool {
    common::device().info().kind == DeviceKind::Software
}

/// Each of many cases with all of [`all_traits`]; on a software driver with one of them, in turn.
pub fn in_turn<T: Clone>(cases: impl IntoIterator<Item = T>) -> impl Iterator<Item = (T, Traits)> {
    in_turn_among(all_traits(), cases)
}

/// Each of many cases with all of these traits; on a software driver with one of them, in turn. Without traits, nothing.
pub fn in_turn_among<T: Clone>(
    traits: Vec<Traits>,
    cases: impl IntoIterator<Item = T>,
) -> impl Iterator<Item = (T, Traits)> {
    let each = if is_software() { 1 } else { traits.len() };
    let cases = cases.into_iter().enumerate();
    cases.flat_map(move |(number, case)| {
        // Shifted after each round, so that cases which differ in two ways do not meet the same traits in step.
        let first = number + number / traits.len().max(1);
        let chosen = traits.iter().cycle().skip(first % traits.len().max(1)).take(each);
        chosen.map(|traits| (case.clone(), traits.clone())).collect::<Vec<_>>()
    })
}

/// The device's traits and matrix cores, if it has any; otherwise prints why the test is skipped. With
/// `REFRAIN_NEEDS_MATRIX_CORES` set, tests fail instead.
pub fn matrix_cores() -> Option<(Traits, MatrixCores)> {
    let own = device_traits();
    let Some(cores) = own.matrix_cores else {
        let needed = std::env::var_os("REFRAIN_NEEDS_MATRIX_CORES").is_some();
        assert!(!needed, "{} has no matrix cores", common::device().info().name);
        eprintln!("skipped: the device has no matrix cores");
        return None;
    };
    Some((own, cores))
}

/// The device's traits with its matrix cores, and also with opaque layouts; empty without matrix cores.
pub fn with_matrix_cores() -> Vec<Traits> {
    let Some((own, cores)) = matrix_cores() else {
        return vec![];
    };
    let shapes = common::device().f16_matrix_shapes().into_iter();
    let opaque = shapes.filter_map(|shape| MatrixCores::opaque(shape, own.subgroup_size));
    let all = [cores].into_iter().chain(opaque);
    all.map(|cores| with(&own, cores)).collect()
}

/// The device's traits with an opaque layout whose fragments are twice as large as its instructions.
pub fn with_split_fragments() -> Option<Traits> {
    let (own, cores) = matrix_cores()?;
    let split = MatrixCores {
        size: 2 * cores.size,
        order: FragmentOrder::Opaque,
        ..cores
    };
    Some(with(&own, split))
}

fn with(own: &Traits, cores: MatrixCores) -> Traits {
    Traits {
        matrix_cores: Some(cores),
        ..own.clone()
    }
}

/// Random numbers within ±1.
pub fn floats(random: &mut Random, count: usize) -> Vec<f32> {
    (0..count).map(|_| random.unit()).collect()
}

/// An operand with padding between rows and an odd offset.
pub fn padded(dtype: DType, shape: &[usize]) -> OperandSpec {
    let wider: Vec<usize> = shape.iter().map(|n| n + 1).collect();
    let mut layout = Layout::contiguous(&wider);
    layout.shape = shape.into();
    layout.offset = 3;
    OperandSpec { dtype, layout }
}

/// An operand that is stored with two dimensions exchanged.
pub fn swapped(dtype: DType, shape: &[usize], a: usize, b: usize) -> OperandSpec {
    let mut axes: Vec<usize> = (0..shape.len()).collect();
    axes.swap(a, b);
    let stored: Vec<usize> = axes.iter().map(|&axis| shape[axis]).collect();
    OperandSpec {
        dtype,
        layout: Layout::contiguous(&stored).permute(&axes),
    }
}

/// A buffer with `values` at the operand's elements, and NaN (all bits set) elsewhere.
pub fn encode(operand: &OperandSpec, values: &Values) -> Vec<u8> {
    let mut bytes = blank(operand);
    values.store(operand.dtype, &operand.layout, &mut bytes);
    bytes
}

/// A buffer a little larger than the operand, with all bits set.
fn blank(operand: &OperandSpec) -> Vec<u8> {
    vec![0xff; (operand.layout.end() + 5) * operand.dtype.size()]
}

/// Returns the operand's values after storing `values`: rounded, and equal where elements alias.
pub fn stored(operand: &OperandSpec, values: &[f32]) -> Vec<f32> {
    let bytes = encode(operand, &Values::F32(values.to_vec()));
    Values::load(operand.dtype, &operand.layout, &bytes).f32().to_vec()
}

/// Runs the calls on the inputs and a blank output, and returns the output's elements. Fails if anything else was
/// written.
pub fn outcome(calls: &[Call], inputs: &[(&OperandSpec, Values)], out: &OperandSpec) -> Values {
    outcome_with(calls, inputs, out, None)
}

/// Runs the calls of a product. Fails unless its counters are zero again.
pub fn outcome_of(made: &ProjectionCalls, inputs: &[(&OperandSpec, Values)], out: &OperandSpec) -> Values {
    outcomes_of(made, inputs, &[out]).swap_remove(0)
}

/// [`outcome_of`] with several results.
pub fn outcomes_of(made: &ProjectionCalls, inputs: &[(&OperandSpec, Values)], results: &[&OperandSpec]) -> Vec<Values> {
    let mut arena = Arena::new();
    inputs.iter().for_each(|(o, v)| arena.add(&encode(o, v)));
    results.iter().for_each(|result| arena.add(&blank(result)));
    if let Some(workspace) = &made.workspace {
        arena.add(&blank(workspace));
    }
    if made.tickets > 0 {
        arena.add(&vec![0; 4 * made.tickets]);
    }
    // Runs twice: counters must be zero again.
    arena.run(&[&made.calls[..], &made.calls].concat());
    if made.tickets > 0 {
        let counters = inputs.len() + results.len() + 1;
        assert!(arena.read(counters).iter().all(|&byte| byte == 0), "counters");
    }
    let results = (inputs.len()..).zip(results);
    results
        .map(|(number, result)| common::values(result, &blank(result), &arena.read(number)))
        .collect()
}

/// [`outcome`] with a blank workspace.
pub fn outcome_with(
    calls: &[Call],
    inputs: &[(&OperandSpec, Values)],
    out: &OperandSpec,
    workspace: Option<&OperandSpec>,
) -> Values {
    let mut arena = Arena::new();
    let before: Vec<Vec<u8>> = inputs.iter().map(|(o, v)| encode(o, v)).collect();
    before.iter().for_each(|bytes| arena.add(bytes));
    let empty = blank(out);
    arena.add(&empty);
    if let Some(workspace) = workspace {
        arena.add(&blank(workspace));
    }
    arena.run(calls);
    for (i, before) in before.iter().enumerate() {
        assert!(arena.read(i) == *before, "input {i} was written");
    }
    common::values(out, &empty, &arena.read(inputs.len()))
}

/// Runs calls that update input `state`, with a blank output and workspace. Returns the elements of the output and of
/// the state. Fails if anything else was written.
pub fn outcome_and_state(
    (calls, workspace): (&[Call], Option<&OperandSpec>),
    inputs: &[(&OperandSpec, Values)],
    state: usize,
    out: &OperandSpec,
) -> [Values; 2] {
    let mut arena = Arena::new();
    let before: Vec<Vec<u8>> = inputs.iter().map(|(o, v)| encode(o, v)).collect();
    before.iter().for_each(|bytes| arena.add(bytes));
    let empty = blank(out);
    arena.add(&empty);
    if let Some(workspace) = workspace {
        arena.add(&blank(workspace));
    }
    arena.run(calls);
    for (i, before) in before.iter().enumerate().filter(|(i, _)| *i != state) {
        assert!(arena.read(i) == *before, "input {i} was written");
    }
    [
        common::values(out, &empty, &arena.read(inputs.len())),
        common::values(inputs[state].0, &before[state], &arena.read(state)),
    ]
}

/// Fails unless `max |actual − expected| ≤ tolerance · max |expected|`, with the tolerance of `dtype`.
pub fn assert_close(actual: &Values, expected: Vec<f32>, dtype: DType, what: &str) {
    let tolerance = common::tolerance(dtype);
    common::assert_close(what, actual, &Values::F32(expected), tolerance);
}

/// [`assert_close`] for results that may be NaN, which must be NaN in both.
pub fn assert_close_or_nan(actual: &Values, mut expected: Vec<f32>, dtype: DType, what: &str) {
    let mut actual = actual.f32().to_vec();
    for (number, (actual, expected)) in actual.iter_mut().zip(&mut expected).enumerate() {
        assert_eq!(
            actual.is_nan(),
            expected.is_nan(),
            "{what}: {actual}, not {expected}, at {number}"
        );
        if expected.is_nan() {
            (*actual, *expected) = (0.0, 0.0);
        }
    }
    assert_close(&Values::F32(actual), expected, dtype, what);
}

/// Whether the calls use fixed point, which keeps 16 bits of x.
pub fn is_fixed(calls: &[Call]) -> bool {
    calls.iter().any(|call| call.kernel.name.contains("fixed_point"))
}

/// [`assert_close`] for results of `calls` with typical vectors, whose epilogues may multiply two sums.
pub fn assert_product_close(calls: &[Call], actual: &Values, expected: Vec<f32>, dtype: DType, what: &str) {
    let tolerance = common::tolerance(dtype).max(if is_fixed(calls) { 2e-4 } else { 0.0 });
    common::assert_close(what, actual, &Values::F32(expected), tolerance);
}
