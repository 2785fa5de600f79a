//! Measures the read bandwidth of device memory and the latency of dependent dispatches. They bound the speed of
//! decode, which reads much and computes little.

use std::time::{Duration, Instant};

use crate::{
    Access, Buffer, Command, CommandList, Device, DeviceInfo, DeviceKind, Error, Kernel, MemoryClass, Pipeline,
};

/// Bytes that a workgroup reads: 16 rounds of four 16-byte loads by 128 invocations.
const GROUP_BYTES: u64 = ROUNDS as u64 * 4 * 16 * 128;
const ROUNDS: u32 = 16;
/// Bytes read on a discrete card, more than ten times its caches.
const DISCRETE_BYTES: u64 = 2 << 30;
/// Bytes read on an integrated GPU: larger than its caches, and quick through the slowest bus.
const INTEGRATED_BYTES: u64 = 256 << 20;
/// Bytes read by a software driver: larger than most CPU caches. More would take too long.
const SOFTWARE_BYTES: u64 = 64 << 20;
/// Number of parts of the memory that a software driver reads in separate submissions. Each completes before the system
/// preempts the process, so the best one ran undisturbed.
const SOFTWARE_PARTS: u32 = 16;
/// Minimum bytes for a meaningful result.
const MIN_BYTES: u64 = 4 << 20;
/// Time to let clocks rise under load.
const WARM_UP: Duration = Duration::from_millis(120);
/// Duration of the measurement.
const MEASURE: Duration = Duration::from_millis(200);
/// Maximum duration until each part has been read once.
const MAX_DURATION: Duration = Duration::from_secs(1);
/// Duration of one submission in seconds: long enough that its overhead does not count, short enough to keep a desktop
/// on the same card responsive.
const SUBMISSION_SECONDS: f64 = 0.04;
/// Maximum passes per submission.
const MAX_PASSES: usize = 512;
/// Dependent dispatches per submission.
const DEPENDENT_DISPATCHES: usize = 400;

/// Read bandwidth of a memory heap.
#[derive(Debug, Clone, Copy)]
pub struct HeapBandwidth {
    /// Index of the heap.
    pub heap: usize,
    /// Memory class that was measured.
    pub class: MemoryClass,
    /// Bytes read per pass.
    pub bytes: u64,
    /// Best read bandwidth of several passes, in bytes per second.
    pub bytes_per_second: f64,
}

/// Measures the read bandwidth of the memory that backs a class, with a kernel that only reads: the best of a third of
/// a second. Uses 2 GiB on a discrete card, less on others, and at most a quarter of the free memory.
///
/// # Errors
/// Fails if the device fails or lacks the memory.
pub fn measure_class(device: &Device, class: MemoryClass) -> Result<HeapBandwidth, Error> {
    let memory = allocate(device, class)?;
    let groups = (memory.bytes() / GROUP_BYTES) as u32;
    let fill = Pass::new(device, &memory, "FILL", groups)?;
    fill.time(fill.list(0, 1, false))?;
    let parts = match device.info().kind {
        DeviceKind::Software => SOFTWARE_PARTS.min(groups),
        _ => 1,
    };
    let read = Pass::new(device, &memory, "READ", groups / parts)?;
    let bytes_per_second = (u64::from(read.groups) * GROUP_BYTES) as f64 / read.shortest(parts)?;
    Ok(HeapBandwidth {
        heap: device.info().memory_types[memory.memory_type()].heap,
        class,
        bytes: memory.bytes(),
        bytes_per_second,
    })
}

/// Measures the read bandwidth of every heap that backs some class, once per heap, as [`measure_class`].
pub fn measure_heaps(device: &Device) -> Vec<(MemoryClass, Result<HeapBandwidth, Error>)> {
    let mut speeds: Vec<(MemoryClass, Result<HeapBandwidth, Error>)> = Vec::new();
    for class in [MemoryClass::Weight, MemoryClass::Control, MemoryClass::Staging] {
        let speed = measure_class(device, class);
        let known = |heap: usize| {
            let mut heaps = speeds.iter().filter_map(|(_, speed)| speed.as_ref().ok());
            heaps.any(|speed| speed.heap == heap)
        };
        if !speed.as_ref().is_ok_and(|speed| known(speed.heap)) {
            speeds.push((class, speed));
        }
    }
    speeds
}

