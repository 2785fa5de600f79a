//! Pages that tokens do not fill, and pages of which only the first tokens are shared. They are copied before a request
//! goes on in them: others may read them still.

use super::prefix_tree::PrefixTree;
use super::{NodeId, PagePool};

/// Tokens from which on a part of a page is worth a copy.
const MIN_TOKENS: usize = 8;

impl PagePool {
    /// Caches the end of `tokens` that does not fill a page, unless it is short. `pages` are those of all tokens, and `after`
    /// is what [`PagePool::insert`] returned for them. Shorter parts that it begins with are not needed any more.
    pub fn insert_part(&mut self, tokens: &[u32], pages: &[u32], after: Option<NodeId>) {
        let full = tokens.len() / self.size;
        let part = &tokens[full * self.size..];
        // Recurrent states are saved where pages end.
        let (Some(tree), Some(&page), None) = (&mut self.tree, pages.get(full), &self.free_checkpoints) else {
            return;
        };
        let after = after.unwrap_or(PrefixTree::ROOT);
        if part.len() < MIN_TOKENS || tree.has(page) {
            return;
        }
        if let Some((node, shared)) = tree.closest_child(after, part) {
            if shared == part.len() {
                tree.touch(&[node]);
                return;
            }
            if shared == tree.tokens(node).len() && !tree.is_pinned(node) {
                self.free.push(tree.remove(node).0);
            }
        }
        tree.add(after, part, page, self.holders[page as usize] > 0);
        self.version += 1;
    }

    /// Finds a page after `last`, or a first page, that begins with many of `tokens`, and holds it. Also returns how many of
    /// them it begins with.
    pub(super) fn hold_part(&mut self, last: Option<NodeId>, tokens: &[u32]) -> Option<(u32, usize)> {
        let (Some(tree), None) = (&mut self.tree, &self.free_checkpoints) else {
            return None;
        };
        let (node, shared) = tree.closest_child(last.unwrap_or(PrefixTree::ROOT), tokens)?;
        if shared < MIN_TOKENS {
            return None;
        }
        tree.touch(&[node]);
        let page = tree.page(node);
        self.holders[page as usize] += 1;
        tree.set_held(page, true);
        Some((page, shared))
    }
}
