//! Inbox messages write exactly the words that they address.

use refrain_kernels::{Push, inbox};

use crate::common::{Arena, Random, variants};

#[test]
fn message_writes_only_the_addressed_words() {
    let mut random = Random::new(77);
    for entries in [0, 1, 63, 64, 65, 300] {
        for traits in variants() {
            let mut states = [vec![0x1111_1111u32; 400], vec![0x2222_2222u32; 90]];
            let mut arena = Arena::new();
            for state in &states {
                arena.add(bytemuck::cast_slice::<u32, u8>(state));
            }
            let mut free_words: Vec<(usize, usize)> = (0..400).map(|w| (0, w)).chain((0..90).map(|w| (1, w))).collect();
            let message: Vec<(u64, u32)> = (0..entries)
                .map(|_| {
                    let (state, word) = free_words.swap_remove(random.below(free_words.len()));
                    let value = random.below(1 << 31) as u32;
                    states[state][word] = value;
                    (arena.address(state) + 4 * word as u64, value)
                })
                .collect();
            let mut call = inbox::call(&traits);
            call.push = vec![Push::Record(inbox::message(&message))];
            arena.run(&[call]);
            for (number, state) in states.iter().enumerate() {
                assert_eq!(
                    arena.read(number),
                    bytemuck::cast_slice::<u32, u8>(state),
                    "{entries} entries, state {number}"
                );
            }
        }
    }
}
