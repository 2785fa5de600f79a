//! For trying on a real card what the tests can only make up: a device that is lost, or hangs, in the middle
//! of a stream, and another opened after it in the same process. It tells what happened, and fails if anything
//! took long, or if tokens differ afterwards.
//!
//! ```text
//! cargo run --release -p refrain-engine --example lost_device -- DEVICE [lose|hang] [MODEL]
//! ```
//!
//! `lose` writes to an address that nobody has; `hang` keeps the device busy with one list for longer than the
//! patience with it, some ten seconds on a fast card. Do neither where a screen hangs on the device. MODEL is a
//! folder, a GGUF file, or the name of a synthetic model such as `tiny:q4_0`, which is the default.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use refrain_engine::{Device, LoadOptions, Mode, Model, Session};
use refrain_lm::sample::Settings;
use refrain_models::Checkpoint;
use refrain_vulkan::{
    Access, Command, CommandList, Device as VulkanDevice, Error, Kernel, MemoryClass, OpenOptions, Options, Vulkan,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const PATIENCE: Duration = Duration::from_secs(3);
const TOKENS: usize = 64;

/// Adds where `words` says, again and again, each time what was there before: compilers keep no atomic sum in registers.
const KERNEL: &str = "#version 460
#extension GL_EXT_buffer_reference : require
layout(local_size_x = 32) in;
layout(buffer_reference, std430) buffer Words { uint word[]; };
layout(push_constant) uniform Push { Words words; uint times; uint unused; };
void main() {
    uint at = gl_LocalInvocationID.x;
    uint before = 1u;
    for (uint i = 0u; i < times; ++i) before = atomicAdd(words.word[at], before | 1u);
}";

/// What is done to the device.
#[derive(Clone, Copy, PartialEq)]
enum Harm {
    Lose,
    Hang,
}

/// Submits a list that harms the device.
fn harm(device: &VulkanDevice, harm: Harm) -> Result<()> {
    let memory = device.allocate(MemoryClass::State, 256)?;
    let (address, times) = match harm {
        Harm::Lose => (0x5eed_dead_0000, 1u32),
        Harm::Hang => (memory.address(), 40_000_000),
    };
    let pipeline = device.pipeline(&Kernel {
        name: "harm".to_owned(),
        source: KERNEL.into(),
        defines: vec![],
        constants: vec![],
        push_bytes: 16,
        subgroup_size: None,
        full_subgroups: false,
    })?;
    let mut push = u64::to_le_bytes(address).to_vec();
    push.extend(times.to_le_bytes());
    push.extend([0; 4]);
    device.submit(CommandList {
        name: "harm".to_owned(),
        commands: vec![Command::Dispatch {
            pipeline,
            groups: [1, 1, 1],
            push,
        }],
        uses: vec![(memory, Access::Write)],
    })?;
    Ok(())
}

fn open(vulkan: &Vulkan, wish: &str) -> Result<Arc<VulkanDevice>> {
    let Ok(choice) = wish.parse();
    let options = OpenOptions {
        patience: Some(PATIENCE),
        ..OpenOptions::default()
    };
    Ok(vulkan.open(vulkan.choose(&choice)?, &options)?)
}

/// Decodes, and after some tokens does the harm; the tokens, and the error that ended them.
fn decoded(checkpoint: &Checkpoint, device: Arc<VulkanDevice>, harmed: Option<Harm>) -> Result<(Vec<u32>, String)> {
    let on = Device::vulkan(device.clone());
    let model = Model::load(checkpoint, &on, &LoadOptions::default())?;
    let mut session = Session::new(&model, 256)?;
    session.set_mode(Mode::By(&refrain::Replay), None);
    let mut stream = session.stream(&[1, 2, 3], &Settings::default())?;
    let mut tokens = Vec::new();
    let mut told = String::new();
    while tokens.len() < TOKENS {
        if let Some(kind) = harmed.filter(|_| tokens.len() == 8) {
            harm(&device, kind)?;
        }
        let start = Instant::now();
        match stream.next_tokens() {
            Ok(Some(next)) => tokens.push(next[0]),
            Ok(None) => break,
            Err(error) => {
                println!("after {} tokens and {:.1?}: {error}", tokens.len(), start.elapsed());
                told = error.to_string();
                break;
            }
        }
    }
    let start_of_end = Instant::now();
    let ended = stream.end();
    if harmed.is_none() {
        return Ok((tokens, told));
    }
    let timed = |what: &str, failed: bool, start: Instant| {
        println!("{what} fails: {failed}, after {:.1?}", start.elapsed());
        failed && start.elapsed() < 2 * PATIENCE
    };
    let mut sound = timed("ending the stream", ended.is_err(), start_of_end);
    let start = Instant::now();
    let failed = match session.stream(&[1], &Settings::default()) {
        Ok(mut stream) => stream.next_tokens().is_err(),
        Err(_) => true,
    };
    sound &= timed("another stream", failed, start);
    println!("known to be lost: {}", device.is_lost());
    let start = Instant::now();
    drop(session);
    drop(model);
    drop((on, device));
    println!("closed after {:.1?}", start.elapsed());
    sound &= start.elapsed() < 2 * PATIENCE;
    match sound {
        true => Ok((tokens, told)),
        false => Err("something went on, or took long".into()),
    }
}

fn tried() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |number: usize, usual: &'static str| arguments.get(number).map_or(usual, String::as_str);
    let (wish, model) = (argument(0, "0"), argument(2, "tiny:q4_0"));
    let kind = match argument(1, "lose") {
        "lose" => Harm::Lose,
        "hang" => Harm::Hang,
        other => return Err(format!("{other:?} is neither lose nor hang").into()),
    };
    let checkpoint = match Path::new(model).exists() {
        true => Checkpoint::open(Path::new(model))?,
        false => Checkpoint::synthetic(model)?,
    };
    let vulkan = Vulkan::load(Options::default())?;
    let device = open(&vulkan, wish)?;
    println!("device: {}, driver {}", device.info().name, device.info().driver_info);
    let (whole, _) = decoded(&checkpoint, device, None)?;

    let (part, told) = decoded(&checkpoint, open(&vulkan, wish)?, Some(kind))?;
    if told.is_empty() {
        return Err("the harm was not noticed".into());
    }
    if !whole.starts_with(&part) {
        return Err(format!("tokens that were not computed: {part:?} instead of {whole:?}").into());
    }

    let start = Instant::now();
    let again = open(&vulkan, wish).or_else(|error| {
        println!("the same instance does not open it again ({error}); trying a new one");
        open(&Vulkan::load(Options::default())?, wish)
    })?;
    println!("opened again after {:.1?}", start.elapsed());
    let (tokens, told) = decoded(&checkpoint, again, None)?;
    match tokens == whole {
        true => println!("decodes the same {} tokens as before", tokens.len()),
        false => return Err(format!("{tokens:?} instead of {whole:?}; {told}").into()),
    }
    Ok(())
}

fn main() -> ExitCode {
    match tried() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let lost = matches!(error.downcast_ref(), Some(Error::DeviceLost { .. }));
            eprintln!("failed: {error}{}", if lost { " (lost again)" } else { "" });
            if let Some(source) = error.source() {
                eprintln!("because of {source}");
            }
            ExitCode::FAILURE
        }
    }
}
