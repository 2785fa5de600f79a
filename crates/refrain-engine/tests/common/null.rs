//! A null device whose decode steps produce output as if they had run, by emulating what the host reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use refrain::Device;
use refrain_vulkan::{DeviceInfo, Fault, MemoryClass, NullMemory, NullOptions};

/// Words that messages wrote to states: the last one at each address.
pub type Delivered = Arc<Mutex<BTreeMap<u64, u32>>>;

/// Returns a device with these faults, and what its inbox delivers.
pub fn reporting(faults: &[Fault]) -> (Device, Delivered) {
    reporting_within(8 << 30, faults)
}

/// The same, with `bytes` bytes of device memory.
pub fn reporting_within(bytes: u64, faults: &[Fault]) -> (Device, Delivered) {
    let delivered = Delivered::default();
    let seen = delivered.clone();
    let options = NullOptions {
        faults: faults.to_vec(),
        without_contents: true,
        kernel_stub: Some(Arc::new(move |kernel, push, words| match kernel {
            kernel if kernel.starts_with("inbox") => deliver(push, words, &seen),
            kernel if kernel.starts_with("sample.pick") => report(push, words),
            _ => {}
        })),
        ..NullOptions::default()
    };
    let mut card = DeviceInfo::mock("card");
    card.heaps[0].size = bytes;
    if bytes < card.heaps[2].size {
        card.heaps[2].size = 0;
    }
    let device = refrain_vulkan::Device::null_with(card, options);
    (Device::vulkan(device), delivered)
}

/// Executes a message: a count and three unused words, then entries of address, value and an unused word.
fn deliver(push: &[u8], words: &NullMemory<'_>, delivered: &Delivered) {
    let message = addresses(push).next().expect("a message");
    let word = |number: u64| words.load(message + 4 * number).expect("the host wrote it").1;
    for entry in (1..=u64::from(word(0))).map(|number| 4 * number) {
        let address = u64::from(word(entry)) | u64::from(word(entry + 1)) << 32;
        words.store(address, word(entry + 2));
        delivered.lock().unwrap().insert(address, word(entry + 2));
    }
}

/// Counts an output of each sequence: the outbox is all that the host reads of a step.
fn report(push: &[u8], words: &NullMemory<'_>) {
    /// Offset of the number of outbox words per sequence, after the addresses.
    const OUTBOX_WORDS: usize = 8 * 12 + 4 * 4;
    let of_each = push[OUTBOX_WORDS..]
        .first_chunk::<4>()
        .expect("numbers follow the addresses");
    let bytes_of_each = 4 * u64::from(u32::from_le_bytes(*of_each));
    for outbox in addresses(push) {
        let mut at = outbox;
        while let Some((MemoryClass::Report, count)) = words.load(at) {
            words.store(at, count.wrapping_add(1));
            at += bytes_of_each;
        }
    }
}

fn addresses(push: &[u8]) -> impl Iterator<Item = u64> {
    let (words, _) = push.as_chunks::<8>();
    words.iter().map(|bytes| u64::from_le_bytes(*bytes))
}
