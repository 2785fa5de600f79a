//! Submissions to both queues. Each queue has a timeline semaphore whose value counts its submissions.

mod waiting;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use cpu_time::ThreadTime;

use crate::access::Access;
use crate::backend::{Backend, RecordRequest};
use crate::command::{Command, CommandList, regions};
use crate::counters::SharedCounters;
use crate::error::Error;
use crate::queue::Queue;
use crate::recording::{CommandCounts, RecordedList, Recording};
use crate::recording_uses::{RecordingUses, Uses};

/// Maximum number of submissions whose unread timings are kept.
const MAX_KEPT_TIMINGS: usize = 256;

/// Number of commands from which on a list that runs once is submitted in two parts, so that the device computes the
/// first while the rest is recorded, at a microsecond or two a command.
const LONG_LIST: usize = 512;

/// Number of commands of a long list's first part: enough to keep a device busy for as long as recording takes.
const FIRST_PART: usize = 128;

/// Region names with microseconds, in order.
pub(crate) type Timings = Vec<(String, f64)>;

struct InFlight {
    value: u64,
    list: Arc<RecordedList>,
}

#[derive(Default)]
struct QueueState {
    /// The last value submitted. Locked while submitting, which keeps values in order.
    last: Mutex<u64>,
    /// Upper bound of the timeline value. Raised before the driver is called.
    upper_bound: AtomicU64,
    completed: AtomicU64,
    /// The last value of the other queue that this queue has waited for. Later submissions of this queue come after it
    /// too.
    waited_for: AtomicU64,
    in_flight: Mutex<VecDeque<InFlight>>,
}

/// Both queues of a device.
pub(crate) struct Queues {
    backend: Arc<dyn Backend>,
    counters: Arc<SharedCounters>,
    states: [QueueState; 2],
    timestamp_period_ns: f64,
    timings: Mutex<BTreeMap<u64, Timings>>,
    /// How long the device may run without completing a list.
    stall_timeout: Duration,
    /// Lists in flight when the device was lost.
    lost: OnceLock<String>,
    /// Whether the stall timeout expired and nothing has completed since.
    stalled: AtomicBool,
    /// Lists in flight when a hanging device was closed.
    abandoned: OnceLock<String>,
}

/// Returns the last submission of the other queue that a list with these uses must wait for.
fn conflict(queue: Queue, uses: &Uses) -> Option<u64> {
    let points = uses.iter().map(|(buffer, access)| match access {
        Access::Read => buffer.uses().written(),
        Access::Write => buffer.uses().used(),
    });
    points.map(|point| point.of(queue.other())).max()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|broken| broken.into_inner())
}

impl Queues {
    pub fn new(
        backend: Arc<dyn Backend>,
        counters: Arc<SharedCounters>,
        timestamp_period_ns: f32,
        stall_timeout: Duration,
    ) -> Self {
        Self {
            backend,
            counters,
            states: Default::default(),
            timestamp_period_ns: f64::from(timestamp_period_ns),
            timings: Mutex::default(),
            stall_timeout,
            lost: OnceLock::new(),
            stalled: AtomicBool::new(false),
            abandoned: OnceLock::new(),
        }
    }

    /// Records commands.
    pub fn record(&self, request: &RecordRequest<'_>) -> Result<Arc<RecordedList>, Error> {
        self.check()?;
        let started = ThreadTime::now();
        let raw = self.backend.record(request).map_err(|failure| self.error(failure))?;
        let record_cpu_ns = started.elapsed().as_nanos() as u64;
        self.counters.update(|counters| counters.record_cpu_ns += record_cpu_ns);
        Ok(Arc::new(RecordedList {
            backend: self.backend.clone(),
            raw,
            name: request.name.to_owned(),
            regions: regions(request.commands).map(str::to_owned).collect(),
            counts: CommandCounts::of(request.commands, request.host_reads),
        }))
    }

    /// Records and submits a list. Returns the timeline value at which it is complete.
    pub fn submit(&self, queue: Queue, list: &CommandList, host_reads: bool) -> Result<u64, Error> {
        if list.commands.len() < LONG_LIST || regions(&list.commands).next().is_some() {
            return self.submit_part(queue, list, &list.commands, host_reads);
        }
        let (first, rest) = list.commands.split_at(FIRST_PART);
        self.submit_part(queue, list, first, false)?;
        // Without the rest, memory holds half of the work, which nobody can repeat or take back.
        self.submit_part(queue, list, rest, host_reads)
            .map_err(|_| self.mark_lost())
    }

