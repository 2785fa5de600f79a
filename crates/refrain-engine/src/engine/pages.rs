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
    /// Of a model whose states have to be remembered too: the copies of them that nobody has.
    free_copies: Option<Vec<u32>>,
}

/// What is known of the beginning of some tokens.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct KnownPrefix {
    /// The pages that a request can go on behind, which the asker then holds too.
    pub pages: Vec<u32>,
    /// The copy of the states behind them; `None` where there are no pages, or keys and values are all there is.
    pub copy: Option<u32>,
    /// Pages whose tokens are known, with a copy behind them or not.
    pub length: usize,
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
    /// The copy of the states as they were behind it.
    copy: Option<u32>,
}

impl PagePool {
    /// So many free pages of `size` positions; `keeps_prefixes`: prefixes are kept.
    pub fn new(count: usize, size: usize, keeps_prefixes: bool) -> PagePool {
        PagePool {
            size,
            free: (0..count as u32).rev().collect(),
            holders: vec![0; count],
            tree: keeps_prefixes.then(PrefixTree::default),
            free_copies: None,
        }
    }

    /// The same for a model of which a request needs the states too, with room for so many copies of them.
    pub fn with_copies(self, count: usize) -> PagePool {
        PagePool {
            free_copies: Some((0..count as u32).rev().collect()),
            ..self
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

    /// The longest known beginning of `tokens` that a request can go on behind.
    pub fn known(&mut self, tokens: &[u32]) -> KnownPrefix {
        let Some(tree) = &mut self.tree else {
            return KnownPrefix::default();
        };
        tree.clock += 1;
        let (mut known, mut pages) = (KnownPrefix::default(), vec![]);
        for number in tree.path(tokens, self.size) {
            let node = tree.nodes.get_mut(&number).expect("numbered");
            node.last_used = tree.clock;
            pages.push(node.page);
            if self.free_copies.is_none() || node.copy.is_some() {
                known.copy = node.copy;
                known.pages.append(&mut pages);
            }
            known.length += 1;
        }
        for &page in &known.pages {
            self.holders[page as usize] += 1;
        }
        known
    }

    /// Has a copy made of the states behind `tokens`, which are whole pages that are remembered, unless there is one; the
    /// one that was used least recently gives its place.
    pub fn keep_states<E>(&mut self, tokens: &[u32], copy: impl FnOnce(u32) -> Result<(), E>) -> Result<(), E> {
        let (Some(tree), Some(free)) = (&mut self.tree, &mut self.free_copies) else {
            return Ok(());
        };
        let path = tree.path(tokens, self.size);
        let Some(&number) = path.last().filter(|_| path.len() * self.size == tokens.len()) else {
            return Ok(());
        };
        if tree.nodes[&number].copy.is_some() {
            return Ok(());
        }
        let Some(place) = free.pop().or_else(|| tree.give_up_copy()) else {
            return Ok(());
        };
        match copy(place) {
            Ok(()) => tree.nodes.get_mut(&number).expect("numbered").copy = Some(place),
            Err(error) => {
                free.push(place);
                return Err(error);
            }
        }
        Ok(())
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
        let node = tree.remove(number);
        if let Some(free) = &mut self.free_copies {
            free.extend(node.copy);
        }
        Some(node.page)
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
            copy: None,
        };
        self.numbers.insert((parent, tokens.into()), self.last_number);
        self.nodes.insert(self.last_number, node);
        self.last_number
    }

    /// The nodes of the known whole pages that `tokens` begin with.
    fn path(&self, tokens: &[u32], size: usize) -> Vec<u64> {
        let mut path = vec![];
        for tokens in tokens.chunks_exact(size) {
            let parent = path.last().copied().unwrap_or(ROOT);
            match self.numbers.get(&(parent, tokens.into())) {
                Some(&number) => path.push(number),
                None => break,
            }
        }
        path
    }

    /// The copy that was used least recently, which its node then has no more.
    fn give_up_copy(&mut self) -> Option<u32> {
        let with_copies = self.nodes.values_mut().filter(|node| node.copy.is_some());
        with_copies.min_by_key(|node| node.last_used)?.copy.take()
    }

    fn remove(&mut self, number: u64) -> PrefixNode {
        let node = self.nodes.remove(&number).expect("a node");
        if let Some(parent) = self.nodes.get_mut(&node.parent) {
            parent.children -= 1;
        }
        self.numbers.remove(&(node.parent, node.tokens.clone()));
        node
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(pool: &mut PagePool, count: usize) -> Vec<u32> {
        (0..count).map(|_| pool.take().expect("a page")).collect()
    }

    #[test]
    fn pages_have_one_holder_unless_they_are_cached() {
        let mut pool = PagePool::new(3, 2, true);
        let pages = taken(&mut pool, 3);
        assert_eq!((pages.clone(), pool.take(), pool.available()), (vec![0, 1, 2], None, 0));
        pool.give_back(&pages[1..]);
        assert_eq!((pool.available(), taken(&mut pool, 2).len()), (2, 2));
    }

    #[test]
    fn shares_prefixes_page_by_page() {
        let mut pool = PagePool::new(4, 2, true);
        let pages = taken(&mut pool, 2);
        pool.remember(&[1, 2, 3, 4, 5], &pages);
        assert_eq!(pool.known(&[1, 2, 3, 4, 9, 9]).pages, pages);
        assert_eq!(pool.known(&[1, 2, 9, 9]).pages, pages[..1]);
        assert!(
            pool.known(&[3, 4, 1, 2]).pages.is_empty(),
            "the same tokens behind others are others"
        );
        assert!(pool.known(&[1]).pages.is_empty(), "half a page is none");
    }

    #[test]
    fn evicts_least_recently_used_pages_that_are_not_held() {
        let mut pool = PagePool::new(3, 1, true);
        let pages = taken(&mut pool, 3);
        pool.remember(&[1, 2], &pages[..2]);
        pool.remember(&[7], &pages[2..]);
        pool.give_back(&pages);
        assert_eq!(pool.available(), 3);
        let held = pool.known(&[7]).pages;
        assert_eq!(pool.available(), 2);
        assert_eq!(pool.take(), Some(1), "the end of a prefix before its beginning");
        assert_eq!(pool.take(), Some(0));
        assert_eq!(pool.take(), None);
        pool.give_back(&held);
        assert_eq!(pool.take(), Some(2));
        assert!(pool.known(&[7]).pages.is_empty());
    }

    #[test]
    fn caches_nothing_when_disabled() {
        let mut pool = PagePool::new(2, 1, false);
        let pages = taken(&mut pool, 1);
        pool.remember(&[1], &pages);
        pool.give_back(&pages);
        assert_eq!((pool.known(&[1]), pool.available()), (KnownPrefix::default(), 2));
    }

    /// Keeps the states behind `tokens` in the place that the pool chooses.
    fn kept(pool: &mut PagePool, tokens: &[u32]) -> Option<u32> {
        let mut place = None;
        let kept = pool.keep_states(tokens, |copy| {
            place = Some(copy);
            Ok::<(), ()>(())
        });
        kept.map(|()| place).expect("copied")
    }

    fn known(pool: &mut PagePool, tokens: &[u32]) -> (usize, Option<u32>, usize) {
        let known = pool.known(tokens);
        pool.give_back(&known.pages);
        (known.pages.len(), known.copy, known.length)
    }

    #[test]
    fn finds_states_where_they_were_copied() {
        let mut pool = PagePool::new(4, 1, true).with_copies(2);
        let pages = taken(&mut pool, 4);
        pool.remember(&[1, 2, 3], &pages);
        assert_eq!(known(&mut pool, &[1, 2, 3]), (0, None, 3));
        assert_eq!(kept(&mut pool, &[1, 2]), Some(0));
        assert_eq!(kept(&mut pool, &[1, 2]), None, "there is one");
        assert_eq!(kept(&mut pool, &[1, 2, 4]), None, "these tokens are not known");
        assert_eq!(known(&mut pool, &[1, 2, 3]), (2, Some(0), 3));
        assert_eq!(known(&mut pool, &[1, 9]), (0, None, 1));
        assert_eq!(kept(&mut pool, &[1, 2, 3]), Some(1));
        assert_eq!(known(&mut pool, &[1, 2, 9]), (2, Some(0), 2));
        assert_eq!(kept(&mut pool, &[1]), Some(1), "used least recently");
        assert_eq!(known(&mut pool, &[1, 2, 3]), (2, Some(0), 3));
        pool.give_back(&pages);
        assert_eq!(pool.available(), 4);
        assert_eq!(taken(&mut pool, 4).len(), 4);
        assert_eq!(known(&mut pool, &[1, 2, 3]), (0, None, 0));
    }

    #[test]
    fn failed_copies_are_not_found() {
        let mut pool = PagePool::new(1, 1, true).with_copies(1);
        let pages = taken(&mut pool, 1);
        pool.remember(&[1], &pages);
        assert_eq!(pool.keep_states(&[1], |_| Err("no memory")), Err("no memory"));
        assert_eq!(known(&mut pool, &[1]), (0, None, 1));
        assert_eq!(kept(&mut pool, &[1]), Some(0));
    }
}
