//! Copies of recurrent states, to go back to an earlier token.
//!
//! Keys and values are stored by position, so later ones are simply overwritten. A recurrent state cannot be undone.
//! Each submit therefore begins by copying these states. To go back, the last copy before the token is restored, and
//! the tokens since are run again.

use refrain::{Array, DType, Error, Executor, Function, Tape};
use refrain_models::LayerState;

/// Number of copies: more than there are submits in flight.
const COPIES: usize = 3;

/// The copies of a session.
pub(crate) struct Rollback {
    copies: Vec<StateCopy>,
    next: usize,
}

struct StateCopy {
    save: Tape,
    restore: Tape,
    /// The run before which the copy was made.
    run: Option<u64>,
}

impl Rollback {
    /// Allocates the copies. Returns `None` for a model without recurrent states.
    pub fn new(states: &[LayerState], executor: &'static dyn Executor) -> Result<Option<Rollback>, Error> {
        let recurrent = LayerState::recurrent(states);
        if recurrent.is_empty() {
            return Ok(None);
        }
        let copies = (0..COPIES)
            .map(|_| StateCopy::new(&recurrent, executor))
            .collect::<Result<_, _>>()?;
        Ok(Some(Rollback { copies, next: 0 }))
    }

    /// Returns the tape that makes the next copy. The caller reports with [`Rollback::saved`] whether it ran.
    pub fn save(&self) -> &Tape {
        &self.copies[self.next].save
    }

    /// Notes that the next copy holds the states before run number `run`. `None` means that the copy may have failed.
    pub fn saved(&mut self, run: Option<u64>) {
        self.copies[self.next].run = run;
        if run.is_some() {
            self.next = (self.next + 1) % self.copies.len();
        }
    }

    /// Restores the last copy made before or at run number `run`. Returns the run before which it was made.
    pub fn restore(&mut self, run: u64) -> Result<Option<u64>, Error> {
        let before = |copy: &&StateCopy| copy.run.is_some_and(|made| made <= run);
        let Some(copy) = self.copies.iter().filter(before).max_by_key(|copy| copy.run) else {
            return Ok(None);
        };
        copy.restore.play(&[], 1)?;
        Ok(copy.run)
    }

    /// Discards all copies, since the states now belong to another sequence.
    pub fn clear(&mut self) {
        self.copies.iter_mut().for_each(|copy| copy.run = None);
    }
}

impl StateCopy {
    fn new(states: &[&Array], executor: &'static dyn Executor) -> Result<StateCopy, Error> {
        let spare: Vec<Array> = states
            .iter()
            .map(|state| Array::state(state.device(), state.dtype(), state.shape()))
            .collect::<Result<_, _>>()?;
        let spare: Vec<&Array> = spare.iter().collect();
        Ok(StateCopy {
            save: copying(states, &spare, executor)?,
            restore: copying(&spare, states, executor)?,
            run: None,
        })
    }
}

/// Returns the program that copies each state into another.
fn copying(from: &[&Array], to: &[&Array], executor: &'static dyn Executor) -> Result<Tape, Error> {
    let copied: Vec<Array> = from
        .iter()
        .zip(to)
        .map(|(from, to)| {
            let rows = Array::arange(from.device(), DType::I32, from.dim(0));
            to.write_rows(from, &rows)
        })
        .collect();
    Function::trace(&copied.iter().collect::<Vec<_>>())?.tape(executor)
}
