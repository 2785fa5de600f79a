//! Copies of cached prefixes on the host, and prefixes that come from there.

use refrain_formats::Plane;

use super::{Batcher, PAGE_SIZE, Runner};
use crate::Error;

impl<R: Runner> Batcher<R> {
    /// Reads what is cached of `tokens`: the planes of keys and values have a row for each token that is. Planes of recurrent
    /// states after them follow, if the model has such states. Returns no planes if nothing is cached.
    ///
    /// # Errors
    /// If the device fails.
    pub fn read_prefix(&mut self, tokens: &[u32]) -> Result<Vec<Plane>, Error> {
        // What they computed is cached then.
        self.drop_cancelled();
        let prefix = self.pool.lookup(tokens);
        let mut pages: Vec<(u32, usize)> = prefix.pages.iter().map(|&page| (page, PAGE_SIZE)).collect();
        pages.extend(prefix.part);
        let planes = self.read_pages(&pages, prefix.checkpoint);
        let held: Vec<u32> = pages.iter().map(|&(page, _)| page).collect();
        self.pool.give_back(&held);
        planes
    }

    /// Reads the first rows of each page, and the recurrent states of a checkpoint.
    fn read_pages(&mut self, pages: &[(u32, usize)], checkpoint: Option<u32>) -> Result<Vec<Plane>, Error> {
        let mut planes: Vec<Plane> = vec![];
        for &(page, rows) in pages {
            let mut read = self.runner.read_page(page)?;
            for plane in &mut read {
                plane.bytes.truncate(plane.bytes.len() / PAGE_SIZE * rows);
            }
            if planes.is_empty() {
                planes = read;
                continue;
            }
            for (all, plane) in planes.iter_mut().zip(read) {
                all.bytes.extend(plane.bytes);
            }
        }
        if let Some(checkpoint) = checkpoint {
            planes.extend(self.runner.read_states(checkpoint)?);
        }
        Ok(planes)
    }

    /// Caches planes that [`Batcher::read_prefix`] returned for `tokens`, as far as there are pages for them. Returns whether
    /// they fit the model; if not, nothing is cached.
    ///
    /// # Errors
    /// If the device fails.
    pub fn write_prefix(&mut self, tokens: &[u32], planes: &[Plane]) -> Result<bool, Error> {
        if planes.is_empty() {
            return Ok(true);
        }
        let shapes = self.runner.read_page(0)?;
        let Some((caches, states)) = planes.split_at_checked(shapes.len()) else {
            return Ok(false);
        };
        let row_bytes: Vec<usize> = shapes.iter().map(|plane| plane.bytes.len() / PAGE_SIZE).collect();
        let count = caches
            .first()
            .map_or(0, |plane| plane.bytes.len() / row_bytes[0].max(1));
        // A file may claim anything.
        let fit = caches
            .iter()
            .zip(&row_bytes)
            .all(|(plane, row)| plane.bytes.len() == count * row);
        let is_recurrent = self.runner.is_recurrent();
        if !fit || !(1..=tokens.len()).contains(&count) || is_recurrent == states.is_empty() {
            return Ok(false);
        }
        // States can be restored only where a page ends.
        if is_recurrent && !count.is_multiple_of(PAGE_SIZE) {
            return Ok(false);
        }
        let mut pages = vec![];
        let checkpoint = self.pool.reserve_checkpoint();
        let written = self.write_pages(count, caches, &row_bytes, &mut pages).and_then(|fit| {
            Ok(fit && checkpoint.map_or(Ok(true), |checkpoint| self.runner.write_states(checkpoint, states))?)
        });
        let mut last = None;
        if matches!(written, Ok(true)) {
            let tokens = &tokens[..count.min(pages.len() * PAGE_SIZE)];
            let node = self.pool.insert(tokens, &pages, None);
            self.pool.insert_part(tokens, &pages, node);
            last = node.filter(|_| tokens.len() == count);
        }
        match (last, checkpoint) {
            (Some(last), Some(checkpoint)) => self.pool.move_checkpoint(None, last, checkpoint),
            (None, Some(checkpoint)) => self.pool.return_checkpoint(checkpoint),
            (_, None) => {}
        }
        self.pool.give_back(&pages);
        written
    }

    /// Writes rows of planes into new pages, as far as there are any. Returns whether they fit.
    fn write_pages(
        &mut self,
        count: usize,
        planes: &[Plane],
        row_bytes: &[usize],
        pages: &mut Vec<u32>,
    ) -> Result<bool, Error> {
        for first in (0..count).step_by(PAGE_SIZE) {
            let Some(page) = self.pool.take() else { break };
            pages.push(page);
            let rows = first..count.min(first + PAGE_SIZE);
            let of_page = |(plane, row): (&Plane, &usize)| {
                let mut bytes = plane.bytes[rows.start * row..rows.end * row].to_vec();
                bytes.resize(PAGE_SIZE * row, 0);
                Plane {
                    encoding: plane.encoding,
                    row: plane.row.clone(),
                    bytes,
                }
            };
            let of_page: Vec<Plane> = planes.iter().zip(row_bytes).map(of_page).collect();
            if !self.runner.write_page(page, &of_page)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
