//! Whose turn it is where more wait than can be computed.

use std::collections::HashMap;

/// When clients last had their turns.
#[derive(Default)]
pub(super) struct FairQueue {
    last: HashMap<u64, u64>,
    clock: u64,
}

impl FairQueue {
    /// Which of the requests comes next, given the clients of those that wait, in the order in which they came, and of
    /// those that run: one of the client that has the fewest running, of these the one whose last turn is longest ago, and
    /// of its own the first that came.
    pub fn next(&self, waiting: impl Iterator<Item = u64>, running: &[u64]) -> Option<usize> {
        let rank = |client: u64| {
            let running = running.iter().filter(|other| **other == client).count();
            (running, self.last.get(&client).copied().unwrap_or(0))
        };
        let first = waiting.enumerate().min_by_key(|&(at, client)| (rank(client), at));
        first.map(|(at, _)| at)
    }

    /// Notes that a client has its turn; `present` are those who are worth remembering.
    pub fn take(&mut self, client: u64, present: &[u64]) {
        self.last.retain(|client, _| present.contains(client));
        self.clock += 1;
        self.last.insert(client, self.clock);
    }
}

#[cfg(test)]
mod tests {
    use super::FairQueue;

    #[test]
    fn alternates_between_clients_regardless_of_their_requests() {
        let mut steps = FairQueue::default();
        let mut waiting = vec![1, 1, 1, 1, 2, 3, 2];
        let mut order = vec![];
        while let Some(at) = steps.next(waiting.iter().copied(), &[]) {
            let client = waiting.remove(at);
            steps.take(client, &[1, 2, 3]);
            order.push(client);
        }
        assert_eq!(order, [1, 2, 3, 1, 2, 1, 1]);
        assert_eq!(
            steps.next([1, 2].into_iter(), &[2, 1, 1]),
            Some(1),
            "who has less running"
        );
        steps.take(1, &[1]);
        assert_eq!(steps.last.len(), 1, "other clients are dropped");
    }
}
