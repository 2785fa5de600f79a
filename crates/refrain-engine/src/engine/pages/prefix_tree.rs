//! The tree of cached prefixes: a node for each page whose tokens are known together with all tokens before them. A page
//! that tokens do not fill has a node without children.

use std::collections::{BTreeSet, HashMap};

/// Identifies a node; never reused.
pub type NodeId = u64;

/// Children whose tokens are compared with others, at most: the newest.
const MAX_COMPARED: usize = 16;

/// Nodes by their parents and tokens, with the order in which they are evicted.
///
/// A node is *pinned* if a request holds its page, or if a child is pinned: it cannot be evicted then.
#[derive(Clone, Default)]
pub struct PrefixTree {
    ids: HashMap<(NodeId, Box<[u32]>), NodeId>,
    /// Nodes by their parents and first tokens, the newest last.
    by_first: HashMap<(NodeId, u32), BTreeSet<NodeId>>,
    nodes: HashMap<NodeId, Node>,
    /// The node of each page; [`PrefixTree::ROOT`] for none.
    by_page: Vec<NodeId>,
    /// Unpinned nodes without children, by their last use.
    leaves: BTreeSet<(u64, NodeId)>,
    /// Nodes with a checkpoint, by their last use.
    saved: BTreeSet<(u64, NodeId)>,
    unpinned: usize,
    last_id: NodeId,
    clock: u64,
}

#[derive(Clone)]
struct Node {
    page: u32,
    parent: NodeId,
    /// Pages from the root to this one.
    depth: usize,
    tokens: Box<[u32]>,
    children: usize,
    /// Whether a request holds the page.
    held: bool,
    pinned_children: usize,
    last_used: u64,
    /// The checkpoint of the recurrent states after the page.
    checkpoint: Option<u32>,
}

impl Node {
    fn is_pinned(&self) -> bool {
        self.held || self.pinned_children > 0
    }
}

impl PrefixTree {
    /// The parent of first pages; not a node.
    pub const ROOT: NodeId = 0;

    /// Creates an empty tree for a pool of `pages` pages.
    pub fn new(pages: usize) -> PrefixTree {
        PrefixTree {
            by_page: vec![PrefixTree::ROOT; pages],
            ..PrefixTree::default()
        }
    }

    /// Returns the number of pages that can be evicted, one after another.
    pub fn evictable(&self) -> usize {
        self.unpinned
    }

    /// Whether a node has this page.
    pub fn has(&self, page: u32) -> bool {
        self.by_page[page as usize] != PrefixTree::ROOT
    }

    /// Whether a node was not evicted yet.
    pub fn contains(&self, node: NodeId) -> bool {
        self.nodes.contains_key(&node)
    }

    /// Returns a node's number of pages from the root on.
    pub fn depth(&self, node: NodeId) -> usize {
        self.nodes[&node].depth
    }

    /// Returns a node's page.
    pub fn page(&self, node: NodeId) -> u32 {
        self.nodes[&node].page
    }

    /// Returns the tokens of a node's page.
    pub fn tokens(&self, node: NodeId) -> &[u32] {
        &self.nodes[&node].tokens
    }

    /// Returns all tokens up to the end of a node's page.
    pub fn prefix(&self, node: NodeId) -> Vec<u32> {
        let mut pages = vec![];
        let mut next = self.nodes.get(&node);
        while let Some(node) = next {
            pages.push(&node.tokens[..]);
            next = self.nodes.get(&node.parent);
        }
        pages.reverse();
        pages.concat()
    }

    /// Returns the checkpoint of the states after a node's page.
    pub fn checkpoint(&self, node: NodeId) -> Option<u32> {
        self.nodes[&node].checkpoint
    }

    /// Returns the node after `parent` with these tokens.
    pub fn child(&self, parent: NodeId, tokens: &[u32]) -> Option<NodeId> {
        self.ids.get(&(parent, tokens.into())).copied()
    }

    /// Returns the child of `parent` that shares most first tokens with `tokens`, and how many: of the newest ones that
    /// share the first.
    pub fn closest_child(&self, parent: NodeId, tokens: &[u32]) -> Option<(NodeId, usize)> {
        let children = self.by_first.get(&(parent, *tokens.first()?))?;
        let shared = |id: &NodeId| {
            let pairs = self.nodes[id].tokens.iter().zip(tokens);
            (*id, pairs.take_while(|(one, other)| one == other).count())
        };
        let newest = children.iter().rev().take(MAX_COMPARED);
        newest.map(shared).max_by_key(|(_, shared)| *shared)
    }

    /// Returns the nodes of the cached full pages that `tokens` start with, of `size` tokens each.
    pub fn path(&self, tokens: &[u32], size: usize) -> Vec<NodeId> {
        let mut path = vec![];
        for tokens in tokens.chunks_exact(size) {
            let parent = path.last().copied().unwrap_or(PrefixTree::ROOT);
            match self.child(parent, tokens) {
                Some(node) => path.push(node),
                None => break,
            }
        }
        path
    }

