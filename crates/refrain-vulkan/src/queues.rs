//! Submissions: one timeline per queue, whose value counts the queue's submissions.

mod waiting;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use cpu_time::ThreadTime;

use crate::backend::{Backend, Queue, RecordRequest};
use crate::command::{Access, CommandList};
use crate::counters::Tally;
use crate::error::Error;
use crate::recording::{Cost, Recording, Translated};
use crate::stamps::{SharedUses, Uses};

/// How many lists' timings are kept for a caller who has not asked for them yet.
const KEPT_TIMINGS: usize = 256;

/// Microseconds by region, in order.
pub(crate) type Timings = Vec<(String, f64)>;

struct InFlight {
    value: u64,
    list: Arc<Translated>,
}

#[derive(Default)]
struct Lane {
    /// The last value submitted; locked while submitting, which keeps values in order.
    last: Mutex<u64>,
    /// The last value that the timeline may reach: raised before the driver is asked to submit.
    due: AtomicU64,
    completed: AtomicU64,
    /// How far the queue itself has waited for the other: what it runs later comes after that too.
    seen: AtomicU64,
    in_flight: Mutex<VecDeque<InFlight>>,
}

/// Both queues of a device.
pub(crate) struct Queues {
    backend: Arc<dyn Backend>,
    tally: Arc<Tally>,
    lanes: [Lane; 2],
    timestamp_period_ns: f64,
    timings: Mutex<BTreeMap<u64, Timings>>,
    /// How long the device may go without ending a list.
    patience: Duration,
    /// What ran when the device was lost.
    lost: OnceLock<String>,
    /// Whether the device ended nothing within the patience with it, and nothing since.
    stalled: AtomicBool,
    /// What ran when a device that stands still was closed.
    abandoned: OnceLock<String>,
}

/// The last of the other queue's submissions that lists with these uses must not overtake.
fn conflict(queue: Queue, uses: &Uses) -> Option<u64> {
    let moments = uses.iter().map(|(buffer, access)| match access {
        Access::Read => buffer.stamps().written(),
        Access::Write => buffer.stamps().used(),
    });
    moments.map(|moment| moment.of(queue.other())).max()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|broken| broken.into_inner())
}

impl Queues {
    pub fn new(backend: Arc<dyn Backend>, tally: Arc<Tally>, timestamp_period_ns: f32, patience: Duration) -> Self {
        Self {
            backend,
            tally,
            lanes: Default::default(),
            timestamp_period_ns: f64::from(timestamp_period_ns),
            timings: Mutex::default(),
            patience,
            lost: OnceLock::new(),
            stalled: AtomicBool::new(false),
            abandoned: OnceLock::new(),
        }
    }

    /// Translates a list. `reusable`: for several submissions, which may overlap.
    pub fn record(
        &self,
        queue: Queue,
        list: &CommandList,
        host_reads: bool,
        reusable: bool,
    ) -> Result<Arc<Translated>, Error> {
        self.check()?;
        let request = RecordRequest {
            queue,
            name: &list.name,
            commands: &list.commands,
            host_reads,
            reusable,
        };
        let started = ThreadTime::now();
        let raw = self.backend.record(&request).map_err(|failure| self.error(failure))?;
        let record_cpu_ns = started.elapsed().as_nanos() as u64;
        self.tally.count(|counters| counters.record_cpu_ns += record_cpu_ns);
        Ok(Arc::new(Translated {
            backend: self.backend.clone(),
            raw,
            name: list.name.clone(),
            regions: list.regions().map(str::to_owned).collect(),
            cost: Cost::of(&list.commands, host_reads),
        }))
    }

    /// Translates and submits a list; the value of its completion.
    pub fn submit(&self, queue: Queue, list: &CommandList, host_reads: bool) -> Result<u64, Error> {
        self.retire(queue);
        let translated = self.record(queue, list, host_reads, false)?;
        let conflict = self.unseen(queue, conflict(queue, &list.uses));
        self.run(queue, vec![translated], conflict, |value| {
            for (buffer, access) in &list.uses {
                buffer.stamps().raise(*access, queue, value);
            }
        })
    }

