//! Opens the served models at start, and loads each onto the device when it is requested.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use refrain_engine::{Engine, EngineOptions, Error as EngineError, Model, Reload, ReloadedModels, Speculation};
use refrain_models::Checkpoint;
use refrain_server::{EngineSource, LoadFailure, ModelRegistry, ServedModel, ServedText};

use super::config::ModelEntry;
use super::names::{ModelNames, model_names};
use super::{Arguments, DEFAULT_CONTEXT};
use crate::cache_args::CacheArguments;
use crate::draft::DraftModel;
use crate::output::{self, human_bytes};
use crate::speculation_args::SpeculateArgument;
use crate::{Global, device, load, model};

/// A model and the settings to run it with.
#[derive(Clone)]
struct ModelSetup {
    global: Global,
    names: ModelNames,
    entry: ModelEntry,
    checkpoint: Arc<Checkpoint>,
    speculate: SpeculateArgument,
    options: EngineOptions,
    draft: Option<Arc<DraftModel>>,
    /// Share of the free memory for the KV cache and recurrent states.
    memory: f64,
    parallel: Option<u32>,
    cache: CacheArguments,
}

/// Opens models with the settings of the command line.
#[derive(Clone)]
pub(super) struct ModelOpener {
    global: Global,
    registry: Arc<ModelRegistry>,
    /// The context that is requested for every model.
    context: Option<usize>,
    /// Without a context of their own.
    options: EngineOptions,
    speculate: SpeculateArgument,
    draft: Option<Arc<DraftModel>>,
    memory: f64,
    parallel: Option<u32>,
    cache: CacheArguments,
}

impl ModelOpener {
    /// Reads the settings and opens the draft model, if there is one.
    ///
    /// # Errors
    /// If the draft model cannot be opened.
    pub fn new(global: &Global, arguments: &Arguments) -> anyhow::Result<ModelOpener> {
        let open = |name: &String| DraftModel::open(global, name, arguments.cache).map(Arc::new);
        Ok(ModelOpener {
            global: global.clone(),
            registry: ModelRegistry::new(arguments.keep_alive.0),
            context: arguments.ctx.map(|context| context as usize),
            options: EngineOptions {
                queue: arguments.queue,
                prefix_cache: !arguments.no_prefix_cache,
                prefix_store: arguments.prefix_store(global),
                deterministic: arguments.deterministic,
                target_gap: Duration::from_millis(arguments.target_gap),
                ..EngineOptions::default()
            },
            speculate: arguments.speculate,
            draft: arguments.draft.as_ref().map(open).transpose()?,
            memory: arguments.memory,
            parallel: arguments.parallel,
            cache: arguments.cache,
        })
    }

    /// Opens all models of the command line and loads the first; the others are loaded on request.
    ///
    /// # Errors
    /// If a model cannot be opened, the draft model does not suit it, or the first cannot be loaded.
    pub fn open_all(&self, arguments: &Arguments) -> anyhow::Result<Vec<ServedModel>> {
        let mut all = vec![];
        let entries = arguments.entries()?;
        let is_capped = entries.len() > 1;
        for (names, entry) in model_names(&entries)?.into_iter().zip(entries) {
            let checkpoint = model::open_or_pull(&self.global, &entry.model)?;
            if let Some(why) = self.draft_obstacle(&checkpoint)? {
                bail!("--draft: this model cannot draft for {}: {why}", names.name);
            }
            all.push(self.setup(names, entry, checkpoint, is_capped)?);
        }
        all.into_iter()
            .enumerate()
            .map(|(number, setup)| self.serve(setup, number))
            .collect()
    }

