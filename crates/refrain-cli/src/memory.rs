//! Memory use of a model and its engine.

use refrain_engine::{EngineMemory, Model};
use refrain_vulkan::MemoryClass;
use serde_json::{Value, json};

use crate::host;
use crate::output::human_bytes;

/// Memory use in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemoryUse {
    /// Weights in device memory.
    pub weights: u64,
    /// KV cache.
    pub kv: u64,
    /// Scratch buffers for intermediate results.
    pub scratch: u64,
    /// Peak allocation on the device, staging included; `None` on the CPU.
    pub device_peak: Option<u64>,
    /// Peak resident memory of this process, mapped files included.
    pub host_peak: Option<u64>,
    /// Current private memory of this process, mapped files excluded.
    pub host_own: Option<u64>,
    /// Prompt chunk size in tokens, if it had to be reduced for lack of memory.
    pub shorter_chunk: Option<usize>,
}

impl MemoryUse {
    /// Measures the current use: that of the process, and of an engine, if one generated.
    pub fn of(model: &Model, engine: Option<EngineMemory>) -> Self {
        let counters = model.device().as_vulkan().map(|vulkan| vulkan.counters());
        Self {
            weights: counters.map_or(model.weight_bytes(), |c| c.bytes(MemoryClass::Weight)),
            kv: engine.map_or(0, |engine| engine.kv_bytes),
            scratch: engine.map_or(0, |engine| engine.scratch_bytes),
            device_peak: counters.map(|counters| counters.peak_allocated),
            host_peak: host::peak_resident(),
            host_own: host::own_resident(),
            shorter_chunk: engine.and_then(|engine| engine.shorter_chunk),
        }
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        json!({
            "weight_bytes": self.weights,
            "kv_bytes": self.kv,
            "scratch_bytes": self.scratch,
            "device_peak_bytes": self.device_peak,
            "host_peak_bytes": self.host_peak,
            "host_own_bytes": self.host_own,
        })
    }

    /// As one line of text.
    pub fn line(&self) -> String {
        let mut parts = vec![
            format!("weights {}", human_bytes(self.weights)),
            format!("KV cache {}", human_bytes(self.kv)),
            format!("scratch {}", human_bytes(self.scratch)),
        ];
        if let Some(peak) = self.device_peak {
            parts.push(format!("device peak {}", human_bytes(peak)));
        }
        if let Some(peak) = self.host_peak {
            parts.push(format!("host peak {}", human_bytes(peak)));
        }
        parts.join(", ")
    }
}
