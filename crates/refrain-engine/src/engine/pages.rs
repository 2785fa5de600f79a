//! Pages of the KV cache: which requests hold which page, and which prefixes the pages of finished requests keep.

mod parts;
mod prefix_tree;
mod stored;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

pub(super) use prefix_tree::NodeId;
use prefix_tree::PrefixTree;

/// The pages of the KV cache. Each is free, or held by requests, by the tree of cached prefixes, or by both.
///
/// The tree has a node for each page whose tokens are known together with all tokens before them, so that a request
/// with the same prefix reads what another request has computed. Pages that only the tree holds are evicted, least
/// recently used first, once no page is free. Tokens themselves are compared, not hashes of them.
///
/// All operations take time in proportion to the pages that they are given, whatever the size of the pool.
#[derive(Clone)]
pub(super) struct PagePool {
    /// Positions per page.
    size: usize,
    free: Vec<u32>,
    /// Number of requests that hold each page.
    holders: Vec<u32>,
    /// `None` if no prefixes are cached.
    tree: Option<PrefixTree>,
    /// Free checkpoints of recurrent states; `None` for a model without such states.
    free_checkpoints: Option<Vec<u32>>,
    /// Pages that are new in the tree, or whose states are; `None` if nobody asks.
    unstored: Option<VecDeque<NodeId>>,
    /// Changes whenever more pages may be available, or more prefixes known.
    version: u64,
}

/// The longest cached prefix of some tokens.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct CachedPrefix {
    /// Pages that a request can continue after. The caller of [`PagePool::lookup`] holds them.
    pub pages: Vec<u32>,
    /// The checkpoint of the recurrent states after these pages, if the model has such states and there are pages.
    pub checkpoint: Option<u32>,
    /// Number of pages whose tokens are known, with or without a checkpoint.
    pub length: usize,
    /// A page that begins with further tokens, and how many of them. A request may copy it. The caller holds it, too.
    pub part: Option<(u32, usize)>,
}

impl PagePool {
    /// Creates a pool of `count` free pages of `size` positions each.
    pub fn new(count: usize, size: usize, caches_prefixes: bool) -> PagePool {
        PagePool {
            size,
            free: (0..count as u32).rev().collect(),
            holders: vec![0; count],
            tree: caches_prefixes.then(|| PrefixTree::new(count)),
            free_checkpoints: None,
            unstored: None,
            version: 0,
        }
    }

    /// Makes prefixes usable only where recurrent states were saved, with room for `count` checkpoints of them.
    pub fn with_checkpoints(self, count: usize) -> PagePool {
        PagePool {
            free_checkpoints: Some((0..count as u32).rev().collect()),
            ..self
        }
    }

    /// Returns the number of all pages.
    pub fn count(&self) -> usize {
        self.holders.len()
    }

    /// Whether prefixes are cached.
    pub fn caches_prefixes(&self) -> bool {
        self.tree.is_some()
    }

    /// Returns the number of pages that hold `positions` positions.
    pub fn pages_for(&self, positions: usize) -> usize {
        positions.div_ceil(self.size)
    }

    /// Returns how many pages [`PagePool::take`] can return.
    pub fn available(&self) -> usize {
        self.free.len() + self.tree.as_ref().map_or(0, PrefixTree::evictable)
    }

    /// Returns a number that changes whenever a request that did not fit may fit.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns a page for its first holder; evicts a cached one if none is free.
    pub fn take(&mut self) -> Option<u32> {
        let page = match self.free.pop() {
            Some(page) => page,
            None => self.evict()?,
        };
        self.holders[page as usize] = 1;
        Some(page)
    }

    /// Releases pages of a request.
    pub fn give_back(&mut self, pages: &[u32]) {
        self.version += 1;
        // From the end, so that no page outlives what follows it.
        for &page in pages.iter().rev() {
            let holders = &mut self.holders[page as usize];
            *holders -= 1;
            if *holders > 0 {
                continue;
            }
            match &mut self.tree {
                Some(tree) if tree.has(page) => tree.set_held(page, false),
                _ => self.free.push(page),
            }
        }
    }

