//! How many requests and how many tokens of KV cache fit into a device's memory.

use refrain::Device;
use refrain_models::{CacheTypes, ModelConfig};

use super::checkpoints::CHECKPOINTS_EACH;
use super::row_count::widths;
use super::speculation::{MAX_VERIFIED_TOKENS, Speculation, draft_memory};
use super::steps::{MAX_DRAFT_ROWS, MAX_STEP_ROWS};
use super::{EngineOptions, PAGE_SIZE};
use crate::masks::MaskStates;
use crate::prefill::{SHORT_CHUNK, default_chunk};
use crate::step::SlotStates;

/// Default limits of the requests that are decoded at once.
const STREAMS_ON_DISCRETE: usize = 64;
const STREAMS_ON_INTEGRATED: usize = 8;
const STREAMS_ON_CPU: usize = 4;
/// Tokens of KV cache for each request, at least: with less memory, fewer requests are decoded at once.
const MIN_CACHE_TOKENS_EACH: usize = 1024;
/// What requests have besides keys and values takes at most one part in so many of the memory.
const MAX_PART_OF_REQUESTS: u64 = 4;
/// Intermediate results of a long chunk take at most one part in so many of the memory.
const MAX_PART_OF_CHUNKS: u64 = 8;

/// What an engine needs of a device's memory, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct MemoryNeeds {
    /// Keys and values of a token.
    kv_token: u64,
    /// Keys or values of a token in one layer, which are in one buffer.
    layer_token: u64,
    /// Recurrent states of a request.
    recurrent: u64,
    /// Sampling state and masks of a request, and its share of the logits of all steps.
    sampling: u64,
    /// Intermediate results of the longest chunk of a prompt, and of one that is short enough for any memory.
    chunk: u64,
    short_chunk: u64,
    /// Intermediate results of a request in a decode step.
    row: u64,
    /// Logits and intermediate results of steps that verify drafts.
    drafts: u64,
}

impl MemoryNeeds {
    fn of(config: &ModelConfig, device: &Device, cache: CacheTypes, context: usize) -> MemoryNeeds {
        let (vocabulary, heads) = (config.vocab_size as u64, &config.attention);
        let experts = config.feed_forward.moe.as_ref();
        let experts = experts.map_or(1, |moe| moe.router.experts_per_token + 1);
        // Residual stream and norm, queries and outputs, and the gated halves of the feed-forward layer, in f32.
        let widths = 3 * config.hidden_size
            + 2 * heads.heads * (heads.head_dim + heads.value_dim)
            + 3 * experts * config.feed_forward.intermediate_size;
        let [keys, values] = cache.layer_bytes(config);
        let token = 4 * widths as u64;
        MemoryNeeds {
            kv_token: cache.bytes_per_token(config).max(1),
            layer_token: keys.max(values) as u64,
            recurrent: config.recurrent_bytes(),
            sampling: SlotStates::bytes_per_slot(config.vocab_size, context)
                + MaskStates::bytes_per_row(config.vocab_size)
                + 4 * MAX_STEP_ROWS as u64 * vocabulary,
            chunk: default_chunk(device) as u64 * token,
            short_chunk: SHORT_CHUNK as u64 * token,
            // Sampling ranks all tokens.
            row: token + 12 * vocabulary,
            drafts: 0,
        }
    }

    /// Adds what steps that verify drafts need.
    fn with_drafts(self, vocabulary: usize) -> MemoryNeeds {
        let logits = 4 * (MAX_DRAFT_ROWS * vocabulary) as u64;
        MemoryNeeds {
            drafts: logits + MAX_VERIFIED_TOKENS as u64 * self.row,
            ..self
        }
    }

    /// Returns the bytes that requests have besides keys and values.
    fn of_requests(&self, streams: usize) -> u64 {
        streams as u64 * (self.recurrent + self.sampling)
    }

    /// Returns the bytes of intermediate results. Chunks are shorter if memory is short.
    fn scratch(&self, free: u64, streams: usize) -> u64 {
        let chunk = self.chunk.min((free / MAX_PART_OF_CHUNKS).max(self.short_chunk));
        chunk.max(streams as u64 * self.row)
    }
}

impl EngineOptions {
    /// Returns the bytes of KV cache per token, of type `cache`: those of a multi-token prediction head count if it drafts.
    pub fn kv_bytes_per_token(&self, config: &ModelConfig, cache: CacheTypes) -> u64 {
        let head = if self.speculation.uses_mtp_head() {
            config.mtp_layers * cache.layer_bytes(config).iter().sum::<usize>()
        } else {
            0
        };
        cache.bytes_per_token(config) + head as u64
    }

