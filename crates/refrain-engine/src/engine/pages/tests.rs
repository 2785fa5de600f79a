use super::*;

fn take_pages(pool: &mut PagePool, count: usize) -> Vec<u32> {
    (0..count).map(|_| pool.take().expect("a page")).collect()
}

#[test]
fn pages_have_one_holder_unless_they_are_cached() {
    let mut pool = PagePool::new(3, 2, true);
    let pages = take_pages(&mut pool, 3);
    assert_eq!((pages.clone(), pool.take(), pool.available()), (vec![0, 1, 2], None, 0));
    pool.give_back(&pages[1..]);
    assert_eq!((pool.available(), take_pages(&mut pool, 2).len()), (2, 2));
}

#[test]
fn shares_prefixes_page_by_page() {
    let mut pool = PagePool::new(4, 2, true);
    let pages = take_pages(&mut pool, 2);
    pool.insert(&[1, 2, 3, 4, 5], &pages, None);
    assert_eq!(pool.lookup(&[1, 2, 3, 4, 9, 9]).pages, pages);
    assert_eq!(pool.lookup(&[1, 2, 9, 9]).pages, pages[..1]);
    assert!(
        pool.lookup(&[3, 4, 1, 2]).pages.is_empty(),
        "the same tokens after others are not the same prefix"
    );
    assert!(pool.lookup(&[1]).pages.is_empty(), "a partial page is not cached");
}

#[test]
fn pages_are_cached_while_they_fill() {
    let mut pool = PagePool::new(4, 2, true);
    let pages = take_pages(&mut pool, 4);
    let tokens = [1, 2, 3, 4, 5, 6, 7];
    let mut node = None;
    for (filled, known) in [(1, 0), (3, 1), (4, 2), (7, 3)] {
        node = pool.insert(&tokens[..filled], &pages, node);
        let found = pool.lookup(&tokens).pages;
        assert_eq!(found, pages[..known], "{filled} tokens");
        pool.give_back(&found);
    }
    // A node that was evicted meanwhile is not continued.
    pool.give_back(&pages);
    let taken = take_pages(&mut pool, 4);
    assert!(pool.lookup(&tokens).pages.is_empty());
    pool.insert(&tokens, &taken, node);
    assert_eq!(pool.lookup(&tokens).pages, taken[..3]);
}

#[test]
fn evicts_least_recently_used_pages_that_are_not_held() {
    let mut pool = PagePool::new(3, 1, true);
    let pages = take_pages(&mut pool, 3);
    pool.insert(&[1, 2], &pages[..2], None);
    pool.insert(&[7], &pages[2..], None);
    pool.give_back(&pages);
    assert_eq!(pool.available(), 3);
    let held = pool.lookup(&[7]).pages;
    assert_eq!(pool.available(), 2);
    assert_eq!(pool.take(), Some(1), "the end of a prefix before its start");
    assert_eq!(pool.take(), Some(0));
    assert_eq!(pool.take(), None);
    pool.give_back(&held);
    assert_eq!(pool.take(), Some(2));
    assert!(pool.lookup(&[7]).pages.is_empty());
}

#[test]
fn caches_nothing_when_disabled() {
    let mut pool = PagePool::new(2, 1, false);
    let pages = take_pages(&mut pool, 1);
    assert_eq!(pool.insert(&[1], &pages, None), None);
    pool.give_back(&pages);
    assert_eq!((pool.lookup(&[1]), pool.available()), (CachedPrefix::default(), 2));
}

/// The available pages are exactly those that can be taken, whatever happened before.
#[test]
fn counts_the_pages_that_can_be_taken() {
    let mut random = 1u64;
    let mut below = |limit: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % limit
    };
    let all = [
        (2, PagePool::new(24, 2, true).with_checkpoints(5)),
        (10, PagePool::new(24, 10, true)),
    ];
    for (size, pool) in all {
        check_counts(size, pool, &mut below);
    }
}

/// Takes, caches and gives back pages of `size` tokens at random.
fn check_counts(size: usize, mut pool: PagePool, below: &mut impl FnMut(usize) -> usize) {
    let mut held: Vec<(Vec<u32>, Vec<u32>)> = vec![];
    let mut evicted = 0;
    for step in 0..3000 {
        match below(4) {
            0 | 1 => {
                // The tokens of a page are often equal.
                let mut tokens: Vec<u32> = vec![];
                for _ in 0..1 + below(7 * size) {
                    let next = if tokens.len() % size < 2 {
                        below(2) as u32
                    } else {
                        tokens[tokens.len() - 1]
                    };
                    tokens.push(next);
                }
                let found = pool.lookup(&tokens);
                pool.give_back(found.part.map(|(page, _)| page).as_slice());
                let mut pages = found.pages;
                let needed = pool.pages_for(tokens.len()) - pages.len();
                if needed <= pool.available() {
                    evicted += usize::from(needed > pool.free.len());
                    pages.extend(take_pages(&mut pool, needed));
                    held.push((tokens, pages));
                } else {
                    pool.give_back(&pages);
                }
            }
            2 if !held.is_empty() => {
                let (tokens, pages) = &held[below(held.len())];
                pool.insert(tokens, pages, None);
                let full = tokens.len() / size * size;
                pool.save_states(&tokens[..full], |_| Ok::<(), ()>(())).expect("saves");
            }
            3 if !held.is_empty() => {
                let (tokens, pages) = held.swap_remove(below(held.len()));
                let last = pool.insert(&tokens, &pages, None);
                pool.insert_part(&tokens, &pages, last);
                pool.give_back(&pages);
            }
            _ => {}
        }
        let mut copy = pool.clone();
        let available = pool.available();
        assert_eq!(std::iter::from_fn(|| copy.take()).count(), available, "step {step}");
        let saved = pool.free_checkpoints.as_ref().map_or(0, Vec::len);
        let all = copy.free_checkpoints.as_ref().map_or(0, Vec::len);
        assert!(saved <= all && all <= 5, "checkpoints of evicted pages are free");
    }
    assert!(evicted > 100, "{evicted}");
    held.into_iter().for_each(|(_, pages)| pool.give_back(&pages));
    assert_eq!(pool.available(), 24);
}

