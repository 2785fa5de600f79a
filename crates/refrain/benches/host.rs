//! Host-side costs of programs, on the null device: `cargo bench --workspace --bench host`. Each figure is the minimum
//! of many runs, because other processes disturb the rest.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use common::decoder::{Decoder, Extents};
use refrain::graph::Graph;
use refrain::{Array, Device, Function, eval, passes};
use refrain_vulkan::DeviceInfo;

/// The minimum time of `times` runs of `act` on the results of `prepare`, in µs, and the last run's result.
fn fastest<P, T>(times: usize, prepare: impl Fn() -> P, act: impl Fn(P) -> T) -> (f64, T) {
    let timed = || {
        let prepared = prepare();
        let start = Instant::now();
        let result = act(prepared);
        (start.elapsed().as_secs_f64() * 1e6, result)
    };
    (1..times).fold(timed(), |(best, _), _| {
        let (time, result) = timed();
        (time.min(best), result)
    })
}

fn null() -> Device {
    Device::vulkan(refrain_vulkan::Device::null(DeviceInfo::mock("card")))
}

/// An operation of a chain, applied to the previous result and a weight.
type Link = fn(&Array, &Array) -> Array;

const LINKS: [(&str, Link); 4] = [
    ("sums of arrays, which become few kernels", |x, w| x + w),
    ("products with numbers, which become few kernels", |x, _| x * 1.5),
    ("products of matrices", |x, w| x.matmul(w)),
    ("softmaxes", |x, _| x.softmax()),
];

/// Repeatedly builds, evaluates and drops programs.
fn evaluations() {
    println!("repeated evaluation of a program, µs by number of operations:");
    for (name, link) in LINKS {
        let times = [1, 10, 100].map(|operations| {
            let device = null();
            let w = Array::from_slice(&device, &[1f32; 64], &[8, 8]);
            let evaluate = |()| {
                let mut x = link(&w, &w);
                (1..operations).for_each(|_| x = link(&x, &w));
                eval(&[&x]).expect("a program");
            };
            fastest(300, || (), evaluate).0
        });
        println!(
            "  1: {:.1}, 10: {:.1}, 100: {:.1} ({name})",
            times[0], times[1], times[2]
        );
    }
}

/// Lowers a decode step and a prompt chunk of a model of 28 layers, stage by stage.
fn lowering() {
    const TIMES: usize = 100;
    let device = null();
    let extents = Extents {
        layers: 28,
        hidden: 64,
        heads: 4,
        kv_heads: 2,
        head_dim: 32,
        inner: 128,
        vocabulary: 96,
    };
    let decoder = Decoder::new(&device, extents);
    for (what, tokens) in [("a decode step", 1), ("a prompt's chunk of 512 tokens", 512)] {
        let (model, logits) = fastest(TIMES, || (), |()| decoder.step(tokens));
        let mut stages: Vec<(&str, f64)> = vec![];
        macro_rules! stage {
            ($name:ident, $of:expr, $act:expr) => {{
                let (time, result) = fastest(TIMES, || $of.clone(), $act);
                stages.push((stringify!($name), time));
                result
            }};
        }
        let graph = stage!(trace, logits, |logits: Array| Graph::trace(&[&logits])
            .expect("a program"));
        let graph = stage!(canonicalise, graph, passes::canonicalise);
        let graph = stage!(overwrite, graph, passes::overwrite);
        let graph = stage!(fuse, graph, passes::fuse);
        let graph = stage!(regions, graph, |graph| passes::regions(graph, &device));
        let graph = stage!(write_through, graph, passes::write_through);
        let chosen = stage!(choose, graph, |graph| passes::choose(graph, &device).expect("kernels"));
        let ordered = stage!(order, chosen, passes::order);
        let plan = stage!(place, ordered, |ordered| passes::place(ordered, false));
        stage!(schedule, plan, passes::schedule);
        assert_eq!(
            stages.iter().map(|stage| stage.0).collect::<Vec<_>>(),
            passes::STAGE_NAMES
        );
        let sum: f64 = stages.iter().map(|stage| stage.1).sum();
        let (all, plan) = fastest(TIMES, || (), |()| passes::plan(&[&logits]).expect("a plan"));
        drop(Function::trace(&[&logits]).expect("lowers"));
        let (found, _) = fastest(TIMES, || (), |()| Function::trace(&[&logits]).expect("lowers"));
        println!("{what} of 28 layers, {} steps, µs:", plan.steps.len());
        let stages: Vec<String> = stages.iter().map(|(name, time)| format!("{name} {time:.0}")).collect();
        println!("  {}; sum {sum:.0}, in one go {all:.0}", stages.join(", "));
        println!("  model code {model:.0}, found again {found:.0}");
    }
}

fn main() {
    evaluations();
    lowering();
}
