//! The body of a request: a byte for its route, then the body. It is read or refused.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Some((kind, body)) = input.split_first() {
        refrain_server::fuzzing::read_body(usize::from(*kind), body);
    }
});