/// Takes minutes if an eviction looks at every page.
#[test]
fn evicting_a_large_cache_is_not_quadratic() {
    const PAGES: usize = 1 << 16;
    let mut pool = PagePool::new(PAGES, 1, true);
    let pages = take_pages(&mut pool, PAGES);
    for (start, pages) in (0..).zip(pages.chunks(256)) {
        let tokens: Vec<u32> = std::iter::repeat_n(start, 256).collect();
        pool.insert(&tokens, pages, None);
    }
    pool.give_back(&pages);
    for left in (0..PAGES).rev() {
        pool.take().expect("evicts a page");
        assert_eq!(pool.available(), left);
    }
}

/// Saves the states after `tokens`; returns the checkpoint that the pool chose.
fn save(pool: &mut PagePool, tokens: &[u32]) -> Option<u32> {
    let mut chosen = None;
    let saved = pool.save_states(tokens, |checkpoint| {
        chosen = Some(checkpoint);
        Ok::<(), ()>(())
    });
    saved.map(|()| chosen).expect("saved")
}

fn lookup(pool: &mut PagePool, tokens: &[u32]) -> (usize, Option<u32>, usize) {
    let prefix = pool.lookup(tokens);
    pool.give_back(&prefix.pages);
    (prefix.pages.len(), prefix.checkpoint, prefix.length)
}

#[test]
fn prefixes_are_usable_where_states_were_saved() {
    let mut pool = PagePool::new(4, 1, true).with_checkpoints(2);
    let pages = take_pages(&mut pool, 4);
    pool.insert(&[1, 2, 3], &pages, None);
    assert_eq!(lookup(&mut pool, &[1, 2, 3]), (0, None, 3));
    assert_eq!(save(&mut pool, &[1, 2]), Some(0));
    assert_eq!(save(&mut pool, &[1, 2]), None, "they are saved already");
    assert_eq!(save(&mut pool, &[1, 2, 4]), None, "these tokens are not cached");
    assert_eq!(lookup(&mut pool, &[1, 2, 3]), (2, Some(0), 3));
    assert_eq!(lookup(&mut pool, &[1, 9]), (0, None, 1));
    assert_eq!(save(&mut pool, &[1, 2, 3]), Some(1));
    assert_eq!(lookup(&mut pool, &[1, 2, 9]), (2, Some(0), 2));
    assert_eq!(save(&mut pool, &[1]), Some(1), "the least recently used");
    assert_eq!(lookup(&mut pool, &[1, 2, 3]), (2, Some(0), 3));
    pool.give_back(&pages);
    assert_eq!(pool.available(), 4);
    assert_eq!(take_pages(&mut pool, 4).len(), 4);
    assert_eq!(lookup(&mut pool, &[1, 2, 3]), (0, None, 0));
}

#[test]
fn states_that_could_not_be_saved_are_not_found() {
    let mut pool = PagePool::new(1, 1, true).with_checkpoints(1);
    let pages = take_pages(&mut pool, 1);
    pool.insert(&[1], &pages, None);
    assert_eq!(pool.save_states(&[1], |_| Err("no memory")), Err("no memory"));
    assert_eq!(lookup(&mut pool, &[1]), (0, None, 1));
    assert_eq!(save(&mut pool, &[1]), Some(0));
}

#[test]
fn finds_the_page_that_begins_with_most_of_the_tokens() {
    let mut pool = PagePool::new(4, 16, true);
    let pages = take_pages(&mut pool, 3);
    let tokens: Vec<u32> = (0..40).collect();
    let last = pool.insert(&tokens, &pages, None);
    pool.insert_part(&tokens, &pages, last);
    pool.give_back(&pages);
    // Of a full page, of one that is not filled, and too few.
    for (shared, full, part) in [
        (12, 0, Some((pages[0], 12))),
        (31, 1, Some((pages[1], 15))),
        (40, 2, Some((pages[2], 8))),
        (39, 2, None),
        (7, 0, None),
    ] {
        let found = pool.lookup(&(0..shared).chain(100..120).collect::<Vec<u32>>());
        assert_eq!((&found.pages[..], found.part), (&pages[..full], part), "{shared}");
        let held = full + usize::from(part.is_some());
        assert_eq!(pool.available(), 4 - held, "{shared}");
        pool.give_back(&found.pages);
        pool.give_back(found.part.map(|(page, _)| page).as_slice());
    }
}

#[test]
fn a_longer_text_replaces_the_part_of_a_shorter_one() {
    let mut pool = PagePool::new(3, 16, true);
    let [first, second, third] = [8, 12, 10].map(|length| {
        let (tokens, pages) = ((0..length).collect::<Vec<u32>>(), take_pages(&mut pool, 1));
        pool.insert_part(&tokens, &pages, None);
        pool.give_back(&pages);
        pages[0]
    });
    // The first was free for the last, which is part of the second.
    assert_eq!((first, third, pool.free.len()), (0, 0, 2));
    let tokens: Vec<u32> = (0..14).collect();
    assert_eq!(pool.lookup(&tokens).part, Some((second, 12)));
    // A page that others read is not replaced.
    let pages = take_pages(&mut pool, 1);
    pool.insert_part(&tokens, &pages, None);
    assert_eq!((pool.available(), pool.lookup(&tokens).part), (1, Some((pages[0], 14))));
}
