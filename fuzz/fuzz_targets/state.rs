//! State files: any bytes, and any bytes under a right checksum.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refrain_formats::State;

fuzz_target!(|data: &[u8]| {
    if let Ok(state) = State::decode(data) {
        assert_eq!(state.encode(), data, "what is accepted is written the same");
    }
    let sealed = State::seal(data.to_vec());
    if let Ok(state) = State::decode(&sealed) {
        assert!(state.bytes() <= sealed.len() as u64);
        assert_eq!(state.encode(), sealed);
    }
});
