//! Connections: how many there may be, and how long each may keep a place.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::serve::Listener;
use futures_util::future::{self, Either};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Semaphore, watch};
use tokio::time::Sleep;

use crate::tls::Certificate;

/// Connections at most: who comes then waits for one to end.
const MOST: usize = 4096;
/// Bytes that are held of what comes and goes by a connection.
const BUFFER: usize = 64 << 10;
/// Bytes of bodies on their way at most.
const BODIES: usize = 256 << 20;
/// How long texts under way may take when no more are taken.
const GRACE: Duration = Duration::from_secs(30);

/// What a request came by.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    /// Whose it is, if it is from an address.
    pub address: Option<IpAddr>,
    /// How long its client may take for its part.
    pub patience: Duration,
    /// Bytes of a request's body at most.
    pub body_bytes: usize,
    /// Bytes that bodies may have of which not all has come yet, those of all connections together.
    pub room: Arc<Semaphore>,
}

/// How whoever connects is answered.
#[derive(Clone)]
pub(crate) struct Connections {
    pub router: Router,
    pub certificate: Option<Certificate>,
    pub patience: Duration,
    pub body_bytes: usize,
}

impl Connections {
    /// Answers whoever connects until it is over, and then what is under way, for a while.
    pub async fn answer<L: Listener>(
        &self,
        mut listener: L,
        address: fn(&L::Io, L::Addr) -> Option<IpAddr>,
        over: impl Future<Output = ()>,
    ) {
        let places = Arc::new(Semaphore::new(MOST));
        let room = Arc::new(Semaphore::new(BODIES));
        let (ending, ends) = watch::channel(());
        let mut over = pin!(over);
        loop {
            let next = async {
                let place = places.clone().acquire_owned().await;
                (place, listener.accept().await)
            };
            let Either::Right(((place, (stream, from)), _)) = future::select(over.as_mut(), pin!(next)).await else {
                break;
            };
            let connection = Connection {
                address: address(&stream, from),
                patience: self.patience,
                body_bytes: self.body_bytes,
                room: room.clone(),
            };
            let (connections, ends) = (self.clone(), ends.clone());
            tokio::spawn(async move {
                let _until_it_is_over = place;
                connections.converse(stream, connection, ends).await;
            });
        }
        drop((listener, ending));
        let _ = tokio::time::timeout(GRACE, places.acquire_many(MOST as u32)).await;
    }

    /// Answers one client as long as it asks, or until `ends` has no sender.
    async fn converse<I>(self, stream: I, connection: Connection, ends: watch::Receiver<()>)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match &self.certificate {
            Some(certificate) => {
                let hands = tokio::time::timeout(self.patience, certificate.shake_hands(stream));
                if let Ok(Ok(stream)) = hands.await {
                    self.exchange(stream, connection, ends).await;
                }
            }
            None => self.exchange(stream, connection, ends).await,
        }
    }

    async fn exchange<I>(&self, stream: I, connection: Connection, mut ends: watch::Receiver<()>)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let router = TowerToHyperService::new(self.router.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(connection.clone());
            router.call(request)
        });
        let mut exchange = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(self.patience)
                .max_buf_size(BUFFER)
                .serve_connection(TokioIo::new(Impatient::new(stream, self.patience)), service)
        );
        // Whoever breaks a connection hears nothing of it: there is nothing to be done.
        let over = match future::select(exchange.as_mut(), pin!(ends.changed())).await {
            Either::Left(_) => return,
            Either::Right(_) => exchange.as_mut(),
        };
        over.graceful_shutdown();
        let _ = exchange.await;
    }
}

/// A stream that fails where what was written to it is not read for too long.
struct Impatient<I> {
    stream: I,
    patience: Duration,
    unread: Option<Pin<Box<Sleep>>>,
}

impl<I> Impatient<I> {
    fn new(stream: I, patience: Duration) -> Impatient<I> {
        Impatient {
            stream,
            patience,
            unread: None,
        }
    }

    /// `written`, or an error once it has been pending for too long.
    fn within_patience<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.unread = None;
            return written;
        }
        let patience = self.patience;
        let unread = self
            .unread
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(unread.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Impatient<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Impatient<I> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.within_patience(written, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.stream).poll_flush(context);
        self.within_patience(written, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.stream).poll_shutdown(context);
        self.within_patience(written, context)
    }
}
