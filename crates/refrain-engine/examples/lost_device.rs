//! Tests on a real GPU what the other tests can only simulate: a device that is lost, or hangs, in the middle of a
//! text. Another device is then opened in the same process. The same happens in the middle of the streams of an engine
//! that reloads its model, which must continue from their tokens. The program prints what happened. It fails if anything
//! took long, if tokens of the text differ afterwards, or if any of a stream are missing. (Tokens of a stream may differ:
//! other kernels recompute what was decoded.)
//!
//! ```text
//! cargo run --release -p refrain-engine --example lost_device -- DEVICE [lose|hang] [MODEL]
//! ```
//!
//! `lose` writes to an invalid address. `hang` keeps the device busy with one list for longer than the driver's
//! timeout, some ten seconds on a fast GPU. Do neither on a device that drives a screen. MODEL is a directory, a
//! GGUF file, or the name of a synthetic model such as `tiny:q4_0`, which is the default.

use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use refrain_engine::{
    Device, Engine, EngineEvent, EngineOptions, EngineRequest, EngineTicket, GenerateOptions, LoadOptions, Mode, Model,
};
use refrain_models::Checkpoint;
use refrain_vulkan::{
    Access, Command, CommandList, Device as VulkanDevice, Error, Kernel, MemoryClass, OpenOptions, Options, Vulkan,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const MAX_TIME: Duration = Duration::from_secs(3);
const TOKENS: usize = 64;
/// Tokens of a text before the device is harmed.
const TOKENS_BEFORE_HARM: usize = 8;

/// Adds to the given word again and again, reading it each time: compilers keep no atomic sum in registers.
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

/// How the device is harmed.
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
        stall_timeout: Some(MAX_TIME),
        ..OpenOptions::default()
    };
    Ok(vulkan.open(vulkan.choose(&choice)?, &options)?)
}

/// Decodes, and harms the device after some tokens. Returns the tokens and the error that ended them.
fn decoded(checkpoint: &Checkpoint, device: Arc<VulkanDevice>, harm_with: Option<Harm>) -> Result<(Vec<u32>, String)> {
    let on = Device::vulkan(device.clone());
    let model = Model::load(checkpoint, &on, &LoadOptions::default())?;
    let options = EngineOptions {
        mode: Mode::Fixed(&refrain::Replay),
        tokens_per_submit: Some(1),
        prefix_cache: false,
        ..EngineOptions::single(256)
    };
    let engine = Engine::start(&model, &options)?;
    let (sender, events) = channel();
    let listener = {
        let (device, mut count) = (device.clone(), 0);
        move |event| {
            count += 1;
            // On the engine's thread: little is computed before the harm.
            if let Some(kind) = harm_with.filter(|_| count == TOKENS_BEFORE_HARM)
                && let Err(error) = harm(&device, kind)
            {
                println!("the device cannot be harmed: {error}");
            }
            drop(sender.send(event));
        }
    };
    let request = || {
        let options = GenerateOptions {
            max_tokens: Some(TOKENS),
            ..GenerateOptions::default()
        };
        EngineRequest::new(vec![1, 2, 3], options)
    };
    let ticket = engine.submit(request(), Box::new(listener))?;
    let (mut tokens, mut told) = (Vec::new(), String::new());
    loop {
        let start = Instant::now();
        match events.recv()? {
            EngineEvent::Token(token) => tokens.push(token.id),
            EngineEvent::Failed(error) => {
                println!("after {} tokens and {:.1?}: {error}", tokens.len(), start.elapsed());
                told = error.to_string();
                break;
            }
            _ => break,
        }
    }
    drop(ticket);
    if harm_with.is_none() {
        return Ok((tokens, told));
    }
    let start = Instant::now();
    let failed = match engine.generate(request()) {
        Ok(mut text) => text.next().is_none_or(|token| token.is_err()),
        Err(_) => true,
    };
    println!("another text fails: {failed}, after {:.1?}", start.elapsed());
    let mut sound = failed && engine.has_failed() && start.elapsed() < 2 * MAX_TIME;
    println!("known to be lost: {}", device.is_lost());
    let start = Instant::now();
    drop(engine);
    drop(model);
    drop((on, device));
    println!("closed after {:.1?}", start.elapsed());
    sound &= start.elapsed() < 2 * MAX_TIME;
    if sound {
        Ok((tokens, told))
    } else {
        Err("something continued, or took long".into())
    }
}

/// Streams of an engine, and tokens of each before the harm and in total.
const STREAMS: u32 = 8;
const TOKENS_BEFORE: usize = 100;
const TOKENS_IN_TOTAL: usize = 300;

