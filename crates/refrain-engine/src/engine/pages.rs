//! Pages of the KV cache: who holds which, and what requests that are over left in them.

use std::collections::HashMap;

/// No page of a prefix: where prefixes begin.
const ROOT: u64 = 0;

/// Pages that requests share. Each is free, or held by requests, or by the tree of known prefixes, or by both.
///
/// The tree has a node for each page whose tokens are known together with all that stand before them, so a request that
/// begins alike reads what another has computed. Nodes that no request holds are given up, least recently used first,
/// once pages are wanted. Tokens are compared, no hash of them is trusted.
pub(super) struct PagePool {
    /// Positions of a page.
    size: usize,
    free: Vec<u32>,
    /// Holders of each page, the tree counted as one.
    holders: Vec<u32>,
    /// `None`: nothing is remembered.
    tree: Option<PrefixTree>,
}

#[derive(Default)]
struct PrefixTree {
    /// By parent and tokens.
    numbers: HashMap<(u64, Box<[u32]>), u64>,
    nodes: HashMap<u64, PrefixNode>,
    last_number: u64,
    clock: u64,
}

struct PrefixNode {
    page: u32,
    parent: u64,
    tokens: Box<[u32]>,
    children: usize,
    last_used: u64,
}

impl PagePool {
    /// So many free pages of `size` positions; `remembers`: prefixes are kept.
    pub fn new(count: usize, size: usize, remembers: bool) -> PagePool {
        PagePool {
            size,
            free: (0..count as u32).rev().collect(),
            holders: vec![0; count],
            tree: remembers.then(PrefixTree::default),
        }
    }

    /// All pages.
    pub fn count(&self) -> usize {
        self.holders.len()
    }

    /// Pages that hold so many positions.
    pub fn pages_of(&self, positions: usize) -> usize {
        positions.div_ceil(self.size)
    }

    /// Pages that [`PagePool::take`] can give.
    pub fn available(&self) -> usize {
        let held_by_tree_alone = |node: &&PrefixNode| self.holders[node.page as usize] == 1;
        let tree = self.tree.iter().flat_map(|tree| tree.nodes.values());
        self.free.len() + tree.filter(held_by_tree_alone).count()
    }

    /// A page for its first holder, forgetting a prefix if none is free.
    pub fn take(&mut self) -> Option<u32> {
        let page = match self.free.pop() {
            Some(page) => page,
            None => self.forget_one()?,
        };
        self.holders[page as usize] = 1;
        Some(page)
    }

    /// Lets go of pages.
    pub fn give_back(&mut self, pages: &[u32]) {
        for &page in pages {
            let holders = &mut self.holders[page as usize];
            *holders -= 1;
            if *holders == 0 {
                self.free.push(page);
            }
        }
    }

    /// The pages of the longest known beginning of `tokens`, which the caller then holds too.
    pub fn known(&mut self, tokens: &[u32]) -> Vec<u32> {
        let Some(tree) = &mut self.tree else {
            return vec![];
        };
        tree.clock += 1;
        let (mut pages, mut parent) = (vec![], ROOT);
        for tokens in tokens.chunks_exact(self.size) {
            let Some(&number) = tree.numbers.get(&(parent, tokens.into())) else {
                break;
            };
            let node = tree.nodes.get_mut(&number).expect("numbered");
            node.last_used = tree.clock;
            self.holders[node.page as usize] += 1;
            pages.push(node.page);
            parent = number;
        }
        pages
    }

    /// Remembers what whole pages of `tokens` hold, from the first on.
    pub fn remember(&mut self, tokens: &[u32], pages: &[u32]) {
        let Some(tree) = &mut self.tree else { return };
        tree.clock += 1;
        let mut parent = ROOT;
        for (tokens, &page) in tokens.chunks_exact(self.size).zip(pages) {
            parent = match tree.numbers.get(&(parent, tokens.into())) {
                Some(&known) => known,
                None => {
                    self.holders[page as usize] += 1;
                    tree.add(parent, tokens, page)
                }
            };
            let node = tree.nodes.get_mut(&parent).expect("numbered");
            node.last_used = tree.clock;
        }
    }

