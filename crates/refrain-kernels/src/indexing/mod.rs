//! Rows and elements by index: taken, and written.

mod gather;
pub mod take;
pub mod take_along;
pub mod write_rows;