    /// Opens a model that is served from now on. It is loaded on request.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(&self, names: ModelNames, path: &Path) -> anyhow::Result<ServedModel> {
        let mut setup = self.setup(names, ModelEntry::default(), Checkpoint::open(path)?, true)?;
        if let Some(why) = self.draft_obstacle(&setup.checkpoint)? {
            setup.draft = None;
            setup.note_no_effect("--draft", &why);
        }
        self.serve(setup, 1)
    }

    /// Returns why the draft model, if there is one, cannot draft for a model.
    fn draft_obstacle(&self, checkpoint: &Checkpoint) -> anyhow::Result<Option<String>> {
        let obstacle = self.draft.as_ref().map(|draft| draft.obstacle(checkpoint));
        Ok(obstacle.transpose()?.flatten())
    }

    /// With several models, each is capped at its own limit of the context.
    fn setup(
        &self,
        names: ModelNames,
        entry: ModelEntry,
        checkpoint: Checkpoint,
        is_capped: bool,
    ) -> anyhow::Result<ModelSetup> {
        let limit = checkpoint.config().max_position;
        let requested = entry.context.map(|context| context as usize).or(self.context);
        let requested = requested.map(|context| if is_capped { context.min(limit) } else { context });
        let context = load::context(
            checkpoint.config(),
            requested.or(Some(DEFAULT_CONTEXT.min(limit))),
            0,
            None,
        )?;
        Ok(ModelSetup {
            global: self.global.clone(),
            names,
            entry,
            speculate: self.speculate,
            options: EngineOptions {
                context,
                ..self.options.clone()
            },
            checkpoint: Arc::new(checkpoint),
            draft: self.draft.clone(),
            memory: self.memory,
            parallel: self.parallel,
            cache: self.cache,
        })
    }

    /// Serves a model, the first of which is loaded at once.
    fn serve(&self, setup: ModelSetup, number: usize) -> anyhow::Result<ServedModel> {
        let text = ServedText::of(&setup.checkpoint)?;
        let device = device::open(&setup.quiet_from(number))?;
        let fit = load::measure_fit(&setup.checkpoint, &device, self.cache.types(&device));
        if !self.global.quiet && device.is_cpu() {
            load::print_speed_warning(fit.as_ref());
        }
        let (ModelNames { name, aliases }, checkpoint) = (setup.names.clone(), setup.checkpoint.clone());
        let (sampler, stay) = (setup.entry.sampler, setup.entry.stay);
        let source = EngineSource {
            loaded: if number == 0 { Some(setup.start(&device)?) } else { None },
            context: setup.options.context,
            cache: self.cache.types(&device),
            registry: self.registry.clone(),
            stay,
            load: Box::new(move || setup.load()),
        };
        let served = ServedModel::new(name, source, &device, &checkpoint, text);
        Ok(served
            .with_aliases(aliases)
            .with_sampler(|options| sampler.apply(options))
            .with_bandwidth(fit.map(|fit| fit.capacity.bandwidth)))
    }
}

impl ModelSetup {
    /// Prints messages about the device only for the first model.
    fn quiet_from(&self, number: usize) -> Global {
        Global {
            quiet: self.global.quiet || number > 0,
            ..self.global.clone()
        }
    }

    /// Loads the model onto a device of its own, which may have other models loaded.
    fn load(&self) -> Result<Engine, LoadFailure> {
        let other = |why: anyhow::Error| LoadFailure::Other(format!("{why:#}"));
        let device = device::open(&self.quiet_from(1)).map_err(other)?;
        let context = self.options.context;
        let of_draft = self
            .draft
            .as_ref()
            .map(|draft| draft.memory_needed(&device, context, 1));
        let of_model = load::memory_needed(&self.checkpoint, self.cache.types(&device), context, self.speculation());
        let needed = of_model + of_draft.unwrap_or(0);
        if let Some(free) = device.free_memory().filter(|free| needed > *free) {
            let (needed, free) = (human_bytes(needed), human_bytes(free));
            return Err(LoadFailure::NoRoom(format!(
                "it needs {needed}, and the device has {free} free"
            )));
        }
        self.start(&device)
            .map_err(|why| match why.downcast_ref::<EngineError>() {
                Some(error) if error.is_out_of_memory() => LoadFailure::NoRoom(why.to_string()),
                _ => other(why),
            })
    }