    /// Forgets the page that was used least recently of those that nobody holds and nothing follows.
    fn forget_one(&mut self) -> Option<u32> {
        let tree = self.tree.as_mut()?;
        let holders = &self.holders;
        let leaves = tree.nodes.iter().filter(|(_, node)| node.children == 0);
        let forgettable = leaves.filter(|(_, node)| holders[node.page as usize] == 1);
        let (&number, _) = forgettable.min_by_key(|(_, node)| node.last_used)?;
        Some(tree.remove(number))
    }
}

impl PrefixTree {
    fn add(&mut self, parent: u64, tokens: &[u32], page: u32) -> u64 {
        self.last_number += 1;
        if let Some(parent) = self.nodes.get_mut(&parent) {
            parent.children += 1;
        }
        let node = PrefixNode {
            page,
            parent,
            tokens: tokens.into(),
            children: 0,
            last_used: self.clock,
        };
        self.numbers.insert((parent, tokens.into()), self.last_number);
        self.nodes.insert(self.last_number, node);
        self.last_number
    }

    fn remove(&mut self, number: u64) -> u32 {
        let node = self.nodes.remove(&number).expect("a node");
        if let Some(parent) = self.nodes.get_mut(&node.parent) {
            parent.children -= 1;
        }
        self.numbers.remove(&(node.parent, node.tokens));
        node.page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(pool: &mut PagePool, count: usize) -> Vec<u32> {
        (0..count).map(|_| pool.take().expect("a page")).collect()
    }

    #[test]
    fn a_page_has_one_holder_at_a_time_unless_it_is_known() {
        let mut pool = PagePool::new(3, 2, true);
        let pages = taken(&mut pool, 3);
        assert_eq!((pages.clone(), pool.take(), pool.available()), (vec![0, 1, 2], None, 0));
        pool.give_back(&pages[1..]);
        assert_eq!((pool.available(), taken(&mut pool, 2).len()), (2, 2));
    }

    #[test]
    fn a_known_beginning_is_shared_page_by_page() {
        let mut pool = PagePool::new(4, 2, true);
        let pages = taken(&mut pool, 2);
        pool.remember(&[1, 2, 3, 4, 5], &pages);
        assert_eq!(pool.known(&[1, 2, 3, 4, 9, 9]), pages);
        assert_eq!(pool.known(&[1, 2, 9, 9]), pages[..1]);
        assert!(
            pool.known(&[3, 4, 1, 2]).is_empty(),
            "the same tokens behind others are others"
        );
        assert!(pool.known(&[1]).is_empty(), "half a page is none");
    }

    #[test]
    fn what_was_used_least_recently_goes_first_and_nothing_that_is_held() {
        let mut pool = PagePool::new(3, 1, true);
        let pages = taken(&mut pool, 3);
        pool.remember(&[1, 2], &pages[..2]);
        pool.remember(&[7], &pages[2..]);
        pool.give_back(&pages);
        assert_eq!(pool.available(), 3);
        let held = pool.known(&[7]);
        assert_eq!(pool.available(), 2);
        assert_eq!(pool.take(), Some(1), "the end of a prefix before its beginning");
        assert_eq!(pool.take(), Some(0));
        assert_eq!(pool.take(), None);
        pool.give_back(&held);
        assert_eq!(pool.take(), Some(2));
        assert!(pool.known(&[7]).is_empty());
    }

    #[test]
    fn without_memory_nothing_is_known() {
        let mut pool = PagePool::new(2, 1, false);
        let pages = taken(&mut pool, 1);
        pool.remember(&[1], &pages);
        pool.give_back(&pages);
        assert_eq!((pool.known(&[1]), pool.available()), (vec![], 2));
    }
}