    /// Returns these options with the KV cache, of type `cache`, sized to `free` bytes of a device's memory, after the model
    /// was loaded. `streams` is the limit of requests that are decoded at once; by default 64 on a discrete GPU, 8 on an
    /// integrated one and 4 on the CPU, or fewer if memory is short.
    #[must_use]
    pub fn sized(
        self,
        config: &ModelConfig,
        device: &Device,
        cache: CacheTypes,
        free: u64,
        streams: Option<usize>,
    ) -> EngineOptions {
        let default = if device.is_cpu() || device.is_software() {
            STREAMS_ON_CPU
        } else if device.is_discrete() {
            STREAMS_ON_DISCRETE
        } else {
            STREAMS_ON_INTEGRATED
        };
        // The draft model is loaded, but has no keys and values yet.
        let requests = streams.unwrap_or(default);
        let draft = self.draft.as_ref();
        let of_draft = draft.map(|draft| draft_memory(draft.config(), draft.cache_types(), self.context, requests));
        let free = free.saturating_sub(of_draft.unwrap_or(0));
        let needs = MemoryNeeds {
            kv_token: self.kv_bytes_per_token(config, cache).max(1),
            ..MemoryNeeds::of(config, device, cache, self.context)
        };
        let needs = if self.speculation == Speculation::Off {
            needs
        } else {
            needs.with_drafts(config.vocab_size)
        };
        let max_buffer = device.max_buffer_bytes();
        let streams = streams.unwrap_or_else(|| fitting_streams(&needs, free, self.context, default));
        EngineOptions {
            streams,
            cache_tokens: fitting_tokens(&needs, free, self.context, streams, max_buffer),
            ..self
        }
    }
}

/// Returns how many requests fit, up to `most`.
fn fitting_streams(needs: &MemoryNeeds, free: u64, context: usize, most: usize) -> usize {
    let each = MIN_CACHE_TOKENS_EACH.min(context);
    let fits = |streams: usize| {
        needs.of_requests(streams) <= free / MAX_PART_OF_REQUESTS
            && bytes_for_tokens(needs, free, streams) / needs.kv_token >= (streams * each) as u64
    };
    let all: Vec<usize> = widths().take_while(|&rows| rows <= most).collect();
    all.into_iter().rev().find(|&streams| fits(streams)).unwrap_or(1)
}

/// Returns the tokens of KV cache: as many as fit, up to the full context of each request, but at least one context.
fn fitting_tokens(needs: &MemoryNeeds, free: u64, context: usize, streams: usize, max_buffer: u64) -> usize {
    let fit = bytes_for_tokens(needs, free, streams) / needs.kv_token;
    // Keys and values of a layer are in one buffer each. Pages are whole.
    let in_buffer = max_buffer / needs.layer_token.max(1) / PAGE_SIZE as u64 * PAGE_SIZE as u64;
    let fit = usize::try_from(fit.min(in_buffer)).unwrap_or(usize::MAX);
    (streams * context).min(fit).max(context)
}

/// Returns the bytes of `free` left for keys and values. Checkpoints of recurrent states take at most half of the rest.
fn bytes_for_tokens(needs: &MemoryNeeds, free: u64, streams: usize) -> u64 {
    let left = free.saturating_sub(needs.of_requests(streams) + needs.scratch(free, streams) + needs.drafts);
    let checkpoints = (CHECKPOINTS_EACH * streams + 1) as u64;
    left.saturating_sub(checkpoints * needs.recurrent).max(left / 2)
}

#[cfg(test)]
mod tests {
    use refrain_models::{Checkpoint, Pages};
    use refrain_vulkan::DeviceInfo;

    use super::super::runner::{DeviceRunner, Runner};
    use super::*;
    use crate::step::StepExtras;
    use crate::{LoadOptions, Model};

    const NEEDS: MemoryNeeds = MemoryNeeds {
        kv_token: 100,
        layer_token: 10,
        recurrent: 0,
        sampling: 1000,
        chunk: 5000,
        short_chunk: 5000,
        row: 10,
        drafts: 0,
    };