    /// Submits recordings by one call; the value at which the last is complete.
    pub fn submit_recorded(&self, recordings: &[&Recording]) -> Result<u64, Error> {
        const QUEUE: Queue = Queue::Compute;
        self.check()?;
        self.retire(QUEUE);
        let lists = recordings
            .iter()
            .map(|recording| recording.translated.clone())
            .collect();
        let mut uses: Vec<&SharedUses> = recordings.iter().map(|recording| &*recording.uses).collect();
        uses.dedup_by_key(|uses| std::ptr::from_ref(*uses));
        // Thousands of buffers may be used: they are gone through only where there is something new.
        let others = *lock(&self.lanes[QUEUE.other() as usize].last);
        let fresh = uses.iter().filter(|uses| !uses.ran_after(others));
        let conflict = fresh.filter_map(|uses| conflict(QUEUE, uses.all())).max();
        self.run(QUEUE, lists, self.unseen(QUEUE, conflict), |last| {
            let first = last + 1 - recordings.len() as u64;
            for (value, recording) in (first..).zip(recordings) {
                recording.uses.raise(QUEUE, value, others);
            }
        })
    }

    /// Submits translated lists one after another, behind the other queue's submission `conflict`, and has
    /// the buffers that they use stamped.
    fn run(
        &self,
        queue: Queue,
        lists: Vec<Arc<Translated>>,
        conflict: Option<u64>,
        stamp: impl FnOnce(u64),
    ) -> Result<u64, Error> {
        let waits = Vec::from_iter(conflict.map(|value| (queue.other(), value)));
        let raw: Vec<_> = lists.iter().map(|list| list.raw).collect();

        let lane = &self.lanes[queue as usize];
        let mut last = lock(&lane.last);
        let first = *last + 1;
        // First: the device may be faster than this thread.
        lane.due.store(*last + lists.len() as u64, Ordering::Release);
        if let Err(failure) = self.backend.submit(queue, &raw, &waits, first) {
            lane.due.store(*last, Ordering::Release);
            return Err(self.error(failure));
        }
        *last += lists.len() as u64;
        let value = *last;
        lane.seen.fetch_max(conflict.unwrap_or(0), Ordering::AcqRel);
        self.tally.count(|counters| {
            counters.submits += 1;
            lists.iter().for_each(|list| list.cost.add_to(counters));
        });
        lock(&lane.in_flight).extend((first..).zip(lists).map(|(value, list)| InFlight { value, list }));
        stamp(value);
        Ok(value)
    }

    /// The other queue's submission, unless the queue has waited for it. A wait of the host's is not
    /// enough: it makes nothing visible to this queue.
    fn unseen(&self, queue: Queue, conflict: Option<u64>) -> Option<u64> {
        conflict.filter(|value| *value > self.lanes[queue as usize].seen.load(Ordering::Acquire))
    }

    /// Takes the timings out of completed recordings and gives the recordings back.
    fn retire(&self, queue: Queue) {
        let lane = &self.lanes[queue as usize];
        let completed = lane.completed.load(Ordering::Acquire);
        let mut in_flight = lock(&lane.in_flight);
        while in_flight.front().is_some_and(|list| list.value <= completed) {
            let Some(list) = in_flight.pop_front() else {
                break;
            };
            if list.list.raw.query_count > 0 {
                self.keep_timings(&list);
            }
        }
    }

    fn keep_timings(&self, list: &InFlight) {
        let steps = self.backend.intervals(&list.list.raw);
        let us = |steps: u64| steps as f64 * self.timestamp_period_ns / 1000.0;
        let regions = list.list.regions.iter().cloned().zip(steps.into_iter().map(us));
        let regions = regions.collect();
        let mut timings = lock(&self.timings);
        timings.insert(list.value, regions);
        while timings.len() > KEPT_TIMINGS {
            timings.pop_first();
        }
    }

    /// Microseconds by region of a completed submission to the compute queue.
    pub fn timings(&self, value: u64) -> Timings {
        self.retire(Queue::Compute);
        lock(&self.timings).remove(&value).unwrap_or_default()
    }
}
