//! What the simulated device computes: keys and values in pages, recurrent states, and tokens that are hashes of both.

use refrain_lm::sample::FINISHED;

use super::SimulatedRunner;
use super::hashes::{advance, cell, summary, token_of};
use crate::engine::PAGE_SIZE;
use crate::engine::runner::NewPages;
use crate::engine::speculation::Draft;
use crate::prefill::PrefillPiece;

impl SimulatedRunner {
    fn cell_at(&mut self, table: &[u32], slot: usize, position: usize) -> &mut u64 {
        let page = table[slot * self.simulation.pages_each + position / PAGE_SIZE] as usize;
        &mut self.cells[page * PAGE_SIZE + position % PAGE_SIZE]
    }

    /// Computes a token into its page and the recurrent state.
    pub(super) fn compute(&mut self, table: &[u32], slot: usize, token: u32, position: usize) {
        *self.cell_at(table, slot, position) = cell(token, position);
        self.states[slot] = advance(self.states[slot], token, position);
    }

    pub(super) fn hash(&mut self, table: &[u32], slot: usize, position: usize) -> u64 {
        let is_recurrent = self.simulation.checkpoints.is_some();
        let state = if is_recurrent { self.states[slot] } else { 0 };
        let cells: Vec<u64> = (0..=position)
            .map(|position| *self.cell_at(table, slot, position))
            .collect();
        summary(cells.into_iter(), state)
    }

    pub(super) fn write_pages(&mut self, pages: NewPages) {
        for (at, words) in pages {
            self.table[at..][..words.len()].copy_from_slice(&words);
        }
    }

    /// Computes pieces of prompts. Returns the number of their tokens.
    pub(super) fn run_pieces(&mut self, pieces: &[PrefillPiece<'_>], table: &[u32]) -> usize {
        let mut tokens = 0;
        for piece in pieces {
            for (&token, position) in piece.tokens.iter().zip(piece.position..) {
                self.compute(table, piece.sequence, token, position);
            }
            tokens += piece.tokens.len();
        }
        (self.prefilled, self.chunks) = (self.prefilled + tokens, self.chunks + 1);
        tokens
    }

    /// Computes the token of a row and a draft behind it, and samples after each while the draft is right. The recurrent
    /// state gets only the tokens after which it samples.
    pub(super) fn verify_row(&mut self, row: usize, draft: &Draft, outputs: &mut [Vec<u32>]) {
        let table = self.table.clone();
        let (Some((slot, _)), Some(decoding)) = (self.rows[row], &self.decoding[row]) else {
            return;
        };
        let first = decoding.position;
        let tokens = [&[decoding.token], &draft.tokens[..]].concat();
        for (&token, position) in tokens.iter().zip(first..) {
            *self.cell_at(&table, slot, position) = cell(token, position);
        }
        for (index, (&token, output)) in tokens.iter().zip(outputs).enumerate() {
            self.states[slot] = advance(self.states[slot], token, first + index);
            self.hashes[row] = Some(self.hash(&table, slot, first + index));
            output[row] = self.sample_row(row);
            if self.decoding[row].is_none() || !draft.accepts(index, output[row]) {
                break;
            }
        }
    }

    pub(super) fn run_model(&mut self) {
        let table = self.table.clone();
        for row in 0..self.rows.len() {
            self.hashes[row] = None;
            if let (Some((slot, _)), Some(decoding)) = (self.rows[row], &self.decoding[row]) {
                let (token, position) = (decoding.token, decoding.position);
                self.compute(&table, slot, token, position);
                self.hashes[row] = Some(self.hash(&table, slot, position));
            }
        }
    }

    pub(super) fn run_sampling(&mut self) {
        let output = (0..self.rows.len()).map(|row| self.sample_row(row)).collect();
        self.outputs.push(output);
    }

    /// Samples the next token of a row and advances to it.
    fn sample_row(&mut self, row: usize) -> u32 {
        let Some(mut decoding) = self.decoding[row].take() else {
            return FINISHED;
        };
        let hash = self.hashes[row].expect("the model ran for this row");
        let next = token_of(hash, self.masks[row].as_deref());
        decoding.token = next;
        decoding.position += 1;
        if decoding.position < decoding.last_position && !decoding.stop_ids.contains(&next) {
            self.decoding[row] = Some(decoding);
        }
        next
    }
}
