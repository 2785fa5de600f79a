//! How fast the kernels of a decode step, and products of many tokens, are on the GPU at hand, for rows of the tuning table and their
//! neighbours: `cargo bench -p refrain-kernels --bench decode [-- FILTER …]`. A filter is a part of a
//! line's name, such as `8b.down q4_0 t1.` or `attention`; `all` adds every neighbour of the chosen row.
//!
//! Dispatches stand behind barriers, as in a decode step, and go round over more copies of weights than the
//! caches hold. A line: name, tuning, µs, GB/s of weights (or of keys and values), TFLOP/s.

#[path = "../../tests/common/driver.rs"]
mod driver;
mod hybrid;
mod workload;

use std::time::{Duration, Instant};

use hybrid::{deltas, experts};
use refrain_kernels::Traits;
use refrain_kernels::tuning::{self, Delta, Experts, MatrixTile, Matvec, SharedBy, Tuning};
use refrain_vulkan::{Access, Buffer, Choice, Command, CommandList, Device, MemoryClass, OpenOptions, Options, Vulkan};
use workload::{Workload, attentions, projections};

/// More than any cache holds, and enough for the largest matrix.
const WORKING_SET: usize = 1536 << 20;
/// Load before a measurement: clocks fall in idle gaps.
const WARM_UP: Duration = Duration::from_millis(100);

