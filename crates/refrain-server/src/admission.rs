//! Requests that are being prepared. They count against the queue of their model's engine before they are in it.
//!
//! Rendering and tokenizing take time and memory. Without a ticket, any number of requests would do so beside a full
//! queue, only to be refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use refrain_engine::Error as EngineError;

use crate::error::Refusal;
use crate::record::RequestRecord;
use crate::served::ServedModel;

/// A place in the queue of a request that is being prepared. Dropping it gives the place up.
#[derive(Debug)]
pub(crate) struct QueueTicket(Arc<AtomicUsize>);

impl QueueTicket {
    fn take(preparing: &Arc<AtomicUsize>) -> QueueTicket {
        preparing.fetch_add(1, Ordering::Relaxed);
        QueueTicket(preparing.clone())
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ServedModel {
    /// Takes a place in the queue for the present request, until it is submitted or its response begins. While the
    /// model is not loaded, there is a place for everybody.
    ///
    /// # Errors
    /// If the engine's queue is full, counting those that are being prepared.
    pub(crate) fn reserve(&self) -> Result<(), Refusal> {
        let ticket = QueueTicket::take(&self.preparing);
        if let Some(engine) = self.loaded().filter(|engine| !engine.has_failed()) {
            let max = engine.options().streams + engine.options().queue;
            let load = engine.load();
            let taken = load.running + load.waiting + self.preparing.load(Ordering::Relaxed);
            if taken > max || !engine.has_room() {
                return Err(EngineError::Busy { max }.into());
            }
        }
        RequestRecord::current().hold_ticket(ticket);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_tickets_give_their_places_up() {
        let preparing = Arc::default();
        let tickets = [(); 3].map(|()| QueueTicket::take(&preparing));
        assert_eq!(preparing.load(Ordering::Relaxed), 3);
        drop(tickets);
        assert_eq!(preparing.load(Ordering::Relaxed), 0);
    }
}
