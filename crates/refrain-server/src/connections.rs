//! Accepts connections, serves HTTP on them, and ends them in time.

use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::response::Response;
use axum::serve::Listener;
use futures_util::future::{self, Either};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{Semaphore, watch};

use crate::client_stream::{ClientStream, ExchangeBody, ExchangeState};
use crate::memory::FreedOnDrop;
use crate::platform::ClientSocket;
use crate::tls::Certificate;

/// Maximum number of open connections; further ones wait until one ends.
const MAX_CONNECTIONS: usize = 4096;
/// Maximum number of bytes that are buffered of a connection. A request's head must fit.
const MAX_BUFFERED_BYTES: usize = 64 << 10;
/// Maximum number of bytes of all request bodies that are received or wait to be tokenized.
const MAX_BODIES_BYTES: usize = 256 << 20;
/// Time that running requests have to finish when the server stops.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(30);

/// The connection of a request.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    /// The client's address; `None` for a Unix socket.
    pub address: Option<IpAddr>,
    /// Time that the client has to send a request.
    pub timeout: Duration,
    /// Maximum number of bytes of a request's body.
    pub max_body_bytes: usize,
    /// Free bytes for the bodies of all connections.
    pub room: Arc<Semaphore>,
    /// What the connection is doing.
    pub state: Arc<ExchangeState>,
}

/// How clients are served.
#[derive(Clone)]
pub(crate) struct Connections {
    pub router: Router,
    pub certificate: Option<Certificate>,
    pub timeout: Duration,
    pub max_body_bytes: usize,
}

impl Connections {
    /// Serves clients until `stop` is ready. Then closes the listener, drops `socket`, and lets running requests
    /// finish for a while.
    pub async fn serve<L: Listener<Io: ClientSocket>, S>(
        &self,
        mut listener: L,
        socket: S,
        address: fn(&L::Io, L::Addr) -> Option<IpAddr>,
        stop: impl Future<Output = ()>,
    ) {
        let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let room = Arc::new(Semaphore::new(MAX_BODIES_BYTES));
        let (stopping, stopped) = watch::channel(());
        let mut stop = pin!(stop);
        loop {
            let next = async {
                let permit = free.clone().acquire_owned().await;
                (permit, listener.accept().await)
            };
            let Either::Right(((permit, (stream, from)), _)) = future::select(stop.as_mut(), pin!(next)).await else {
                break;
            };
            let connection = Connection {
                address: address(&stream, from),
                timeout: self.timeout,
                max_body_bytes: self.max_body_bytes,
                room: room.clone(),
                state: Arc::default(),
            };
            let (connections, stopped) = (self.clone(), stopped.clone());
            tokio::spawn(async move {
                let _permit = permit;
                let _freed = FreedOnDrop(MAX_BUFFERED_BYTES);
                connections.serve_client(stream, connection, stopped).await;
            });
        }
        drop((listener, socket, stopping));
        let _ = tokio::time::timeout(SHUTDOWN_GRACE, free.acquire_many(MAX_CONNECTIONS as u32)).await;
    }

    /// Serves one client until it leaves, or until `stopped` has no sender.
    async fn serve_client<I: ClientSocket>(self, stream: I, connection: Connection, stopped: watch::Receiver<()>) {
        match &self.certificate {
            Some(certificate) => {
                let handshake = tokio::time::timeout(self.timeout, certificate.accept(stream));
                if let Ok(Ok(stream)) = handshake.await {
                    self.serve_http(stream, connection, stopped).await;
                }
            }
            None => self.serve_http(stream, connection, stopped).await,
        }
    }

    async fn serve_http<I: ClientSocket>(&self, stream: I, connection: Connection, mut stopped: watch::Receiver<()>) {
        let router = TowerToHyperService::new(self.router.clone());
        let state = connection.state.clone();
        let stream = ClientStream::new(stream, self.timeout, state.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            state.begin(request.version(), !request.body().is_end_stream());
            request.extensions_mut().insert(connection.clone());
            let (response, state) = (router.call(request), state.clone());
            async move {
                let mut response: Response = response.await?;
                // A body that nobody read ends the connection, so the client must not send another request on it.
                if !state.is_received() {
                    response
                        .headers_mut()
                        .insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, std::convert::Infallible>(response.map(|body| Body::new(ExchangeBody::new(body, state))))
            }
        });
        let mut exchange = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(self.timeout)
                .max_buf_size(MAX_BUFFERED_BYTES)
                .serve_connection(TokioIo::new(stream), service)
        );
        // Nothing can be done about a connection that breaks.
        if let Either::Right(_) = future::select(exchange.as_mut(), pin!(stopped.changed())).await {
            exchange.as_mut().graceful_shutdown();
            let _ = exchange.await;
        }
    }
}
