//! Checkpoints made: converted from others ([`convert`]), or of random weights ([`synthetic`]).

pub mod convert;
pub mod synthetic;
