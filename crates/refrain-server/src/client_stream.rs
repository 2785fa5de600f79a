//! The byte stream of a connection: its timeout, and clients that close it while they wait for a response.
//!
//! A client that closes its socket and one that only says that it sends no more ("half-closed") look the same: the
//! stream ends. They differ once the server writes: a closed socket answers with a reset. So a client that leaves
//! before a response began is probed by an interim response, which half-closed clients pass over.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::Version;
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::platform::ClientSocket;

/// Time that a half-closed client's response may take before the client is probed.
const PROBE_DELAY: Duration = Duration::from_millis(200);
/// Time after the first byte of a response within which the end of the stream still is a half-close that came right
/// behind the request. Whoever ends it later has left.
const HALF_CLOSE_WINDOW: Duration = Duration::from_millis(30);
/// Interval at which the socket is looked at after the probe.
const PROBE_INTERVAL: Duration = Duration::from_millis(50);
/// An interim response (RFC 9110, section 15.2): clients of HTTP/1.1 pass over it.
const PROBE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What the connection of a request is doing.
#[derive(Debug, Default)]
pub(crate) struct ExchangeState {
    /// A request's head is here, and its response is not finished.
    is_open: AtomicBool,
    /// The request is here as a whole, and its response is not finished.
    is_answering: AtomicBool,
    /// A byte of the response was written.
    has_begun: AtomicBool,
    /// The client knows interim responses.
    knows_interim: AtomicBool,
}

impl ExchangeState {
    /// Notes that a request begins.
    pub fn begin(&self, version: Version, has_body: bool) {
        self.has_begun.store(false, Ordering::Relaxed);
        self.knows_interim.store(version >= Version::HTTP_11, Ordering::Relaxed);
        self.is_answering.store(!has_body, Ordering::Relaxed);
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// Notes that the whole body of the request is here.
    pub fn body_received(&self) {
        // What was written so far is `100 Continue`, which the client expected.
        self.has_begun.store(false, Ordering::Relaxed);
        self.is_answering.store(true, Ordering::Relaxed);
    }

    /// Whether the request is here as a whole.
    pub fn is_received(&self) -> bool {
        self.is_answering.load(Ordering::Relaxed)
    }
}

/// The body of a response; the exchange is over when it is dropped.
pub(crate) struct ExchangeBody {
    body: Body,
    state: Arc<ExchangeState>,
}

impl ExchangeBody {
    pub fn new(body: Body, state: Arc<ExchangeState>) -> ExchangeBody {
        ExchangeBody { body, state }
    }
}

impl HttpBody for ExchangeBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ExchangeBody {
    fn drop(&mut self) {
        self.state.is_answering.store(false, Ordering::Relaxed);
        self.state.is_open.store(false, Ordering::Relaxed);
    }
}

/// A client's stream. Writes fail if the client does not read for too long, and reads fail once it has left.
pub(crate) struct ClientStream<I> {
    stream: I,
    timeout: Duration,
    unread: Option<Pin<Box<Sleep>>>,
    state: Arc<ExchangeState>,
    half_closed: Option<HalfClosed>,
    /// When the first byte of the last response was written.
    begun: Option<Instant>,
    /// Bytes wait to be written, so that no probe may come between.
    is_writing: bool,
}

/// The client sends no more.
struct HalfClosed {
    timer: Pin<Box<Sleep>>,
    is_probed: bool,
}

impl<I> ClientStream<I> {
    pub fn new(stream: I, timeout: Duration, state: Arc<ExchangeState>) -> ClientStream<I> {
        ClientStream {
            stream,
            timeout,
            unread: None,
            state,
            half_closed: None,
            begun: None,
            is_writing: false,
        }
    }

    /// Returns `written`, or an error once it has been pending for too long.
    fn within_timeout<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.unread = None;
            return written;
        }
        let timeout = self.timeout;
        let unread = self.unread.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        ready!(unread.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<I: ClientSocket> ClientStream<I> {
    /// Waits until a half-closed client turns out to have left, or its response is finished.
    fn poll_left(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(half_closed) = &mut self.half_closed else {
            return Poll::Ready(Ok(()));
        };
        loop {
            ready!(half_closed.timer.as_mut().poll(context));
            if !self.state.is_answering.load(Ordering::Relaxed) {
                // The rest of the body will not come.
                return Poll::Ready(Ok(()));
            }
            let left = || Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            if self.stream.has_error() {
                return left();
            }
            let has_begun = self.state.has_begun.load(Ordering::Relaxed) || self.is_writing;
            if !half_closed.is_probed && !has_begun {
                half_closed.is_probed = true;
                if !self.state.knows_interim.load(Ordering::Relaxed) {
                    return left();
                }
                match Pin::new(&mut self.stream).poll_write(context, PROBE) {
                    Poll::Ready(Ok(written)) if written == PROBE.len() => {}
                    // A client with full buffers does not wait for a response.
                    _ => return left(),
                }
                if Pin::new(&mut self.stream).poll_flush(context).is_pending() {
                    return left();
                }
            }
            half_closed.timer.as_mut().reset(Instant::now() + PROBE_INTERVAL);
        }
    }
}

impl<I: ClientSocket> AsyncRead for ClientStream<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.half_closed.is_none() {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
            if buffer.filled().len() > before || buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            self.half_closed = Some(HalfClosed {
                timer: Box::pin(tokio::time::sleep(PROBE_DELAY)),
                is_probed: false,
            });
            let is_late = self.begun.is_some_and(|begun| begun.elapsed() > HALF_CLOSE_WINDOW);
            if self.state.has_begun.load(Ordering::Relaxed) && is_late {
                self.state.is_open.store(false, Ordering::Relaxed);
            }
        }
        // The handler may not have taken the body yet, though all of it is here.
        if self.state.is_open.load(Ordering::Relaxed) {
            self.poll_left(context)
        } else {
            Poll::Ready(Ok(()))
        }
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for ClientStream<I> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.is_writing = !matches!(written, Poll::Ready(Ok(count)) if count == bytes.len());
        if matches!(written, Poll::Ready(Ok(1..))) && !self.state.has_begun.swap(true, Ordering::Relaxed) {
            self.begun = Some(Instant::now());
        }
        self.within_timeout(written, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.stream).poll_flush(context);
        self.within_timeout(written, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.stream).poll_shutdown(context);
        self.within_timeout(written, context)
    }
}
