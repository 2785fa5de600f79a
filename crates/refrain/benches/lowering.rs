//! How long it takes to trace and lower a model of 28 layers, on no device: `cargo bench -p refrain --bench lowering`.
//! Fails beyond 5 ms.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use common::decoder::{Decoder, Extents};
use refrain::graph::Graph;
use refrain::{Device, passes};
use refrain_vulkan::DeviceInfo;

fn fastest<T>(mut act: impl FnMut() -> T) -> (Duration, T) {
    let mut runs = (0..20).map(|_| {
        let start = Instant::now();
        let result = act();
        (start.elapsed(), result)
    });
    let first = runs.next().expect("a run");
    runs.fold(first, |best, run| if run.0 < best.0 { run } else { best })
}

fn main() {
    let device = Device::vulkan(refrain_vulkan::Device::null(DeviceInfo::made_up("card")));
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
    for tokens in [1, 512] {
        let (built, logits) = fastest(|| decoder.step(tokens));
        let (traced, graph) = fastest(|| Graph::trace(&[&logits]).expect("a program"));
        let (canonicalised, graph) = fastest(|| passes::canonicalise(graph.clone()));
        let (fused, graph) = fastest(|| passes::fuse(graph.clone()));
        let (through, graph) = fastest(|| passes::write_through(graph.clone()));
        let (chosen, _) = fastest(|| passes::choose(graph.clone(), &device).expect("kernels"));
        let choice = || passes::choose(graph.clone(), &device).expect("kernels");
        let (_, plan) = fastest(|| passes::place(passes::order(choice()), &device, false));
        let (ordered, _) = fastest(|| passes::order(choice()));
        let (scheduled, _) = fastest(|| passes::schedule(plan.clone()));
        let (all, plan) = fastest(|| passes::plan(&[&logits]).expect("a plan"));
        println!(
            "{tokens} tokens: model code {built:?}, trace {traced:?}, canonicalise {canonicalised:?}, fuse {fused:?}, \
             write through {through:?}, choose {chosen:?}, choose and order {ordered:?}, schedule {scheduled:?}; \
             trace and all passes {all:?} for {} steps",
            plan.steps.len()
        );
        assert!(all < Duration::from_millis(5), "{all:?}");
    }
}
