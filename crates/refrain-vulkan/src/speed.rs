//! How fast a Vulkan device reads each kind of memory, and how long one step waits for another: what bounds
//! the speed of whatever reads much and computes little.

use std::time::{Duration, Instant};

use crate::{
    Access, Buffer, Command, CommandList, Device, DeviceInfo, DeviceKind, Error, Kernel, MemoryClass, Pipeline,
};

/// Bytes that a workgroup reads: 16 rounds of four loads of 16 bytes by 128 invocations.
const GROUP_BYTES: u64 = ROUNDS as u64 * 4 * 16 * 128;
const ROUNDS: u32 = 16;
/// A discrete card's caches hold less than a tenth of this.
const CARD_BYTES: u64 = 2 << 30;
/// Larger than the caches of an integrated GPU, and quick through the slowest bus.
const SHARED_BYTES: u64 = 256 << 20;
/// Larger than most caches of a processor: more would take a software driver too long.
const SOFTWARE_BYTES: u64 = 64 << 20;
/// Stretches into which a software driver's memory is cut, one a submission: each is over before the system
/// gives the processor to another program, so the best of many had it for itself.
const SOFTWARE_STRETCHES: u32 = 16;
/// The least that tells anything.
const LEAST_BYTES: u64 = 4 << 20;
/// Clocks need load before they are at their height.
const WARM_UP: Duration = Duration::from_millis(120);
/// How long to measure.
const MEASURE: Duration = Duration::from_millis(200);
/// How long to go on until each stretch has been read.
const MOST: Duration = Duration::from_secs(1);
/// How long one submission lasts: so long that the wait for its end does not count, so short that
/// a desktop on the same card stays alive.
const SUBMISSION: f64 = 0.04;
/// The most passes of one submission.
const MOST_PASSES: usize = 512;
/// Dependent steps of one submission.
const STEPS: usize = 400;

/// A heap's memory as a kernel sees it.
#[derive(Debug, Clone, Copy)]
pub struct HeapSpeed {
    /// Index of the heap.
    pub heap: usize,
    /// What Refrain keeps there.
    pub class: MemoryClass,
    /// Bytes read at a time.
    pub bytes: u64,
    /// Bytes read per second, the best of several.
    pub bytes_per_second: f64,
}

/// The reading speed of the memory in which a class of buffers lies, by a kernel that does nothing else: the
/// best of a third of a second. Takes 2 GiB of a card's memory, less of others', and no more than a quarter
/// of what is free.
///
/// # Errors
/// If the device fails or lacks the memory.
pub fn of_class(device: &Device, class: MemoryClass) -> Result<HeapSpeed, Error> {
    let memory = allocate(device, class)?;
    let groups = (memory.bytes() / GROUP_BYTES) as u32;
    let fill = Pass::new(device, &memory, "FILL", groups)?;
    fill.time(fill.list(0, 1, false))?;
    let stretches = match device.info().kind {
        DeviceKind::Software => SOFTWARE_STRETCHES.min(groups),
        _ => 1,
    };
    let read = Pass::new(device, &memory, "READ", groups / stretches)?;
    let bytes_per_second = (u64::from(read.groups) * GROUP_BYTES) as f64 / read.shortest(stretches)?;
    Ok(HeapSpeed {
        heap: device.info().memory_types[memory.memory_type()].heap,
        class,
        bytes: memory.bytes(),
        bytes_per_second,
    })
}

/// The reading speed of every heap that buffers of some class lie in, each once, as [`of_class`] measures it.
pub fn of_heaps(device: &Device) -> Vec<(MemoryClass, Result<HeapSpeed, Error>)> {
    let mut speeds: Vec<(MemoryClass, Result<HeapSpeed, Error>)> = Vec::new();
    for class in [MemoryClass::Weight, MemoryClass::Control, MemoryClass::Staging] {
        let speed = of_class(device, class);
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

/// Seconds that a step which does next to nothing takes, when it waits for the step before it.
///
/// # Errors
/// If the device fails.
pub fn step_seconds(device: &Device) -> Result<f64, Error> {
    let memory = device.allocate(MemoryClass::Scratch, GROUP_BYTES)?;
    let step = Pass::new(device, &memory, "READ", 1)?;
    let shortest = |steps: usize| -> Result<f64, Error> {
        let mut times = (0..5).map(|_| step.time(step.list(0, steps, true)));
        times.try_fold(f64::INFINITY, |best, time| Ok(best.min(time?)))
    };
    // The difference leaves out what a submission and the wait for its end take.
    let (few, many) = (shortest(STEPS / 4)?, shortest(STEPS + STEPS / 4)?);
    Ok((many - few).max(0.0) / STEPS as f64)
}

/// Memory of a class: as much as the measurement wants, or as there is.
fn allocate(device: &Device, class: MemoryClass) -> Result<Buffer, Error> {
    let mut bytes = wanted(device, class);
    loop {
        match device.allocate(class, bytes) {
            Err(Error::OutOfMemory { .. } | Error::BufferTooLarge { .. }) if bytes > LEAST_BYTES => bytes /= 2,
            result => return result,
        }
    }
}

fn wanted(device: &Device, class: MemoryClass) -> u64 {
    let info: &DeviceInfo = device.info();
    let on_card = info.kind == DeviceKind::Discrete && !class.mapped();
    let most = match info.kind {
        DeviceKind::Software => SOFTWARE_BYTES,
        _ if on_card => CARD_BYTES,
        _ => SHARED_BYTES,
    };
    let heaps = device.heaps();
    let serving = info.heaps_for(class).into_iter();
    let free = serving
        .filter_map(|heap| Some(heaps.get(heap)?.free()))
        .max()
        .unwrap_or(0);
    let bytes = most.min(free / 4).min(info.limits.max_allocation_bytes);
    (bytes / GROUP_BYTES * GROUP_BYTES).max(LEAST_BYTES)
}

/// A kernel's pass over a stretch of memory.
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

    /// So many passes over a stretch, each waiting for the one before it or not.
    fn list(&self, stretch: u32, passes: usize, dependent: bool) -> CommandList {
        let offset = u64::from(stretch) * u64::from(self.groups) * GROUP_BYTES;
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

    /// Seconds from submitting a list to its end.
    fn time(&self, list: CommandList) -> Result<f64, Error> {
        let start = Instant::now();
        let submission = self.device.submit(list)?;
        self.device.wait(&submission)?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Seconds of one pass, the shortest of several over so many stretches, one after the other: none is still
    /// in a cache when it is its turn again.
    fn shortest(&self, stretches: u32) -> Result<f64, Error> {
        let (start, mut best) = (Instant::now(), f64::INFINITY);
        let most = match stretches {
            1 => SUBMISSION,
            _ => 0.0,
        };
        for (round, stretch) in (0..stretches).cycle().enumerate() {
            let passes = ((most / best) as usize).clamp(1, MOST_PASSES);
            best = best.min(self.time(self.list(stretch, passes, false))? / passes as f64);
            let enough = if round + 1 < stretches as usize {
                MOST
            } else {
                WARM_UP + MEASURE
            };
            if start.elapsed() > enough {
                break;
            }
        }
        Ok(best)
    }
}