    #[test]
    fn fewer_requests_are_decoded_if_memory_is_short() {
        let streams = |free| fitting_streams(&NEEDS, free, 4096, 64);
        assert_eq!(
            [1 << 30, 8_000_000, 2_000_000, 200_000, 0].map(streams),
            [64, 64, 16, 1, 1]
        );
        let recurrent = MemoryNeeds {
            recurrent: 1 << 20,
            ..NEEDS
        };
        let streams = |free| fitting_streams(&recurrent, free, 4096, 64);
        assert_eq!([1 << 30, 64 << 20, 4 << 20].map(streams), [64, 12, 1]);
    }

    #[test]
    fn a_card_with_little_memory_still_runs_several_requests() {
        // Qwen3-8B with 2.2 GB left of a card of 8 GB.
        let needs = MemoryNeeds {
            kv_token: 147_456,
            layer_token: 2048,
            recurrent: 0,
            sampling: 3_700_000,
            chunk: 537_000_000,
            short_chunk: 134_000_000,
            row: 2_100_000,
            drafts: 0,
        };
        let free = 2_200_000_000;
        let streams = fitting_streams(&needs, free, 8192, 64);
        let tokens = fitting_tokens(&needs, free, 8192, streams, 4 << 30);
        assert_eq!((streams, tokens / 1000), (12, 12));
    }

    #[test]
    fn the_cache_takes_what_is_left() {
        let tokens = |free, streams| fitting_tokens(&NEEDS, free, 1000, streams, u64::MAX);
        assert_eq!(tokens(u64::MAX, 8), 8000, "the full context of each request");
        assert_eq!(tokens(513_000, 8), 5000, "what fits");
        assert_eq!(tokens(0, 8), 1000, "one context");
        let in_buffer = fitting_tokens(&NEEDS, u64::MAX, 1000, 8, 20_100);
        assert_eq!(in_buffer, 1984, "a buffer of a layer, in whole pages");
    }

    #[test]
    fn checkpoints_take_no_more_than_the_cache() {
        let left = |recurrent| {
            let needs = MemoryNeeds { recurrent, ..NEEDS };
            bytes_for_tokens(&needs, 6000 + 1000, 1)
        };
        assert_eq!([0, 100, 400, 2000].map(left), [1000, 600, 300, 0]);
    }

    /// The estimate is between once and eight times the intermediate results of the largest programs.
    #[test]
    fn intermediate_results_are_counted() {
        let card = Device::vulkan(refrain_vulkan::Device::null_without_contents(DeviceInfo::mock("card")));
        for spec in ["tiny:f16", "tiny:q4_0"] {
            let checkpoint = Checkpoint::synthetic(spec).expect("a checkpoint");
            let model = Model::load(&checkpoint, &card, &LoadOptions::default()).expect("loads");
            let pages = Pages {
                size: PAGE_SIZE,
                per_sequence: 64,
                context: 4096,
            };
            let mut runner = DeviceRunner::new(&model, 16, pages, 64, (false, false)).expect("fits");
            let needs = MemoryNeeds::of(model.config(), &card, model.cache_types(), 4096);
            runner.prepare_chunk(default_chunk(&card)).expect("prepares");
            let (used, counted) = (runner.scratch_bytes(), needs.chunk);
            assert!((used..8 * used).contains(&counted), "{spec}: {counted} for {used}");
            runner.release();
            runner.prepare_step((16, StepExtras::default())).expect("prepares");
            let (used, counted) = (runner.scratch_bytes(), 16 * needs.row);
            assert!((used..8 * used).contains(&counted), "{spec}: {counted} for {used}");
            runner.release();
            let extras = StepExtras {
                draft_tokens: 7,
                ..StepExtras::default()
            };
            runner.prepare_step((8, extras)).expect("prepares");
            let (used, counted) = (
                runner.scratch_bytes(),
                needs.with_drafts(model.config().vocab_size).drafts,
            );
            assert!((used..8 * used).contains(&counted), "{spec}: {counted} for {used}");
        }
    }

    #[test]
    fn defaults_depend_on_the_device() {
        let checkpoint = Checkpoint::synthetic("tiny:f16").expect("a checkpoint");
        let card = Device::vulkan(refrain_vulkan::Device::null_without_contents(DeviceInfo::mock("card")));
        let sized = |device: &Device, streams| {
            let options = EngineOptions::default().sized(
                checkpoint.config(),
                device,
                CacheTypes::of_device(device),
                1 << 34,
                streams,
            );
            (options.streams, options.cache_tokens)
        };
        assert_eq!(sized(&card, None), (64, 64 * 4096));
        assert_eq!(sized(&card, Some(3)), (3, 3 * 4096));
        assert_eq!(sized(&Device::cpu(), None), (4, 4 * 4096));
    }
}
