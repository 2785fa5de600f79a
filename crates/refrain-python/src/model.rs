//! Opens models by name, and loads them into an engine.

use std::path::PathBuf;
use std::sync::Arc;

use refrain::Device;
use refrain_engine::{CacheTypes, Engine, EngineOptions, LoadOptions, Model};
use refrain_hub::{Hub, HubCache, HubSettings, ModelName, Watcher};
use refrain_models::Checkpoint;
use refrain_server::{EngineSource, LoadFailure, ModelRegistry, ModelStay, ServedModel, ServedText};

use crate::control::device_of;

/// Default context length in tokens.
const DEFAULT_CONTEXT: usize = 8192;
/// Share of the memory left after loading the weights that the KV cache may use.
const CACHE_SHARE: f64 = 0.9;

/// Any error, which Python sees as a `RuntimeError`.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How a model is run.
#[derive(Debug, Clone)]
pub struct ModelSettings {
    /// "auto", "cpu", "gpu", an index or a part of a name.
    pub device: String,
    /// Maximum number of tokens of a request.
    pub context: Option<usize>,
    /// Maximum number of requests that are processed in parallel.
    pub parallel: Option<usize>,
    /// How keys and values are stored; `None` for the device's default.
    pub cache: Option<CacheTypes>,
}

/// Opens `model`: a directory, a `.gguf` file, `demo`, `synthetic:ARCH:FORMAT`, or a name on the Hugging Face hub,
/// which is downloaded if it is not in the cache.
///
/// # Errors
/// If it is not found, damaged or not supported, or the download fails.
pub fn open(model: &str, watcher: &dyn Watcher) -> Result<Checkpoint, Failure> {
    Checkpoint::named(model, |name| downloaded(name, watcher))
}

/// The path of a model of the hub.
fn downloaded(model: &str, watcher: &dyn Watcher) -> Result<PathBuf, Failure> {
    let is_path = model.starts_with(['.', '/', '~']) || model.ends_with('/');
    let name = model.parse::<ModelName>().ok().filter(|_| !is_path);
    let Some(name) = name else {
        return Err(format!("model not found: {model:?} is neither a path nor a name like ORG/NAME").into());
    };
    let settings = HubSettings::from_environment()?;
    if let Some(found) = HubCache::new(&settings.cache).find(&name)? {
        return Ok(found.path);
    }
    if !name.is_full() {
        return Err(format!("model not found: {model:?} was not downloaded; names have the form ORG/NAME").into());
    }
    let hub = Hub::new(settings);
    let plan = hub.plan(&name, watcher)?;
    watcher.notice(&format!("pulling {name} from {}", hub.endpoint()));
    Ok(hub.download(&plan, watcher)?.path)
}

/// Loads a model onto its device, as a server serves it.
///
/// # Errors
/// If the context exceeds the model's limit, or the device fails or has too little memory.
pub fn serve(name: &str, checkpoint: Checkpoint, settings: &ModelSettings) -> Result<ServedModel, Failure> {
    let checkpoint = Arc::new(checkpoint);
    let device = device_of(&settings.device)?;
    let limit = checkpoint.config().max_position;
    let options = EngineOptions {
        context: settings.context.unwrap_or(DEFAULT_CONTEXT.min(limit)),
        ..EngineOptions::default()
    };
    let cache = settings.cache.unwrap_or_else(|| CacheTypes::of_device(&device));
    let (context, parallel) = (options.context, settings.parallel);
    let text = ServedText::of(&checkpoint)?;
    let loaded = start(&checkpoint, &device, &options, cache, parallel)?;
    let (model, choice) = (checkpoint.clone(), settings.device.clone());
    let reload = move || {
        let device = device_of(&choice).map_err(|error| LoadFailure::Other(error.to_string()))?;
        start(&model, &device, &options, cache, parallel).map_err(|error| match error {
            error if error.is_out_of_memory() => LoadFailure::NoRoom(error.to_string()),
            error => LoadFailure::Other(error.to_string()),
        })
    };
    let source = EngineSource {
        registry: ModelRegistry::new(None),
        load: Box::new(reload),
        stay: ModelStay::default(),
        loaded: Some(loaded),
        context,
        cache,
    };
    Ok(ServedModel::new(name.to_owned(), source, &device, &checkpoint, text))
}

fn start(
    checkpoint: &Arc<Checkpoint>,
    device: &Device,
    options: &EngineOptions,
    cache: CacheTypes,
    parallel: Option<usize>,
) -> Result<Engine, refrain_engine::Error> {
    let load = move |checkpoint: &Checkpoint, device: &Device| {
        let cache = Some(cache);
        Model::load(
            checkpoint,
            device,
            &LoadOptions {
                cache,
                ..LoadOptions::default()
            },
        )
    };
    let model = load(checkpoint, device)?;
    let free = device.free_memory().unwrap_or(u64::MAX) as f64 * CACHE_SHARE;
    let options = options
        .clone()
        .sized(checkpoint.config(), device, cache, free as u64, parallel);
    if device.is_cpu() {
        return Engine::start(&model, &options);
    }
    let (device, checkpoint) = (device.name().to_owned(), checkpoint.clone());
    let reload = move |_: &refrain_engine::Error| Ok(load(&checkpoint, &device_of(&device)?)?.into());
    Engine::start_reloading(model, &options, Box::new(reload))
}
