//! State files: arbitrary bytes, and arbitrary bytes with a valid checksum.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refrain_formats::State;

fuzz_target!(|data: &[u8]| {
    if let Ok(state) = State::decode(data) {
        assert_eq!(state.encode(), data, "accepted files are written back unchanged");
    }
    let sealed = State::seal(data.to_vec());
    if let Ok(state) = State::decode(&sealed) {
        assert!(state.bytes() <= sealed.len() as u64);
        assert_eq!(state.encode(), sealed);
    }
});
