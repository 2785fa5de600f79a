//! One file per command.

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod devices;
pub(crate) mod doctor;
pub(crate) mod inspect;
pub(crate) mod logits;
pub(crate) mod run;
pub(crate) mod synth;
pub(crate) mod template;
pub(crate) mod tokenize;
