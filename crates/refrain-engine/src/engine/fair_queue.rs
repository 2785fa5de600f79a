//! Chooses which client's request is admitted next.

use std::collections::HashMap;

/// When requests of clients were last admitted.
#[derive(Default)]
pub(super) struct FairQueue {
    last: HashMap<u64, u64>,
    clock: u64,
}

impl FairQueue {
    /// Chooses one of the waiting requests, given in order of arrival as (index, client); `running` are the clients of
    /// running requests. The client with the fewest running requests is chosen, among equals the one that was admitted
    /// least recently, and of its requests the first. Returns its index.
    pub fn next(&self, waiting: impl Iterator<Item = (usize, u64)>, running: &[u64]) -> Option<usize> {
        let mut counts: HashMap<u64, usize> = HashMap::new();
        running
            .iter()
            .for_each(|client| *counts.entry(*client).or_default() += 1);
        let rank = |client: u64| {
            let running = counts.get(&client).copied().unwrap_or(0);
            (running, self.last.get(&client).copied().unwrap_or(0))
        };
        let first = waiting.min_by_key(|&(index, client)| (rank(client), index));
        first.map(|(index, _)| index)
    }

    /// Notes that a client's request is admitted. Clients that are not in `present` are forgotten.
    pub fn take(&mut self, client: u64, present: &[u64]) {
        if self.last.len() >= present.len() {
            self.last.retain(|client, _| present.contains(client));
        }
        self.clock += 1;
        self.last.insert(client, self.clock);
    }
}

#[cfg(test)]
mod tests {
    use super::FairQueue;

    #[test]
    fn alternates_between_clients_regardless_of_their_requests() {
        let mut queue = FairQueue::default();
        let mut waiting = vec![1, 1, 1, 1, 2, 3, 2];
        let mut order = vec![];
        while let Some(index) = queue.next(waiting.iter().copied().enumerate(), &[]) {
            let client = waiting.remove(index);
            queue.take(client, &[1, 2, 3]);
            order.push(client);
        }
        assert_eq!(order, [1, 2, 3, 1, 2, 1, 1]);
        assert_eq!(
            queue.next([1, 2].into_iter().enumerate(), &[2, 1, 1]),
            Some(1),
            "the client with fewer running requests"
        );
        queue.take(1, &[1]);
        assert_eq!(queue.last.len(), 1, "other clients are forgotten");
    }
}