    /// Returns the longest cached prefix of `tokens` that a request can continue after.
    pub fn lookup(&mut self, tokens: &[u32]) -> CachedPrefix {
        let Some(tree) = &mut self.tree else {
            return CachedPrefix::default();
        };
        let path = tree.path(tokens, self.size);
        let mut prefix = CachedPrefix {
            length: path.len(),
            ..CachedPrefix::default()
        };
        tree.touch(&path);
        let usable = match self.free_checkpoints {
            None => path.len(),
            Some(_) => {
                let last = path.iter().rposition(|&node| tree.checkpoint(node).is_some());
                prefix.checkpoint = last.and_then(|last| tree.checkpoint(path[last]));
                last.map_or(0, |last| last + 1)
            }
        };
        for &node in &path[..usable] {
            let page = tree.page(node);
            prefix.pages.push(page);
            self.holders[page as usize] += 1;
            tree.set_held(page, true);
        }
        prefix.part = self.hold_part(path.last().copied(), &tokens[path.len() * self.size..]);
        prefix
    }

    /// Saves the recurrent states after `tokens`, which fill cached pages, with `save`, unless they are saved already.
    /// If no checkpoint is free, the least recently used one is overwritten.
    ///
    /// # Errors
    /// As `save`.
    pub fn save_states<E>(&mut self, tokens: &[u32], save: impl FnOnce(u32) -> Result<(), E>) -> Result<(), E> {
        let (Some(tree), Some(free)) = (&mut self.tree, &mut self.free_checkpoints) else {
            return Ok(());
        };
        let path = tree.path(tokens, self.size);
        let Some(&node) = path.last().filter(|_| path.len() * self.size == tokens.len()) else {
            return Ok(());
        };
        if tree.checkpoint(node).is_some() {
            return Ok(());
        }
        let Some(checkpoint) = free.pop().or_else(|| tree.release_checkpoint()) else {
            return Ok(());
        };
        if let Err(error) = save(checkpoint) {
            free.push(checkpoint);
            return Err(error);
        }
        tree.set_checkpoint(node, checkpoint);
        self.note_unstored(node);
        self.version += 1;
        Ok(())
    }

    /// Whether recurrent states are saved.
    pub fn saves_states(&self) -> bool {
        self.free_checkpoints.is_some()
    }

    /// Takes a checkpoint for states that are found later, by [`PagePool::move_checkpoint`]. If none is free, takes the least
    /// recently used one.
    pub fn reserve_checkpoint(&mut self) -> Option<u32> {
        let (tree, free) = (self.tree.as_mut()?, self.free_checkpoints.as_mut()?);
        free.pop().or_else(|| tree.release_checkpoint())
    }

    /// Returns a checkpoint that was reserved.
    pub fn return_checkpoint(&mut self, checkpoint: u32) {
        if let Some(free) = &mut self.free_checkpoints {
            free.push(checkpoint);
        }
    }

    /// Makes reserved `checkpoint` that of the states after page `to`. Releases the one of `before`, which `to` continues,
    /// unless others continue `before` too.
    pub fn move_checkpoint(&mut self, before: Option<NodeId>, to: NodeId, checkpoint: u32) {
        let (Some(tree), Some(free)) = (&mut self.tree, &mut self.free_checkpoints) else {
            return;
        };
        let mut is_new = false;
        if tree.checkpoint(to).is_some() {
            free.push(checkpoint);
        } else {
            tree.set_checkpoint(to, checkpoint);
            is_new = true;
        }
        if let Some(before) = before.filter(|before| *before != to && tree.has_one_child(*before)) {
            free.extend(tree.take_checkpoint(before));
        }
        if is_new {
            self.note_unstored(to);
        }
        self.version += 1;
    }

    /// Caches what full pages of `tokens` hold, the first of them included. `from` is what the last call for a prefix of
    /// these tokens returned, with the number of its pages: only later pages are looked at then.
    pub fn insert(&mut self, tokens: &[u32], pages: &[u32], from: Option<NodeId>) -> Option<NodeId> {
        let tree = self.tree.as_mut()?;
        let (mut node, known) = match from {
            Some(from) if tree.contains(from) => (from, tree.depth(from)),
            _ => (PrefixTree::ROOT, 0),
        };
        let mut new = vec![];
        for (tokens, &page) in tokens.chunks_exact(self.size).zip(pages).skip(known) {
            node = match tree.child(node, tokens) {
                Some(known) => known,
                None => {
                    new.push(tree.add(node, tokens, page, self.holders[page as usize] > 0));
                    new[new.len() - 1]
                }
            };
            tree.touch(&[node]);
        }
        new.into_iter().for_each(|node| self.note_unstored(node));
        self.version += 1;
        Some(node)
    }

    /// Evicts the least recently used page that no request needs.
    fn evict(&mut self) -> Option<u32> {
        let (page, checkpoint) = self.tree.as_mut()?.evict()?;
        if let Some(free) = &mut self.free_checkpoints {
            free.extend(checkpoint);
        }
        Some(page)
    }
}