/// Measures the time of a minimal dispatch that waits for the previous one, in seconds.
///
/// # Errors
/// Fails if the device fails.
pub fn dependent_dispatch_seconds(device: &Device) -> Result<f64, Error> {
    let memory = device.allocate(MemoryClass::Scratch, GROUP_BYTES)?;
    let dispatch = Pass::new(device, &memory, "READ", 1)?;
    let shortest = |count: usize| -> Result<f64, Error> {
        let mut times = (0..5).map(|_| dispatch.time(dispatch.list(0, count, true)));
        times.try_fold(f64::INFINITY, |best, time| Ok(best.min(time?)))
    };
    // The difference excludes the overhead of a submission and of waiting for it.
    let (few, many) = (
        shortest(DEPENDENT_DISPATCHES / 4)?,
        shortest(DEPENDENT_DISPATCHES + DEPENDENT_DISPATCHES / 4)?,
    );
    Ok((many - few).max(0.0) / DEPENDENT_DISPATCHES as f64)
}

/// Allocates as much memory as the measurement wants, or as is available.
fn allocate(device: &Device, class: MemoryClass) -> Result<Buffer, Error> {
    let mut bytes = wanted(device, class);
    loop {
        match device.allocate(class, bytes) {
            Err(Error::OutOfMemory { .. } | Error::BufferTooLarge { .. }) if bytes > MIN_BYTES => bytes /= 2,
            result => return result,
        }
    }
}

fn wanted(device: &Device, class: MemoryClass) -> u64 {
    let info: &DeviceInfo = device.info();
    let on_card = info.kind == DeviceKind::Discrete && !class.mapped();
    let most = match info.kind {
        DeviceKind::Software => SOFTWARE_BYTES,
        _ if on_card => DISCRETE_BYTES,
        _ => INTEGRATED_BYTES,
    };
    let heaps = device.heaps();
    let serving = info.heaps_for(class).into_iter();
    let free = serving
        .filter_map(|heap| Some(heaps.get(heap)?.free()))
        .max()
        .unwrap_or(0);
    let bytes = most.min(free / 4).min(info.limits.max_allocation_bytes);
    (bytes / GROUP_BYTES * GROUP_BYTES).max(MIN_BYTES)
}

/// A kernel that passes over a part of memory.
struct Pass<'a> {
    device: &'a Device,
    memory: &'a Buffer,
    pipeline: Pipeline,
    groups: u32,
}

impl<'a> Pass<'a> {
    fn new(device: &'a Device, memory: &'a Buffer, define: &str, groups: u32) -> Result<Self, Error> {
        let pipeline = device.pipeline(&Kernel {
            name: format!("probe {}", define.to_lowercase()),
            source: include_str!("speed/read.comp").into(),
            defines: vec![(define.to_owned(), "1".to_owned())],
            constants: Vec::new(),
            push_bytes: 12,
            subgroup_size: None,
            full_subgroups: false,
        })?;
        Ok(Self {
            device,
            memory,
            pipeline,
            groups,
        })
    }

    /// Returns a list of `passes` over a part, with a barrier after each if `dependent`.
    fn list(&self, part: u32, passes: usize, dependent: bool) -> CommandList {
        let offset = u64::from(part) * u64::from(self.groups) * GROUP_BYTES;
        let address = (self.memory.address() + offset).to_le_bytes();
        let mut list = CommandList::new("memory probe");
        for _ in 0..passes {
            list.commands.push(Command::Dispatch {
                pipeline: self.pipeline.clone(),
                groups: [self.groups, 1, 1],
                push: [&address[..], &ROUNDS.to_le_bytes()].concat(),
            });
            if dependent {
                list.commands.push(Command::Barrier);
            }
        }
        list.uses.push((self.memory.clone(), Access::Write));
        list
    }

    /// Returns the seconds from submission to completion of a list.
    fn time(&self, list: CommandList) -> Result<f64, Error> {
        let start = Instant::now();
        let submission = self.device.submit(list)?;
        self.device.wait(&submission)?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Returns the shortest time of a pass in seconds, cycling through the parts so that no part is still cached when
    /// it is read again.
    fn shortest(&self, parts: u32) -> Result<f64, Error> {
        let (start, mut best) = (Instant::now(), f64::INFINITY);
        let target = match parts {
            1 => SUBMISSION_SECONDS,
            _ => 0.0,
        };
        for (round, part) in (0..parts).cycle().enumerate() {
            let passes = ((target / best) as usize).clamp(1, MAX_PASSES);
            best = best.min(self.time(self.list(part, passes, false))? / passes as f64);
            let limit = if round + 1 < parts as usize {
                MAX_DURATION
            } else {
                WARM_UP + MEASURE
            };
            if start.elapsed() > limit {
                break;
            }
        }
        Ok(best)
    }
}
