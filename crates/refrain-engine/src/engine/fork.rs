//! Copies from which requests go on: of a page of which they need the beginning, and of the recurrent states of others.

use refrain::{Array, Executor};
use refrain_models::LayerState;

use super::PAGE_SIZE;
use super::row_copy::RowCopy;
use crate::Error;

/// Programs that copy a page, and a slot's recurrent states.
pub(super) struct Forks {
    /// `None` if there are no keys and values.
    page: Option<RowCopy>,
    /// `None` if there are no recurrent states.
    states: Option<RowCopy>,
}

impl Forks {
    /// Compiles the copies.
    ///
    /// # Errors
    /// If they cannot be lowered, or there is too little memory.
    pub fn new(states: &[LayerState], executor: &'static dyn Executor) -> Result<Forks, Error> {
        let compile = |arrays: Vec<&Array>, rows: usize| match arrays.is_empty() {
            true => Ok(None),
            false => RowCopy::new(&arrays, &arrays, rows, executor).map(Some),
        };
        Ok(Forks {
            page: compile(LayerState::caches(states), PAGE_SIZE)?,
            states: compile(LayerState::recurrent(states), 1)?,
        })
    }

    /// Copies a page into another one, and the recurrent states of a slot into another one, each given as `[from, to]`.
    ///
    /// # Errors
    /// If the device fails.
    pub fn play(&self, pages: [u32; 2], slots: [usize; 2]) -> Result<(), Error> {
        if let Some(copy) = &self.page {
            let size = PAGE_SIZE as u32;
            let [from, to] = pages.map(|page| (page * size..(page + 1) * size).collect::<Vec<u32>>());
            copy.play(&from, &to)?;
        }
        match &self.states {
            Some(copy) => copy.play(&[slots[0] as u32], &[slots[1] as u32]),
            None => Ok(()),
        }
    }
}