fn main() {
    let filters: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let vulkan = Vulkan::load(Options::default()).expect("a Vulkan loader");
    let index = vulkan.choose(&Choice::Auto).expect("a usable device");
    let device = vulkan.open(index, &OpenOptions::default()).expect("the device opens");
    let (info, traits) = (device.info(), driver::traits(&device));
    println!("{}, {} {}", info.name, info.driver_name, info.driver_info);
    let memory = device
        .allocate(MemoryClass::Scratch, WORKING_SET as u64)
        .expect("memory");
    let wanted = |name: &str| {
        let parts: Vec<&String> = filters.iter().filter(|f| *f != "all").collect();
        parts.is_empty() || parts.iter().any(|f| f.split(' ').all(|word| name.contains(word)))
    };
    let all = filters.iter().any(|f| f == "all");
    let workloads = projections().chain(experts()).chain(deltas()).chain(attentions());
    for workload in workloads.filter(|w| wanted(&w.name())) {
        let rows: Vec<Tuning> = match all {
            true => neighbours(tuning::choose(&traits), &workload).collect(),
            false => vec![*tuning::choose(&traits)],
        };
        let rows: Vec<Tuning> = rows.into_iter().filter(|row| row.fits(&traits)).collect();
        let mut lines: Vec<(f64, String)> = measured(&device, &traits, &memory, &workload, &rows);
        lines.sort_by(|a, b| a.0.total_cmp(&b.0));
        let chosen = workload.row(tuning::choose(&traits));
        for (place, (seconds, row)) in lines.iter().enumerate() {
            let is_chosen = *row == chosen;
            if place >= 6 && !is_chosen {
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

/// Rows that differ from `row` in what the workload depends on.
fn neighbours(row: &Tuning, workload: &Workload) -> Box<dyn Iterator<Item = Tuning>> {
    let row = *row;
    if let Workload::Attention { .. } = workload {
        let choices = [128, 256, 512].into_iter().flat_map(|t| [32, 64, 128].map(|p| (t, p)));
        let choices = choices.flat_map(|(t, p)| [1, 2, 4].map(|h| (t, p, h)));
        return Box::new(choices.flat_map(move |(threads, positions, most_heads)| {
            [132, 264, 528].map(|enough_groups| {
                let mut row = row;
                row.decode.threads = threads;
                row.decode.positions = positions;
                row.decode.most_heads = most_heads;
                row.decode.enough_groups = enough_groups;
                row
            })
        }));
    }
    if let Workload::Delta { .. } = workload {
        return Box::new(delta_rows(row));
    }
    if let Workload::Experts { .. } = workload {
        return Box::new(expert_rows(row));
    }
    if let &Workload::Projection {
        tokens: tokens @ 9.., ..
    } = workload
    {
        let sizes = [2, 4, 8, 16].into_iter();
        let sizes = sizes.flat_map(|s| [1, 2, 4].into_iter().flat_map(move |r| [1, 2, 4, 8].map(|t| (s, r, t))));
        let kinds = [(SharedBy::Tokens, 1), (SharedBy::Sums, 1), (SharedBy::Sums, 2)];
        let sizes = sizes.flat_map(move |size| kinds.map(|kind| (size, kind)));
        let tokens = tokens.div_ceil(16) as u32;
        // What a lane's registers hold, what lanes copy in equal parts, and what shared memory holds.
        let fits = move |&((subgroups, rows, tiles), (shared, _)): &((u32, u32, u32), (SharedBy, u32))| match shared {
            SharedBy::Tokens => {
                (4..=16).contains(&(rows * tiles))
                    && tokens >= 4
                    && (4..16).contains(&subgroups)
                    && 4 * tiles >= subgroups
            }
            SharedBy::Sums => tokens <= 8 && tiles == tokens.min(4) && rows * tiles * subgroups <= 44 && rows < 4,
        };
        return Box::new(
            sizes
                .filter(fits)
                .map(move |((subgroups, rows, tokens), (shared, halves))| {
                    let tile = MatrixTile {
                        most_tokens: usize::MAX,
                        least_groups: 1,
                        shared,
                        subgroups,
                        rows,
                        tokens,
                        halves,
                        unrolled: true,
                    };
                    Tuning {
                        matrix: Box::leak(Box::new([tile])),
                        ..row
                    }
                }),
        );
    }
    let choices = [256, 512, 1024].into_iter().flat_map(|t| [1, 2, 4].map(|r| (t, r)));
    let choices = choices.flat_map(|(t, r)| [1, 2, 4].map(|l| (t, r, l)));
    Box::new(choices.flat_map(move |(threads, rows, loads)| {
        [264, 528, 65_535].map(|most_groups| {
            let few = Matvec {
                threads,
                rows,
                loads,
                most_groups,
                enough_groups: 1,
                ..row.dense
            };
            Tuning {
                dense: few,
                four_bit: few,
                eight_bit: few,
                ..row
            }
        })
    }))
}

/// Rows that take other numbers of values of the delta rule together.
fn delta_rows(row: Tuning) -> impl Iterator<Item = Tuning> {
    [1, 2, 4, 8, 16].into_iter().map(move |values| Tuning {
        delta: Delta {
            values,
            least_tokens: 1,
        },
        ..row
    })
}

/// Rows with one tile for any number of tokens of experts, and one that has none.
fn expert_rows(row: Tuning) -> impl Iterator<Item = Tuning> {
    let sizes = [2, 4, 8].into_iter();
    let sizes = sizes.flat_map(|s| [1, 2, 4].into_iter().flat_map(move |r| [1, 2, 4, 8].map(|t| [s, r, t])));
    let kinds = [(SharedBy::Tokens, 1), (SharedBy::Sums, 1), (SharedBy::Sums, 2)];
    let fits = |&(shared, [subgroups, rows, tokens, _]): &(SharedBy, [u32; 4])| match shared {
        SharedBy::Tokens => rows * tokens <= 16 && subgroups > 2 && 4 * tokens >= subgroups,
        SharedBy::Sums => rows * tokens * subgroups <= 44 && tokens <= 4,
    };
    let all = sizes.flat_map(move |[s, r, t]| kinds.map(|(shared, halves)| (shared, [s, r, t, halves])));
    let tiles = all
        .filter(fits)
        .map(|(shared, [subgroups, rows, tokens, halves])| MatrixTile {
            most_tokens: usize::MAX,
            least_groups: 1,
            shared,
            subgroups,
            rows,
            tokens,
            halves,
            unrolled: true,
        });
    let with = move |least_tokens, tiles: Vec<MatrixTile>| Tuning {
        experts: Experts {
            least_tokens,
            tiles: Box::leak(tiles.into_boxed_slice()),
        },
        ..row
    };
    tiles
        .map(move |tile| with(0, vec![tile]))
        .chain([with(usize::MAX, Vec::new())])
}

/// Seconds per dispatch and the row, of each row.
fn measured(
    device: &Device,
    traits: &Traits,
    memory: &Buffer,
    workload: &Workload,
    rows: &[Tuning],
) -> Vec<(f64, String)> {
    let made: Vec<workload::Made> = rows.iter().map(|row| workload.calls(row, traits)).collect();
    let kernels: Vec<refrain_vulkan::Kernel> = made.iter().flat_map(|m| m.kernels()).collect();
    device.prepare(&kernels, &|_, _| {}).expect("kernels compile");
    let measure = |(row, made): (&Tuning, &workload::Made)| {
        let list = recorded(device, memory, workload, made);
        let dispatches = list.commands.len() / 2 / made.calls.len();
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
        (best.as_secs_f64() / dispatches as f64, workload.row(row))
    };
    let warm = recorded(device, memory, workload, &made[0]);
    let started = Instant::now();
    while started.elapsed() < WARM_UP {
        let submission = device.submit(warm.clone()).expect("a submit");
        device.wait(&submission).expect("the work ends");
    }
    rows.iter().zip(&made).map(measure).collect()
}

/// As many dispatches as take milliseconds, each over its own copy of the weights.
fn recorded(device: &Device, memory: &Buffer, workload: &Workload, made: &workload::Made) -> CommandList {
    let small = workload.small(device, made);
    let copies = (WORKING_SET / workload.bytes().next_multiple_of(4096)).max(1);
    let mut list = CommandList::new("measurement");
    let mut uses = vec![(memory.clone(), Access::Write), (small.clone(), Access::Write)];
    let count = ((6e9 / workload.bytes() as f64) as usize).clamp(20, 300);
    for number in 0..count {
        let base = memory.address() + (number % copies * workload.bytes().next_multiple_of(4096)) as u64;
        for call in &made.calls {
            let mut records = Vec::new();
            let push = made.push(call, base, small.address(), &mut |words| {
                let record = workload::upload(device, bytemuck::cast_slice(words));
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
