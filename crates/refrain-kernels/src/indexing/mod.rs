//! Reading and writing rows and elements by index.

pub mod combine_rows;
mod gather;
pub mod take;
pub mod take_along;
pub mod write_rows;
