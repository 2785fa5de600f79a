//! Subgraphs: what was made of placeholders, made again of other arrays.

mod common;

use common::vulkan;
use refrain::{Array, DType, Device, Subgraph, eval};

fn placeholder(device: &Device, shape: &[usize]) -> Array {
    Array::input(device, "x", DType::F32, shape)
}

#[test]
fn a_subgraph_computes_what_its_arrays_would() {
    for device in [Device::cpu(), vulkan().clone()] {
        let (x, y) = (placeholder(&device, &[2, 3]), placeholder(&device, &[3]));
        let product = &x * &y;
        let subgraph = Subgraph::of(&[&x, &y], &[&product.sum(&[1]), &product.transpose(), &x]).expect("is whole");
        let before = device.program_counts().lowerings;
        for step in 0..4 {
            let step = step as f32;
            let a = Array::from_slice(&device, &[1.0, 2.0, 3.0, 4.0, 5.0, step], &[2, 3]);
            let b = Array::from_slice(&device, &[1.0, step, 2.0], &[3]);
            let [sums, transposed, same] = subgraph.apply(&[&a, &b]).expect("fits").try_into().expect("three");
            // Its results are part of a larger program.
            let sums = &sums * 2.0;
            eval(&[&sums, &transposed, &same]).expect("computes");
            let expected = [2.0 * (7.0 + 2.0 * step), 2.0 * (4.0 + 7.0 * step)];
            assert_eq!(sums.to_vec::<f32>().expect("reads"), expected);
            let expected = [1.0, 4.0, 2.0 * step, 5.0 * step, 6.0, 2.0 * step];
            assert_eq!(transposed.to_vec::<f32>().expect("reads"), expected);
            assert_eq!(same.to_vec::<f32>().expect("reads"), a.to_vec::<f32>().expect("reads"));
        }
        // The second program copies what is read of the transposed result.
        assert_eq!(device.program_counts().lowerings - before, 2, "{}", device.explain());
    }
}

#[test]
fn a_subgraph_depends_on_its_placeholders_alone() {
    let device = Device::cpu();
    let older = Array::zeros(&device, DType::F32, &[2]);
    let (x, other) = (placeholder(&device, &[2]), placeholder(&device, &[2]));
    let evaluated = Array::from_slice(&device, &[1.0f32, 2.0], &[2]);
    let state = Array::state(&device, DType::F32, &[2]).expect("allocates");
    for (result, expected) in [
        (&x + &older, "beside its placeholders"),
        (&x + &other, "beside its placeholders"),
        (&x + &evaluated, "an evaluated array"),
        (&x + &state, "an evaluated array"),
        (x.reshape(&[3]), "reshape"),
    ] {
        let error = Subgraph::of(&[&x], &[&result])
            .expect_err("depends on more")
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
    let error = Subgraph::of(&[], &[&x]).expect_err("no placeholder").to_string();
    assert!(error.contains("needs a placeholder"), "{error}");
}

#[test]
fn a_subgraph_takes_arrays_like_its_placeholders() {
    let device = Device::cpu();
    let x = placeholder(&device, &[2]);
    let subgraph = Subgraph::of(&[&x], &[&(&x + 1.0)]).expect("is whole");
    let fits = Array::zeros(&device, DType::F32, &[2]);
    for inputs in [
        vec![],
        vec![&Array::zeros(&device, DType::F32, &[3])],
        vec![&Array::zeros(&device, DType::I32, &[2])],
        vec![&fits, &fits],
    ] {
        let error = subgraph.apply(&inputs).expect_err("does not fit").to_string();
        assert!(error.contains("do not match"), "{error}");
    }
    assert_eq!(
        subgraph.apply(&[&fits]).expect("fits")[0]
            .to_vec::<f32>()
            .expect("computes"),
        [1.0, 1.0]
    );
}