    fn start(&self, device: &refrain::Device) -> anyhow::Result<Engine> {
        let cache = self.cache.types(device);
        let (context, speculation) = (self.options.context, self.speculation());
        let loaded = load::load_speculating(&self.global, &self.checkpoint, device, cache, context, speculation)?;
        // Before the cache is sized, which takes most of the memory that is left.
        let draft = self.draft.as_ref();
        let draft = draft.map(|draft| draft.load(&self.global, device, self.options.context));
        let options = self.with_cache_size(device, draft.transpose()?);
        if !self.global.quiet {
            let bytes = options.cache_tokens as u64 * options.kv_bytes_per_token(self.checkpoint.config(), cache);
            output::eprint_dimmed(&format!(
                "{} on {}: {} parallel requests of up to {} tokens, KV cache of {} tokens ({cache}, {})",
                self.names.name,
                device.name(),
                options.streams,
                options.context,
                options.cache_tokens,
                human_bytes(bytes),
            ));
            if let Some(draft) = &self.draft {
                output::eprint_dimmed(&format!("{} drafts for {}", draft.name, self.names.name));
            }
        }
        if let Some(why) = self.speculation_obstacle() {
            self.note_no_effect("--speculate", why);
        }
        Ok(if device.is_cpu() {
            Engine::start(&loaded.model, &options)?
        } else {
            Engine::start_reloading(loaded.model, &options, self.reload())?
        })
    }

    /// Prints that an option has no effect on this model.
    fn note_no_effect(&self, option: &str, why: &str) {
        if !self.global.quiet {
            let name = &self.names.name;
            output::eprint_line(&format!("note: {option} has no effect on {name}: {why}"));
        }
    }

    /// What guesses for the model.
    fn speculation(&self) -> Speculation {
        if self.options.deterministic {
            Speculation::Off
        } else if self.draft.is_some() {
            Speculation::Model
        } else {
            self.speculate.of(self.checkpoint.config())
        }
    }

    /// Why the engine does not speculate although it was asked to.
    fn speculation_obstacle(&self) -> Option<&'static str> {
        match self.speculate {
            SpeculateArgument::Auto | SpeculateArgument::Off => None,
            _ if self.options.deterministic => {
                Some("the responses of a deterministic server come from steps of one size")
            }
            asked => asked.obstacle(self.checkpoint.config()),
        }
    }

    /// The options with a draft model, and with requests and KV cache sized to the free memory.
    fn with_cache_size(&self, device: &refrain::Device, draft: Option<Model>) -> EngineOptions {
        let free = device.free_memory().unwrap_or(u64::MAX) as f64 * self.memory;
        let streams = self.parallel.map(|streams| streams as usize);
        let options = EngineOptions {
            speculation: self.speculation(),
            draft,
            ..self.options.clone()
        };
        options.sized(
            self.checkpoint.config(),
            device,
            self.cache.types(device),
            free as u64,
            streams,
        )
    }

    /// Reopens the device after it was lost, and reloads the model and its draft model.
    fn reload(&self) -> Reload {
        let (global, checkpoint, context) = (self.global.clone(), self.checkpoint.clone(), self.options.context);
        let (cache, draft, speculation) = (self.cache, self.draft.clone(), self.speculation());
        Box::new(move |why| {
            output::eprint_line(&format!(
                "warning: {why}; reloading the model, running requests will continue"
            ));
            let device = device::open(&global)?;
            if device.is_cpu() {
                return Err("the device is no longer available".into());
            }
            let cache = cache.types(&device);
            let model = load::load_speculating(&global, &checkpoint, &device, cache, context, speculation)?.model;
            let draft = draft.as_ref().and_then(|draft| {
                let loaded = draft.load(&global, &device, context).inspect_err(|why| {
                    let name = &draft.name;
                    output::eprint_line(&format!(
                        "warning: {name} was not loaded again and drafts no more: {why:#}"
                    ));
                });
                loaded.ok()
            });
            Ok(ReloadedModels { model, draft })
        })
    }
}