    /// Adds a node for a page.
    pub fn add(&mut self, parent: NodeId, tokens: &[u32], page: u32, held: bool) -> NodeId {
        self.last_id += 1;
        let id = self.last_id;
        let depth = self.nodes.get(&parent).map_or(0, |parent| parent.depth) + 1;
        if let Some(parent_node) = self.nodes.get_mut(&parent) {
            parent_node.children += 1;
            let key = (parent_node.last_used, parent);
            self.leaves.remove(&key);
        }
        let node = Node {
            page,
            parent,
            depth,
            tokens: tokens.into(),
            children: 0,
            held: false,
            pinned_children: 0,
            last_used: self.clock,
            checkpoint: None,
        };
        self.ids.insert((parent, tokens.into()), id);
        self.by_first.entry((parent, tokens[0])).or_default().insert(id);
        self.nodes.insert(id, node);
        self.by_page[page as usize] = id;
        self.leaves.insert((self.clock, id));
        self.unpinned += 1;
        if held {
            self.set_held(page, true);
        }
        id
    }

    /// Whether others need a node's page.
    pub fn is_pinned(&self, id: NodeId) -> bool {
        self.nodes[&id].is_pinned()
    }

    /// Notes whether requests hold the page of a node.
    pub fn set_held(&mut self, page: u32, held: bool) {
        let mut id = self.by_page[page as usize];
        let node = self.nodes.get_mut(&id).expect("a page of the tree");
        let was_pinned = node.is_pinned();
        node.held = held;
        // A node that becomes pinned or unpinned may change its parent, and so on.
        let mut changed = was_pinned != self.nodes[&id].is_pinned();
        while changed {
            let node = &self.nodes[&id];
            let (key, parent, is_leaf) = ((node.last_used, id), node.parent, node.children == 0);
            if held {
                self.unpinned -= 1;
                self.leaves.remove(&key);
            } else {
                self.unpinned += 1;
                if is_leaf {
                    self.leaves.insert(key);
                }
            }
            let Some(node) = self.nodes.get_mut(&parent) else { break };
            let was_pinned = node.is_pinned();
            if held {
                node.pinned_children += 1;
            } else {
                node.pinned_children -= 1;
            }
            changed = was_pinned != node.is_pinned();
            id = parent;
        }
    }

    /// Notes that nodes are used now.
    pub fn touch(&mut self, nodes: &[NodeId]) {
        self.clock += 1;
        for &id in nodes {
            let node = self.nodes.get_mut(&id).expect("a node");
            let (old, new) = ((node.last_used, id), (self.clock, id));
            node.last_used = self.clock;
            if self.leaves.remove(&old) {
                self.leaves.insert(new);
            }
            if self.saved.remove(&old) {
                self.saved.insert(new);
            }
        }
    }

    /// Notes the checkpoint of the states after a node's page.
    pub fn set_checkpoint(&mut self, id: NodeId, checkpoint: u32) {
        let node = self.nodes.get_mut(&id).expect("a node");
        node.checkpoint = Some(checkpoint);
        self.saved.insert((node.last_used, id));
    }

    /// Whether a node was not evicted yet and one page follows it.
    pub fn has_one_child(&self, id: NodeId) -> bool {
        self.nodes.get(&id).is_some_and(|node| node.children == 1)
    }

    /// Takes the checkpoint from a node.
    pub fn take_checkpoint(&mut self, id: NodeId) -> Option<u32> {
        let node = self.nodes.get_mut(&id).expect("a node");
        self.saved.remove(&(node.last_used, id));
        node.checkpoint.take()
    }

    /// Takes the least recently used checkpoint from its node.
    pub fn release_checkpoint(&mut self) -> Option<u32> {
        let (_, id) = self.saved.pop_first()?;
        self.nodes.get_mut(&id).expect("a node").checkpoint.take()
    }

    /// Removes the least recently used node that is not pinned and has no children. Returns its page and checkpoint.
    pub fn evict(&mut self) -> Option<(u32, Option<u32>)> {
        let (_, id) = *self.leaves.first()?;
        Some(self.remove(id))
    }

    /// Removes a node that is not pinned and has no children. Returns its page and checkpoint.
    pub fn remove(&mut self, id: NodeId) -> (u32, Option<u32>) {
        let node = self.nodes.remove(&id).expect("a node");
        let key = (node.last_used, id);
        let was_leaf = self.leaves.remove(&key);
        debug_assert!(was_leaf, "others need the page");
        self.saved.remove(&key);
        self.unpinned -= 1;
        self.by_page[node.page as usize] = PrefixTree::ROOT;
        if let Some(parent) = self.nodes.get_mut(&node.parent) {
            parent.children -= 1;
            if parent.children == 0 && !parent.is_pinned() {
                self.leaves.insert((parent.last_used, node.parent));
            }
        }
        let first = (node.parent, node.tokens[0]);
        if let Some(siblings) = self.by_first.get_mut(&first) {
            siblings.remove(&id);
            if siblings.is_empty() {
                self.by_first.remove(&first);
            }
        }
        let key = (node.parent, node.tokens);
        // Two pages that tokens do not fill may begin with the same ones.
        if self.ids.get(&key) == Some(&id) {
            self.ids.remove(&key);
        }
        (node.page, node.checkpoint)
    }
}
