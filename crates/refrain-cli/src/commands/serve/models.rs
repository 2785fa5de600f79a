//! The models that are served: opened when the server starts, brought onto the device when they are asked for.

use std::path::Path;
use std::sync::Arc;

use refrain_engine::{Engine, EngineOptions, Error as EngineError, Reload, Session};
use refrain_models::Checkpoint;
use refrain_server::{EngineShelf, EngineSource, LoadFailure, ServedModel, ServedText};

use super::{Arguments, CONTEXT, STREAMS, STREAMS_ON_CPU};
use crate::output::{self, human_bytes};
use crate::{Global, device, load, model};

/// A model, and how it is to be run.
#[derive(Clone)]
struct Offered {
    global: Global,
    name: String,
    checkpoint: Arc<Checkpoint>,
    options: EngineOptions,
    /// Share of the free memory that keys, values and recurrent states may take.
    memory: f64,
    parallel: Option<u32>,
}

/// Opens all models; the first is loaded, the others are when they are asked for.
///
/// # Errors
/// What cannot be opened; if the first cannot be loaded.
pub(super) fn open(global: &Global, arguments: &Arguments) -> anyhow::Result<Vec<ServedModel>> {
    let shelf = EngineShelf::new(arguments.keep_alive.0);
    let names = arguments.names()?;
    let mut all = vec![];
    for (name, model) in names.into_iter().zip(&arguments.models) {
        let checkpoint = Arc::new(model::open_or_pull(global, model)?);
        let limit = checkpoint.config().max_position;
        let asked = arguments.ctx.map(|context| context as usize);
        // Of several each has what it can.
        let asked = asked.map(|asked| {
            if arguments.models.len() > 1 {
                asked.min(limit)
            } else {
                asked
            }
        });
        let context = load::context(checkpoint.config(), asked.or(Some(CONTEXT.min(limit))), 0, None)?;
        all.push(Offered {
            global: global.clone(),
            name,
            checkpoint,
            options: EngineOptions {
                context,
                queue: arguments.queue,
                prefix_cache: !arguments.no_prefix_cache,
                deterministic: arguments.deterministic,
                ..EngineOptions::default()
            },
            memory: arguments.memory,
            parallel: arguments.parallel,
        });
    }
    let served = all.into_iter().enumerate().map(|(number, offered)| {
        let text = ServedText::of(&offered.checkpoint)?;
        let device = device::open(&offered.quiet_from(number))?;
        let fit = load::measured(&offered.checkpoint, &device);
        if !global.quiet && device.is_cpu() {
            load::announce(fit.as_ref());
        }
        let (name, checkpoint) = (offered.name.clone(), offered.checkpoint.clone());
        let source = EngineSource {
            loaded: if number == 0 {
                Some(offered.start(&device)?)
            } else {
                None
            },
            context: offered.options.context,
            shelf: shelf.clone(),
            load: Box::new(move || offered.load()),
        };
        let served = ServedModel::new(name, source, &device, &checkpoint, text);
        Ok(served.with_bandwidth(fit.map(|fit| fit.offer.bandwidth)))
    });
    served.collect()
}

impl Offered {
    /// Says what there is to say of the device once, with the first.
    fn quiet_from(&self, number: usize) -> Global {
        Global {
            quiet: self.global.quiet || number > 0,
            ..self.global.clone()
        }
    }

    /// Loads it onto a device of its own, where others may be loaded too.
    fn load(&self) -> Result<Engine, LoadFailure> {
        let other = |why: anyhow::Error| LoadFailure::Other(format!("{why:#}"));
        let device = device::open(&self.quiet_from(1)).map_err(other)?;
        let needed = load::bytes(&self.checkpoint, &device, self.options.context);
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
        let loaded = load::load(&self.global, &self.checkpoint, device, self.options.context)?;
        let options = self.fitting(device);
        if !self.global.quiet {
            let bytes = options.cache_tokens as u64 * Session::kv_bytes_per_token(self.checkpoint.config(), device);
            output::aside(&format!(
                "{} on {}: {} requests at once, {} tokens each, {} in all ({} of keys and values)",
                self.name,
                device.name(),
                options.streams,
                options.context,
                options.cache_tokens,
                human_bytes(bytes),
            ));
        }
        Ok(if device.is_cpu() {
            Engine::start(&loaded.model, &options)?
        } else {
            Engine::start_reloading(loaded.model, &options, self.reload())?
        })
    }

    /// The options, with as many tokens in the cache as there is room for.
    fn fitting(&self, device: &refrain::Device) -> EngineOptions {
        let usual = if device.is_cpu() { STREAMS_ON_CPU } else { STREAMS };
        let streams = self.parallel.map_or(usual, |streams| streams as usize);
        let each = Session::kv_bytes_per_token(self.checkpoint.config(), device).max(1);
        let free = device.free_memory().unwrap_or(u64::MAX) as f64 * self.memory;
        let states = streams as u64 * self.checkpoint.config().recurrent_bytes();
        let fit = (bytes_for_tokens(free as u64, states) / each) as usize;
        let context = self.options.context;
        EngineOptions {
            streams,
            cache_tokens: (streams * context).min(fit).max(context),
            ..self.options
        }
    }

    /// Opens the device again after it was lost, and loads the model.
    fn reload(&self) -> Reload {
        let (global, checkpoint, context) = (self.global.clone(), self.checkpoint.clone(), self.options.context);
        Box::new(move |why| {
            output::complain(&format!(
                "warning: {why}; the model is loaded again, and texts under way go on then"
            ));
            let device = device::open(&global)?;
            if device.is_cpu() {
                return Err("the device is not there any more".into());
            }
            Ok(load::load(&global, &checkpoint, &device, context)?.model)
        })
    }
}

/// Bytes of `free` that are left for keys and values beside the recurrent states of all sequences, and copies of them for
/// known beginnings, which take as much again, but no more than keys and values do.
fn bytes_for_tokens(free: u64, states: u64) -> u64 {
    let left = free.saturating_sub(states);
    left.saturating_sub(states).max(left / 2)
}

impl Arguments {
    /// What clients call the models.
    fn names(&self) -> anyhow::Result<Vec<String>> {
        if self.alias.len() > self.models.len() {
            anyhow::bail!("--alias names more models than there are; give one for each, in their order");
        }
        let aliases = self.alias.iter().cloned().map(Some).chain(std::iter::repeat(None));
        let named = |(alias, model): (Option<String>, &String)| alias.unwrap_or_else(|| name(model));
        let names: Vec<String> = aliases.zip(&self.models).map(named).collect();
        for (number, name) in names.iter().enumerate() {
            if names[..number].contains(name) {
                anyhow::bail!(
                    "two models are called {name}; --alias NAME, once for each in their order, tells them apart"
                );
            }
        }
        Ok(names)
    }
}

fn name(model: &str) -> String {
    let path = Path::new(model);
    let last = || {
        if path.exists() {
            path.file_stem().or(path.file_name())?.to_str().map(str::to_owned)
        } else {
            None
        }
    };
    last().unwrap_or_else(|| model.to_owned())
}

#[cfg(test)]
mod tests {
    use super::bytes_for_tokens;

    #[test]
    fn states_and_their_copies_leave_the_rest_for_keys_and_values() {
        assert_eq!(bytes_for_tokens(1000, 0), 1000, "a model whose layers all attend");
        assert_eq!(bytes_for_tokens(1000, 100), 800);
        assert_eq!(
            bytes_for_tokens(1000, 400),
            300,
            "copies are no larger than keys and values"
        );
        assert_eq!(bytes_for_tokens(1000, 2000), 0);
    }
}
