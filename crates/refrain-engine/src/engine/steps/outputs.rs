//! What runs of the step in use leave for the host.

use refrain_lm::Logprobs;

use super::DecodeSteps;
use crate::Error;

impl DecodeSteps {
    /// Returns output number `output` for a row, once its run is over.
    ///
    /// # Errors
    /// If the device fails.
    pub fn reported(&mut self, output: u64, row: usize) -> Result<u32, Error> {
        Ok(self.step().reported(output, row)?)
    }

    /// Returns the tokens that the multi-token prediction head drafted for a row in the last run, once it is over; none if
    /// the step in use drafts none.
    ///
    /// # Errors
    /// If the device fails.
    pub fn drafted(&mut self, row: usize) -> Result<Vec<u32>, Error> {
        Ok(self.step().drafted(row)?)
    }

    /// Returns the log-probabilities of the token of output number `output` for a row, once its run is over. `None` if
    /// the step in use stores none.
    ///
    /// # Errors
    /// If the device fails.
    pub fn logprobs(&mut self, output: u64, row: usize) -> Result<Option<Logprobs>, Error> {
        let ring = self.step().control.logprobs.clone();
        let ring = ring.filter(|_| self.extras.logprobs);
        Ok(ring.map(|ring| ring.read(row, output)).transpose()?)
    }
}
