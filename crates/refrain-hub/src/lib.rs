//! Models from the Hugging Face hub, stored in the hub's own cache.
//!
//! The cache is the one of `huggingface_hub` (`~/.cache/huggingface/hub`), so models are shared with Python programs
//! in both directions. [`HubCache`] finds, lists and removes models without any request. [`Hub`] downloads them.
//!
//! This is the only crate that makes network requests. Only [`Hub::plan`], [`Hub::outline`] and [`Hub::download`]
//! make any.
//!
//! ```no_run
//! use refrain_hub::{HubCache, Hub, ModelName, HubSettings};
//!
//! let settings = HubSettings::from_environment()?;
//! let name: ModelName = "Qwen/Qwen3-0.6B-GGUF:Q8_0".parse()?;
//! let model = match HubCache::new(&settings.cache).find(&name)? {
//!     Some(cached) => cached,
//!     None => {
//!         let hub = Hub::new(settings);
//!         hub.download(&hub.plan(&name, &())?, &())?
//!     }
//! };
//! println!("{}", model.path.display());
//! # Ok::<(), refrain_hub::Error>(())
//! ```

mod blob;
mod cache;
mod checksum;
mod error;
mod http;
mod listing;
mod name;
mod outline;
mod pull;
mod quant;
mod retry;
mod select;
mod settings;
mod watch;

pub use cache::{CachedModel, HubCache, List, Removal};
pub use error::Error;
pub use name::{ModelName, is_hub_address};
pub use outline::Outline;
pub use pull::{DownloadPlan, Hub, PlannedFile};
pub use select::{Selection, WeightsKind};
pub use settings::{AccessToken, HubSettings};
pub use watch::Watcher;
