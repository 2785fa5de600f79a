//! Copies of recurrent states, for going back to a token that the device has already passed.
//!
//! Keys and values are kept by position, so forgetting the later ones takes nothing. What a recurrence
//! has made of a token cannot be undone: each submit therefore begins by copying such states, and
//! whoever must go back takes the last copy before that point and runs the tokens since once more.

use refrain::{Array, DType, Error, Executor, Function, Tape};
use refrain_models::LayerState;

/// Copies at hand: more than there are submits in flight.
const COPIES: usize = 3;

/// The copies of one session.
pub(crate) struct Rollback {
    copies: Vec<StateCopy>,
    next: usize,
}

struct StateCopy {
    save: Tape,
    restore: Tape,
    /// The run before which it was made.
    run: Option<u64>,
}

impl Rollback {
    /// Memory for copies of the recurrent states; `None` for a model without.
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

    /// The tape that makes the next copy. Whoever plays it says with [`Rollback::saved`] what became of it.
    pub fn save(&self) -> &Tape {
        &self.copies[self.next].save
    }

    /// Notes that the next copy was made of the states as they were before run number `run`; `None`: it may or
    /// may not have been made.
    pub fn saved(&mut self, run: Option<u64>) {
        self.copies[self.next].run = run;
        if run.is_some() {
            self.next = (self.next + 1) % self.copies.len();
        }
    }

    /// Brings back the last copy made before or at run number `run`; the run before which it was made.
    pub fn restore(&mut self, run: u64) -> Result<Option<u64>, Error> {
        let before = |copy: &&StateCopy| copy.run.is_some_and(|made| made <= run);
        let Some(copy) = self.copies.iter().filter(before).max_by_key(|copy| copy.run) else {
            return Ok(None);
        };
        copy.restore.play(&[], 1)?;
        Ok(copy.run)
    }

    /// Forgets all copies: the states are another sequence's from here on.
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

/// The program that copies each state into another.
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
