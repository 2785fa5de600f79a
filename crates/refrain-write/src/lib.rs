//! Checkpoints made: converted from others ([`convert`]), or of random weights ([`synthetic`]); and what writes them,
//! a piece at a time ([`files`]).

pub mod convert;
pub mod files;
mod quantise;
pub mod synthetic;