    /// Records and submits some commands of a list.
    fn submit_part(
        &self,
        queue: Queue,
        list: &CommandList,
        commands: &[Command],
        host_reads: bool,
    ) -> Result<u64, Error> {
        self.retire(queue);
        let recorded = self.record(&RecordRequest {
            queue,
            name: &list.name,
            commands,
            host_reads,
            reusable: false,
        })?;
        let conflict = self.not_yet_waited_for(queue, conflict(queue, &list.uses));
        self.run(queue, vec![recorded], conflict, |value| {
            for (buffer, access) in &list.uses {
                buffer.uses().raise(*access, queue, value);
            }
        })
    }

    /// Submits recordings in one call. Returns the timeline value at which the last one is complete.
    pub fn submit_recorded(&self, recordings: &[&Recording]) -> Result<u64, Error> {
        const QUEUE: Queue = Queue::Compute;
        self.check()?;
        self.retire(QUEUE);
        let lists = recordings.iter().map(|recording| recording.recorded.clone()).collect();
        let mut uses: Vec<&RecordingUses> = recordings.iter().map(|recording| &*recording.uses).collect();
        uses.dedup_by_key(|uses| std::ptr::from_ref(*uses));
        // There may be thousands of buffers, so scan them only if the other queue has submitted something new.
        let others = *lock(&self.states[QUEUE.other() as usize].last);
        let fresh = uses.iter().filter(|uses| !uses.ran_after(others));
        let conflict = fresh.filter_map(|uses| conflict(QUEUE, uses.all())).max();
        self.run(QUEUE, lists, self.not_yet_waited_for(QUEUE, conflict), |last| {
            let first = last + 1 - recordings.len() as u64;
            for (value, recording) in (first..).zip(recordings) {
                recording.uses.raise(QUEUE, value, others);
            }
        })
    }

    /// Submits recorded lists, in order, after submission `conflict` of the other queue. Calls `mark_used` with the last
    /// value to mark the used buffers.
    fn run(
        &self,
        queue: Queue,
        lists: Vec<Arc<RecordedList>>,
        conflict: Option<u64>,
        mark_used: impl FnOnce(u64),
    ) -> Result<u64, Error> {
        let waits = Vec::from_iter(conflict.map(|value| (queue.other(), value)));
        let raw: Vec<_> = lists.iter().map(|list| list.raw).collect();

        let state = &self.states[queue as usize];
        let mut last = lock(&state.last);
        let first = *last + 1;
        // Set before the call: the device may be faster than this thread.
        state.upper_bound.store(*last + lists.len() as u64, Ordering::Release);
        if let Err(failure) = self.backend.submit(queue, &raw, &waits, first) {
            state.upper_bound.store(*last, Ordering::Release);
            return Err(self.error(failure));
        }
        *last += lists.len() as u64;
        let value = *last;
        state.waited_for.fetch_max(conflict.unwrap_or(0), Ordering::AcqRel);
        self.counters.update(|counters| {
            counters.submits += 1;
            lists.iter().for_each(|list| list.counts.add_to(counters));
        });
        lock(&state.in_flight).extend((first..).zip(lists).map(|(value, list)| InFlight { value, list }));
        mark_used(value);
        Ok(value)
    }

    /// Returns `conflict` unless this queue has already waited for it. A wait by the host is not enough: it makes
    /// nothing visible to this queue.
    fn not_yet_waited_for(&self, queue: Queue, conflict: Option<u64>) -> Option<u64> {
        conflict.filter(|value| *value > self.states[queue as usize].waited_for.load(Ordering::Acquire))
    }

    /// Reads the timings of completed recordings and recycles the recordings.
    fn retire(&self, queue: Queue) {
        let state = &self.states[queue as usize];
        let completed = state.completed.load(Ordering::Acquire);
        let mut in_flight = lock(&state.in_flight);
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
        while timings.len() > MAX_KEPT_TIMINGS {
            timings.pop_first();
        }
    }

    /// Takes the timings of a completed submission to the compute queue.
    pub fn timings(&self, value: u64) -> Timings {
        self.retire(Queue::Compute);
        lock(&self.timings).remove(&value).unwrap_or_default()
    }
}
