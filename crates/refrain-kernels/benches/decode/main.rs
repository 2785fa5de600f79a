//! GPU kernels of decode steps and prefill, for rows of the tuning table and their neighbours: `cargo bench -p
//! refrain-kernels --bench decode [-- FILTER …]`.
//!
//! A filter is a part of a line's name, such as `8b.down q4_0 t1.` or `prompt-attention`. These words are options:
//!
//! - `all` also tries the neighbours of the chosen row and prints the best; `every` prints all of them.
//! - `each` measures each dispatch separately, with the driver's pipeline statistics.
//! - `tile` disables matrix cores, so that many tokens use the tiled GEMM.
//!
//! Dispatches are separated by barriers, as in a decode step, and cycle over more copies of weights than caches hold.
//! Each line shows name, tuning, µs, GB/s of weights (or of keys and values), TFLOP/s.

mod attentions;
#[path = "../../tests/common/driver.rs"]
mod driver;
mod hybrid;
mod neighbours;
mod products;
mod recorded;
mod router;
mod token_experts;
mod workload;

use std::time::{Duration, Instant};

use attentions::{attentions, preparations, prompt_attentions};
use hybrid::{deltas, experts};
use neighbours::neighbours;
use products::projections;
use recorded::RecordedCalls;
use refrain_kernels::Traits;
use refrain_kernels::tuning::{self, Tuning};
use refrain_vulkan::{
    Access, Buffer, Command, CommandList, Device, DeviceChoice, MemoryClass, OpenOptions, Options, Vulkan,
};
use router::routers;
use token_experts::token_experts;
use workload::Workload;

/// Bytes of large operands: more than any cache holds, and enough for the largest matrix.
const WORKING_SET: usize = 1536 << 20;
/// Load before a measurement, since clocks drop when the device is idle.
const WARM_UP: Duration = Duration::from_millis(100);

fn main() {
    let filters: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let vulkan = Vulkan::load(Options::default()).expect("a Vulkan loader");
    let index = vulkan.choose(&DeviceChoice::Auto).expect("a usable device");
    let each = filters.iter().any(|f| f == "each");
    let options = OpenOptions {
        statistics: each,
        ..OpenOptions::default()
    };
    let device = vulkan.open(index, &options).expect("the device opens");
    let (info, mut traits) = (device.info(), driver::traits(&device));
    if filters.iter().any(|f| f == "tile") {
        traits.matrix_cores = None;
        let row = *tuning::choose(&traits);
        traits.tuning = Some(Tuning { matrix: &[], ..row }.into());
    }
    println!("{}, {} {}", info.name, info.driver_name, info.driver_info);
    let memory = device
        .allocate(MemoryClass::Scratch, WORKING_SET as u64)
        .expect("memory");
    let wanted = |name: &str| {
        let parts: Vec<&String> = filters
            .iter()
            .filter(|f| !["all", "every", "each", "tile"].contains(&f.as_str()))
            .collect();
        parts.is_empty() || parts.iter().any(|f| f.split(' ').all(|word| name.contains(word)))
    };
    let every = filters.iter().any(|f| f == "every");
    let all = every || filters.iter().any(|f| f == "all");
    let products = projections().chain(hybrid::projections()).chain(routers());
    let products = products.chain(experts()).chain(token_experts());
    let attentions = attentions().chain(prompt_attentions()).chain(preparations());
    let workloads = products.chain(deltas()).chain(attentions);
    for workload in workloads.filter(|w| wanted(&w.name())) {
        if each {
            print_each_dispatch(&device, &traits, &memory, &workload);
            continue;
        }
        let rows: Vec<Tuning> = if all {
            neighbours(tuning::choose(&traits), &workload).collect()
        } else {
            vec![*tuning::choose(&traits)]
        };
        let rows: Vec<Tuning> = rows.into_iter().filter(|row| row.fits(&traits)).collect();
        let mut lines: Vec<(f64, String)> = measured(&device, &traits, &memory, &workload, &rows);
        lines.sort_by(|a, b| a.0.total_cmp(&b.0));
        let chosen = workload.row(tuning::choose(&traits));
        for (rank, (seconds, row)) in lines.iter().enumerate() {
            let is_chosen = *row == chosen;
            if rank >= 6 && !is_chosen && !every {
                continue;
            }
            let mark = if is_chosen { "*" } else { " " };
            let rate = workload.bytes() as f64 / seconds / 1e9;
            let operations = workload.operations() as f64 / seconds / 1e12;
            println!(
                "{:28}{mark}{row:24} {:8.2} µs {rate:8.0} GB/s {operations:8.1} TFLOP/s",
                workload.name(),
                seconds * 1e6
            );
        }
    }
}

