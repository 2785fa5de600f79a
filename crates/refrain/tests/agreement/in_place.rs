//! Updates of values that write over their input, and those that have to copy it.

use refrain::{Array, DType, Device, eval, eval_referenced};

use crate::common::{assert_silent, plain, vulkan};

/// Devices of this test alone, since it counts their programs.
fn devices() -> [Device; 3] {
    let alone = |device: &Device| device.tuned("").expect("the settings of the device");
    [Device::cpu(), alone(vulkan()), alone(plain())]
}

/// Numbers of updates in place and of copies that `act` causes.
fn updates(device: &Device, act: impl FnOnce()) -> [u64; 2] {
    let before = device.program_counts();
    act();
    let after = device.program_counts();
    [after.in_place - before.in_place, after.copies - before.copies]
}

fn counted(device: &Device, shape: &[usize]) -> Array {
    let n = shape.iter().product::<usize>();
    Array::from_slice(device, &(0..n).map(|i| i as f32).collect::<Vec<_>>(), shape)
}

fn read(array: &Array) -> Vec<f32> {
    array.to_vec().expect("computes")
}

/// `x` with the row `row` replaced by `number`.
fn with_row(x: &Array, row: usize, number: f32) -> Array {
    let part = Array::full(x.device(), DType::F32, &[], number);
    x.slice_update(&part, &[row, 0], &[row + 1, x.shape()[1]], &[1, 1])
}

#[test]
fn a_value_that_nothing_else_refers_to_is_updated_in_place() {
    for device in devices() {
        let mut x = counted(&device, &[4, 3]);
        let mut expected: Vec<f32> = (0..12).map(|i| i as f32).collect();
        for row in [2, 0, 3] {
            let counts = updates(&device, || {
                x = with_row(&x, row, -(row as f32));
                x.eval().expect("computes");
            });
            assert_eq!(counts, [1, 0], "on {device:?}");
            expected[3 * row..][..3].fill(-(row as f32));
            assert_eq!(read(&x), expected);
        }
        let slots = Array::from_slice(&device, &[1, 9], &[2]);
        let counts = updates(&device, || {
            x = x.scatter_rows(&Array::full(&device, DType::F32, &[2, 3], 7), &slots);
            x.eval().expect("computes");
        });
        assert_eq!(counts, [1, 0]);
        expected[3..6].fill(7.0);
        assert_eq!(read(&x), expected);
        // Reads of the new version in the same program.
        let counts = updates(&device, || {
            x = with_row(&x, 1, 1.0);
            let sum = x.slice(0, 1, 3).sum(&[0, 1]);
            eval_referenced(&[&sum]).expect("computes");
            assert_eq!(read(&sum), [3.0 - 6.0]);
        });
        assert_eq!(counts, [1, 0]);
        expected[3..6].fill(1.0);
        assert_eq!(read(&x), expected);
    }
    assert_silent();
}

#[test]
fn a_value_that_something_else_refers_to_is_copied() {
    for device in devices() {
        let x = counted(&device, &[4, 3]);
        let original = read(&x);
        let copied = |y: Array| {
            assert_eq!(
                updates(&device, || y.eval().expect("computes")),
                [0, 1],
                "on {device:?}"
            );
            assert_eq!(read(&y)[..3], [9.0; 3]);
            assert_eq!(read(&x), original);
        };
        // The array itself is still referenced, or another lazy array reads it.
        copied(with_row(&x, 0, 9.0));
        let sum = x.sum(&[0, 1]);
        copied(with_row(&x, 0, 9.0));
        assert_eq!(read(&sum), [66.0]);
        // A view of it is evaluated.
        let base = &x + 0.0;
        let view = base.slice(0, 0, 2);
        eval(&[&base, &view]).expect("computes");
        copied(with_row(&{ base }, 0, 9.0));
        assert_eq!(read(&view), original[..6]);
        // It is read twice in the program, also after the update.
        let base = &x + 0.0;
        base.eval().expect("computes");
        let (updated, sum) = (with_row(&base, 0, 9.0), base.sum(&[0, 1]));
        drop(base);
        let both = &updated + &sum;
        drop((updated, sum));
        assert_eq!(updates(&device, || both.eval().expect("computes")), [0, 1]);
        assert_eq!(read(&both)[..4], [75.0, 75.0, 75.0, 69.0]);
        // Weights and states are not written over.
        let state = Array::state(&device, DType::F32, &[2, 3]).expect("memory");
        let updated = with_row(&state.clone(), 0, 9.0);
        drop(state);
        assert_eq!(updates(&device, || updated.eval().expect("computes")), [0, 1]);
    }
    assert_silent();
}

#[test]
fn what_a_program_computes_is_updated_without_a_copy() {
    for device in devices() {
        let x = counted(&device, &[4, 3]);
        // One update after the other, and readers of each version.
        let (first, second, sum, whole);
        {
            let base = &x + 1.0;
            first = with_row(&base, 0, 9.0);
            sum = first.sum(&[1]);
            second = with_row(&first, 3, 5.0);
            let all = (&x * 2.0).slice_update(&second.slice(0, 1, 3), &[0, 0], &[2, 3], &[1, 1]);
            whole = all.slice_update(&x, &[0, 0], &[4, 3], &[1, 1]);
        }
        let counts = updates(&device, || eval_referenced(&[&second, &sum, &whole]).expect("computes"));
        assert_eq!(counts, [0, 0], "on {device:?}");
        assert_eq!(read(&sum), [27.0, 15.0, 24.0, 33.0]);
        assert_eq!(
            read(&first),
            [9.0, 9.0, 9.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0]
        );
        assert_eq!(
            read(&second),
            [9.0, 9.0, 9.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 5.0, 5.0, 5.0]
        );
        assert_eq!(read(&whole), read(&x));
        // Memory of the next version is still used where the first one is not.
        let repeated = |number: f32| {
            let mut y = &x + number;
            for row in 0..4 {
                y = with_row(&y, row, row as f32);
            }
            let late = &x * &y;
            (&late + &y).to_vec::<f32>().expect("computes")
        };
        for number in [1.0, 2.0] {
            let expected: Vec<f32> = (0..12).map(|i| (i / 3 * (i + 1)) as f32).collect();
            assert_eq!(repeated(number), expected);
        }
    }
    assert_silent();
}

#[test]
fn an_update_that_nothing_refers_to_is_seen_by_its_readers() {
    for device in devices() {
        let x = counted(&device, &[2, 3]);
        let sum = with_row(&{ x }, 1, 1.0).sum(&[0, 1]);
        assert_eq!(updates(&device, || sum.eval().expect("computes")), [1, 0]);
        assert_eq!(read(&sum), [6.0]);
        // Bounds with steps, and values with few bytes an element.
        let x = counted(&device, &[5, 7]).astype(DType::F16);
        x.eval().expect("computes");
        let part = Array::full(&device, DType::F16, &[], -1);
        let y = { x }.slice_update(&part, &[0, 1], &[5, 6], &[2, 2]);
        assert_eq!(updates(&device, || y.eval().expect("computes")), [1, 0]);
        let found = read(&y.astype(DType::F32));
        for (index, &element) in found.iter().enumerate() {
            let (row, column) = (index / 7, index % 7);
            let replaced = row % 2 == 0 && [1, 3, 5].contains(&column);
            assert_eq!(element, if replaced { -1.0 } else { index as f32 }, "{index}");
        }
    }
    assert_silent();
}
