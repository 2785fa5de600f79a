//! Tests of reading and writing checkpoints, in one program.

mod arbitrary;
mod bad_config;
mod bad_gguf;
mod bad_safetensors;
mod bad_tokenizer;
mod convert;
mod converted;
mod cut_short;
mod dialect_cuts;
mod dialect_files;
mod dialects;
mod directory;
mod doubles;
mod fetched;
mod fixtures;
mod heads;
mod hybrid;
mod llama_cpp;
mod planes;
mod replaced;
mod split;
mod support;
mod template;
mod template_bounds;
mod tokenizer;
mod whole_file;
