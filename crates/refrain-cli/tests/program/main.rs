//! End-to-end tests of the `refrain` binary: exit codes, messages and results.

mod bad_checkpoints;
mod bad_gguf;
mod bad_input;
mod bench_table;
mod channels;
mod chat;
mod convert;
mod decode;
mod demo;
mod devices;
mod doctor;
mod eval;
mod examples;
#[allow(dead_code)] // what the tests of the hub itself need
#[path = "../../../refrain-hub/tests/hub/fake.rs"]
mod fake_hub;

#[cfg(target_os = "linux")]
mod full_disk;
mod help;
mod hub;
mod launch;
mod logits;
mod number_format;
mod plan_check;
mod prompts;
mod reasoning;
mod sandbox;
#[allow(dead_code)] // what other tests need
mod scripted;
mod serve;
#[cfg(target_os = "linux")]
mod service;
mod structured_output;
mod suggestions;
mod support;
mod synth;
#[cfg(unix)]
mod terminal;
mod tokenizer;
mod usage;