/// Returns the tokens of each stream of an engine; calls `then` once the first has [`TOKENS_BEFORE`] of them.
fn streamed(engine: &Engine, mut then: impl FnMut() -> Result<()>) -> Result<(Vec<Vec<u32>>, Duration)> {
    let ask = |number: u32| -> Result<(EngineTicket, Receiver<EngineEvent>)> {
        let (sender, events) = channel();
        let prompt = (0..40 + 30 * number)
            .map(|at| (7 * number + 13 * at) % 200 + 3)
            .collect();
        let options = GenerateOptions {
            max_tokens: Some(TOKENS_IN_TOTAL),
            ..GenerateOptions::default()
        };
        let listener = Box::new(move |event| drop(sender.send(event)));
        Ok((engine.submit(EngineRequest::new(prompt, options), listener)?, events))
    };
    let submitted = (0..STREAMS).map(ask).collect::<Result<Vec<_>>>()?;
    let (mut all, mut longest) = (vec![], Duration::ZERO);
    for (number, (_ticket, events)) in submitted.iter().enumerate() {
        let (mut tokens, mut last) = (vec![], Instant::now());
        while let EngineEvent::Token(token) = match events.recv()? {
            EngineEvent::Failed(error) => return Err(error.into()),
            event => event,
        } {
            tokens.push(token.id);
            if number == 0 {
                longest = longest.max(last.elapsed());
                last = Instant::now();
                if tokens.len() == TOKENS_BEFORE {
                    then()?;
                }
            }
        }
        if tokens.len() != TOKENS_IN_TOTAL {
            return Err(format!("stream {number} ends after {} tokens", tokens.len()).into());
        }
        all.push(tokens);
    }
    Ok((all, longest))
}

/// Runs an engine's streams first undisturbed, then with a device that is harmed.
fn check_engine_streams(checkpoint: &Arc<Checkpoint>, vulkan: &Arc<Vulkan>, wish: &str, kind: Harm) -> Result<()> {
    let current = Arc::new(Mutex::new(open(vulkan, wish)?));
    let load = {
        let (checkpoint, current) = (checkpoint.clone(), current.clone());
        move || {
            Model::load(
                &checkpoint,
                &Device::vulkan(current.lock().unwrap().clone()),
                &LoadOptions::default(),
            )
        }
    };
    let reload = {
        let (load, current, vulkan, wish) = (load.clone(), current.clone(), vulkan.clone(), wish.to_owned());
        move |_: &refrain_engine::Error| {
            *current.lock().unwrap() = open(&vulkan, &wish).map_err(|error| error.to_string())?;
            Ok(load()?.into())
        }
    };
    let options = EngineOptions {
        context: 1024,
        streams: STREAMS as usize,
        cache_tokens: 1024 * STREAMS as usize,
        prefix_cache: false,
        ..EngineOptions::default()
    };
    let engine = Engine::start_reloading(load()?, &options, Box::new(reload))?;
    let (expected, undisturbed) = streamed(&engine, || Ok(()))?;
    let (found, pause) = streamed(&engine, || harm(&current.lock().unwrap().clone(), kind))?;
    let alike = |(one, other): &(&Vec<u32>, &Vec<u32>)| one == other;
    println!(
        "{STREAMS} streams: all {TOKENS_IN_TOTAL} tokens each, {} texts unchanged; longest pause {pause:.1?} (undisturbed {undisturbed:.1?}), \
         reopened {} times",
        expected.iter().zip(&found).filter(alike).count(),
        engine.load().restarts
    );
    match engine.load().restarts {
        1 => Ok(()),
        _ => Err("the device loss must be noticed exactly once".into()),
    }
}

fn check_device() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |number: usize, undisturbed: &'static str| arguments.get(number).map_or(undisturbed, String::as_str);
    let (wish, model) = (argument(0, "0"), argument(2, "tiny:q4_0"));
    let kind = match argument(1, "lose") {
        "lose" => Harm::Lose,
        "hang" => Harm::Hang,
        other => return Err(format!("{other:?} is neither lose nor hang").into()),
    };
    let checkpoint = Arc::new(if Path::new(model).exists() {
        Checkpoint::open(Path::new(model))?
    } else {
        Checkpoint::synthetic(model)?
    });
    let vulkan = Arc::new(Vulkan::load(Options::default())?);
    let device = open(&vulkan, wish)?;
    println!("device: {}, driver {}", device.info().name, device.info().driver_info);
    let (whole, _) = decoded(&checkpoint, device, None)?;

    let (part, told) = decoded(&checkpoint, open(&vulkan, wish)?, Some(kind))?;
    if told.is_empty() {
        return Err("the device loss was not noticed".into());
    }
    if !whole.starts_with(&part) {
        return Err(format!("tokens that were not computed: {part:?} instead of {whole:?}").into());
    }

    let start = Instant::now();
    let again = open(&vulkan, wish).or_else(|error| {
        println!("the same instance cannot reopen it ({error}); trying a new one");
        open(&Vulkan::load(Options::default())?, wish)
    })?;
    println!("reopened after {:.1?}", start.elapsed());
    let (tokens, told) = decoded(&checkpoint, again, None)?;
    if tokens == whole {
        println!("decodes the same {} tokens as before", tokens.len())
    } else {
        return Err(format!("{tokens:?} instead of {whole:?}; {told}").into());
    }
    check_engine_streams(&checkpoint, &vulkan, wish, kind)
}

fn main() -> ExitCode {
    match check_device() {
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
