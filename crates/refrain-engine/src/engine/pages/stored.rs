//! What of the cached prefixes is on disk, and what comes from there.

use std::collections::VecDeque;

use super::prefix_tree::PrefixTree;
use super::{NodeId, PagePool};

/// Pages that are noted per page of the pool, at most: those that were evicted meanwhile are removed then.
const MAX_NOTED_PER_PAGE: usize = 4;

impl PagePool {
    /// Notes new pages and states from now on, for [`PagePool::next_unstored`].
    pub fn record_unstored(&mut self) {
        self.unstored = self.tree.as_ref().map(|_| VecDeque::new());
    }

    /// Whether [`PagePool::next_unstored`] returns a page.
    pub fn has_unstored(&self) -> bool {
        self.unstored.as_ref().is_some_and(|unstored| !unstored.is_empty())
    }

    /// Returns a page that is new, or whose states are. It may be evicted already.
    pub fn next_unstored(&mut self) -> Option<NodeId> {
        self.unstored.as_mut()?.pop_front()
    }

    /// Returns all tokens up to the end of a page, the page, and the checkpoint after it, unless it was evicted.
    pub fn contents(&self, node: NodeId) -> Option<(Vec<u32>, u32, Option<u32>)> {
        let tree = self.tree.as_ref().filter(|tree| tree.contains(node))?;
        Some((tree.prefix(node), tree.page(node), tree.checkpoint(node)))
    }

    /// Returns how many of `tokens` are cached, after how many of them a request can continue, and the last cached page.
    pub fn known(&self, tokens: &[u32]) -> (usize, usize, Option<NodeId>) {
        let Some(tree) = &self.tree else { return (0, 0, None) };
        let path = tree.path(tokens, self.size);
        let usable = match self.free_checkpoints {
            None => path.len(),
            Some(_) => {
                let last = path.iter().rposition(|&node| tree.checkpoint(node).is_some());
                last.map_or(0, |last| last + 1)
            }
        };
        (path.len() * self.size, usable * self.size, path.last().copied())
    }

    /// Caches a page of `tokens` after page `before`, or as a first page. Returns `None` if `before` was evicted.
    pub fn append(&mut self, before: Option<NodeId>, tokens: &[u32], page: u32) -> Option<NodeId> {
        let tree = self.tree.as_mut()?;
        let before = match before {
            Some(before) if !tree.contains(before) => return None,
            Some(before) => before,
            None => PrefixTree::ROOT,
        };
        let held = self.holders[page as usize] > 0;
        let node = match tree.child(before, tokens) {
            Some(known) => known,
            None => tree.add(before, tokens, page, held),
        };
        tree.touch(&[node]);
        self.version += 1;
        Some(node)
    }

    /// Notes that a page is new, or that its states are.
    pub(super) fn note_unstored(&mut self, node: NodeId) {
        let (Some(unstored), Some(tree)) = (&mut self.unstored, &self.tree) else {
            return;
        };
        if unstored.len() >= MAX_NOTED_PER_PAGE * self.holders.len() {
            unstored.retain(|&node| tree.contains(node));
        }
        unstored.push_back(node);
    }
}
