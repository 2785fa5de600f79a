//! The commands, one module each.

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod convert;
pub(crate) mod devices;
pub(crate) mod doctor;
pub(crate) mod eval;
pub(crate) mod explain;
pub(crate) mod inspect;
pub(crate) mod launch;
pub(crate) mod list;
pub(crate) mod logits;
pub(crate) mod man;
pub(crate) mod plan_check;
pub(crate) mod ps;
pub(crate) mod pull;
pub(crate) mod rm;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod soak;
pub(crate) mod stop;
pub(crate) mod synth;
pub(crate) mod template;
pub(crate) mod tokenize;
pub(crate) mod top;