/// Returns seconds per dispatch and a description for each row.
fn measured(
    device: &Device,
    traits: &Traits,
    memory: &Buffer,
    workload: &Workload,
    rows: &[Tuning],
) -> Vec<(f64, String)> {
    let recorded: Vec<RecordedCalls> = rows.iter().map(|row| workload.calls(row, traits)).collect();
    let rows = rows.iter().map(|row| workload.row(row));
    timed(device, memory, workload, &recorded)
        .into_iter()
        .zip(rows)
        .collect()
}

/// Prints the time of each dispatch separately.
fn print_each_dispatch(device: &Device, traits: &Traits, memory: &Buffer, workload: &Workload) {
    let recorded = workload.calls(tuning::choose(traits), traits);
    for call in &recorded.calls {
        let alone = RecordedCalls {
            calls: vec![call.clone()],
            offsets: recorded.offsets.clone(),
            small_bytes: recorded.small_bytes,
        };
        let seconds = timed(device, memory, workload, std::slice::from_ref(&alone))[0];
        let kernel = alone.kernels().next().expect("one call");
        let pipeline = device.pipeline(&kernel).expect("compiled");
        let statistics = pipeline.statistics().expect("pipeline statistics");
        let statistics: Vec<String> = statistics.iter().map(|s| format!("{} {}", s.name, s.value)).collect();
        let (name, groups) = (workload.name(), call.groups[0]);
        let of = kernel.name.split('+').next().unwrap_or_default();
        println!(
            "{name:28} {of} × {groups:6} {:8.2} µs  {}",
            seconds * 1e6,
            statistics.join(", ")
        );
    }
}

/// Returns seconds per iteration over the dispatches.
fn timed(device: &Device, memory: &Buffer, workload: &Workload, recorded: &[RecordedCalls]) -> Vec<f64> {
    let kernels: Vec<refrain_vulkan::Kernel> = recorded.iter().flat_map(|m| m.kernels()).collect();
    device.prepare(&kernels, &|_, _| {}).expect("kernels compile");
    let measure = |recorded: &RecordedCalls| {
        let list = command_list(device, memory, workload, recorded);
        let dispatches = list.commands.len() / 2 / recorded.calls.len();
        let run = || {
            let started = Instant::now();
            let submission = device.submit(list.clone()).expect("a submit");
            device.wait(&submission).expect("the work ends");
            started.elapsed()
        };
        let warm = Instant::now();
        while warm.elapsed() < WARM_UP / 20 {
            run();
        }
        let best = (0..5).map(|_| run()).min().expect("several");
        best.as_secs_f64() / dispatches as f64
    };
    let warm = command_list(device, memory, workload, &recorded[0]);
    let started = Instant::now();
    while started.elapsed() < WARM_UP {
        let submission = device.submit(warm.clone()).expect("a submit");
        device.wait(&submission).expect("the work ends");
    }
    // The first measurement is always slower.
    measure(&recorded[0]);
    recorded.iter().map(measure).collect()
}

/// Records dispatches for a few milliseconds, each with its own copy of the weights.
fn command_list(device: &Device, memory: &Buffer, workload: &Workload, recorded: &RecordedCalls) -> CommandList {
    let small = workload.small(device, recorded);
    let copies = (WORKING_SET / workload.bytes().next_multiple_of(4096)).max(1);
    let mut list = CommandList::new("measurement");
    let mut uses = vec![(memory.clone(), Access::Write), (small.clone(), Access::Write)];
    let count = ((6e9 / workload.bytes() as f64) as usize).clamp(20, 300);
    for number in 0..count {
        let base = memory.address() + (number % copies * workload.bytes().next_multiple_of(4096)) as u64;
        for call in &recorded.calls {
            let mut records = Vec::new();
            let push = recorded.push(call, base, small.address(), &mut |words| {
                let record = recorded::upload(device, bytemuck::cast_slice(words));
                records.push(record.clone());
                record.address()
            });
            uses.extend(records.into_iter().map(|r| (r, Access::Read)));
            let pipeline = device
                .pipeline(&driver::translated(&call.kernel, push.len()))
                .expect("compiled");
            list.commands.push(Command::Dispatch {
                pipeline,
                groups: call.groups,
                push,
            });
            list.commands.push(Command::Barrier);
        }
    }
    list.uses = uses;
    list
}
