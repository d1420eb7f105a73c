//! Listens, admits requests, answers them, and stops.

use crate::admission::Admission;
use crate::body;
use crate::connections::{Connections, Entry, Work};
use crate::events::{NOTHING, Next, Sending, Sent, Source, encoded};
use crate::options::{Bearers, Error, Limits, Options, Refused};
use crate::request::Request;
use crate::response::{Content, Response};
use crate::secured;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header;
use hyper::http::{Method, StatusCode};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

/// Between two looks at connections that take too long.
const SWEEP: Duration = Duration::from_secs(1);
/// Until the next attempt where the system gives no more descriptors.
const RETRY: Duration = Duration::from_millis(100);
/// Pairs of descriptors that a runtime needs at most: for its events, its wake-ups and its signals.
const RUNTIME_PAIRS: usize = 4;
/// Without an event for so long, a stream is sent that there is nothing.
const QUIET: Duration = Duration::from_secs(15);

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: std::net::TcpListener,
    address: SocketAddr,
    options: Options,
}

/// Stops a server.
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Stop {
    /// Stops it: no more requests are taken, event streams end, responses are sent to their end.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Returns when it was stopped.
    async fn stopped(&self) {
        // The sender is in `self`: it cannot be gone.
        let _ = self.0.subscribe().wait_for(|stopped| *stopped).await;
    }
}

/// The state that all connections share.
struct Shared {
    answer: Box<dyn Fn(&Request) -> Response + Send + Sync>,
    admission: Admission,
    tls: Option<apex_tls::Server>,
    limits: Limits,
    body_bytes: usize,
    refused: Option<Refused>,
    connections: Connections,
    answers: Arc<Semaphore>,
    heavy_answers: Arc<Semaphore>,
    is_heavy: fn(&Request) -> bool,
    /// Places in which events are computed: streams, which ask again and again, take none of those
    /// of answers.
    events: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    stop: Stop,
}

impl Server {
    /// Listens.
    ///
    /// # Errors
    /// If the address is not loopback and there is no token, or if it is not to be had.
    pub fn bind(options: Options) -> Result<Self, Error> {
        let address = options.address;
        if !address.ip().is_loopback() && options.token.is_none() && options.bearers.is_none() {
            return Err(Error::NeedsToken(address));
        }
        let listen = || {
            let listener = std::net::TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = listen().map_err(|error| Error::Listen(address, error))?;
        Ok(Self { listener, address, options })
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address that a browser opens, with the token in it. Where it listens on all
    /// addresses of the machine, this has the machine's name.
    pub fn url(&self) -> String {
        let scheme = if self.options.tls.is_some() { "https" } else { "http" };
        let query =
            self.options.token.as_ref().map_or(String::new(), |token| format!("?token={}", token.text()));
        match self.address.ip().is_unspecified() {
            true => format!("{scheme}://{}:{}/{query}", host_name(), self.address.port()),
            false => format!("{scheme}://{}/{query}", self.address),
        }
    }

    /// Answers until SIGINT or SIGTERM comes, which do nothing else from then on.
    ///
    /// # Errors
    /// If the system gives no means to serve.
    pub fn run(self, answer: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Result<(), Error> {
        self.serve(&Stop::default(), true, Box::new(answer))
    }

    /// Answers until it is stopped.
    ///
    /// # Errors
    /// If the system gives no means to serve.
    pub fn run_until(
        self,
        stop: &Stop,
        answer: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.serve(stop, false, Box::new(answer))
    }

    fn serve(
        self,
        stop: &Stop,
        by_signals: bool,
        answer: Box<dyn Fn(&Request) -> Response + Send + Sync>,
    ) -> Result<(), Error> {
        let Options { tls, token, bearers, posts, refused, limits, is_heavy, .. } = self.options;
        let bearers = bearers.or(token.map(Bearers::from));
        let shared = Arc::new(Shared {
            answer,
            admission: Admission::new(self.address, bearers, posts, tls.is_some()),
            tls,
            body_bytes: posts.map_or(0, |posts| posts.most_bytes),
            refused,
            connections: Connections::default(),
            answers: Arc::new(Semaphore::new(limits.answers)),
            heavy_answers: Arc::new(Semaphore::new(limits.heavy_answers)),
            is_heavy,
            events: Arc::new(Semaphore::new(limits.answers)),
            streams: Arc::new(Semaphore::new(limits.streams)),
            stop: stop.clone(),
            limits,
        });
        has_descriptors().map_err(Error::Serve)?;
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let computing = 2 * shared.limits.answers;
        runtime.enable_all().max_blocking_threads(computing).thread_name("apex-http");
        let runtime = runtime.build().map_err(Error::Serve)?;
        let served = runtime.block_on(async {
            if by_signals {
                stop_on_signals(stop.clone())?;
            }
            accept(TcpListener::from_std(self.listener)?, &shared).await;
            let mut closed = interval(Duration::from_millis(10));
            let end = Instant::now() + shared.limits.stop_time;
            while !shared.connections.is_empty() && Instant::now() < end {
                closed.tick().await;
            }
            Ok(())
        });
        // An answer that is still computed is not waited for.
        runtime.shutdown_background();
        served.map_err(Error::Serve)
    }
}

/// The machine's name, or one that leads to it from itself.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let is_name = |name: &&str| {
        !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.'))
    };
    Some(name.trim()).filter(is_name).unwrap_or("localhost").to_owned()
}

/// An error if the system does not give the descriptors that a runtime needs, for which tokio
/// panics.
fn has_descriptors() -> std::io::Result<()> {
    let pairs: std::io::Result<Vec<_>> = (0..RUNTIME_PAIRS).map(|_| UnixStream::pair()).collect();
    pairs.map(drop)
}

fn stop_on_signals(stop: Stop) -> std::io::Result<()> {
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let (mut signal, stop) = (signal(kind)?, stop.clone());
        tokio::spawn(async move {
            signal.recv().await;
            stop.stop();
        });
    }
    Ok(())
}

/// Whichever of two is ready first: the first one, as `Ok`, if both are. The other is not polled
/// on.
async fn first<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> Result<A, B> {
    let (mut a, mut b) = (pin!(a), pin!(b));
    poll_fn(|context| match a.as_mut().poll(context) {
        Poll::Ready(a) => Poll::Ready(Ok(a)),
        Poll::Pending => b.as_mut().poll(context).map(Err),
    })
    .await
}

/// Takes connections until the server is stopped.
async fn accept(listener: TcpListener, shared: &Arc<Shared>) {
    let sweeping = Arc::clone(shared);
    tokio::spawn(async move {
        let mut sweep = interval(SWEEP);
        loop {
            sweep.tick().await;
            sweeping.connections.close_overdue(&sweeping.limits);
        }
    });
    while let Ok(accepted) = first(listener.accept(), shared.stop.stopped()).await {
        let Ok((stream, _)) = accepted else {
            sleep(RETRY).await;
            continue;
        };
        // Where all of them work, the newest has to go.
        let Some(entry) = shared.connections.admit(shared.limits.connections) else { continue };
        let task = tokio::spawn(serve(stream, Arc::clone(&entry), Arc::clone(shared)));
        entry.served_by(task.abort_handle());
    }
}

/// Serves one connection. (While it is being encrypted, it waits for its first head.)
async fn serve(stream: TcpStream, entry: Arc<Entry>, shared: Arc<Shared>) {
    // Events are short, and nothing follows them for a second.
    let _ = stream.set_nodelay(true);
    let Some(tls) = &shared.tls else { return serve_over(stream, entry, shared).await };
    if let Some(stream) = secured::accept(tls, stream).await {
        serve_over(stream, entry, Arc::clone(&shared)).await;
    }
}

async fn serve_over<S>(stream: S, entry: Arc<Entry>, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &shared.limits;
    let service = service_fn(|request| {
        let (shared, work) = (Arc::clone(&shared), entry.work());
        async move { Ok::<_, Infallible>(shared.respond(request, work).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head_time);
    http.max_buf_size(limits.head_bytes).max_headers(limits.headers);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    // What is wrong with a connection is its client's affair.
    if first(connection.as_mut(), shared.stop.stopped()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

impl Shared {
    async fn respond(
        self: Arc<Self>,
        request: hyper::Request<Incoming>,
        work: Work,
    ) -> hyper::Response<Sent> {
        let is_head = *request.method() == Method::HEAD;
        let mut response = match self.admission.admit(&request) {
            Ok(bearer) => Arc::clone(&self).answered(request, bearer).await,
            Err(refusal) => {
                // An unread body must not be taken for the next request.
                let close = !request.body().is_end_stream();
                self.told(if close { refusal.with_header(header::CONNECTION, "close") } else { *refusal })
            }
        };
        let content = match response.content {
            Content::Bytes(bytes) => Sending::Bytes(Some(bytes)),
            Content::Events(..) if is_head => Sending::Bytes(None),
            Content::Events(every, source) => match Arc::clone(&self.streams).try_acquire_owned() {
                Ok(place) => Sending::Events { events: self.stream(every, source), _place: place },
                Err(_) => {
                    response = overloaded("too many event streams are open: close a page");
                    let Content::Bytes(why) = response.content else { unreachable!("overloaded is text") };
                    Sending::Bytes(Some(why))
                }
            },
        };
        let mut sent = hyper::Response::new(Sent { content, work });
        *sent.status_mut() = response.status;
        *sent.headers_mut() = response.headers;
        sent
    }

    /// The response to a refused request, of which somebody is told.
    fn told(&self, refusal: Response) -> Response {
        if let Some(refused) = &self.refused {
            refused.tell(refusal.status);
        }
        refusal
    }

    /// The body of a POST, `None` of other requests.
    async fn posted(&self, method: &Method, body: Incoming) -> Result<Option<Bytes>, Box<Response>> {
        if *method != Method::POST {
            return Ok(None);
        }
        let late = || Response::text(StatusCode::REQUEST_TIMEOUT, "the body took too long");
        let read = timeout(self.limits.body_time, body::read(body, self.body_bytes)).await;
        let refused =
            |refusal: Box<Response>| Box::new(self.told(refusal.with_header(header::CONNECTION, "close")));
        read.unwrap_or_else(|_| Err(Box::new(late()))).map(Some).map_err(refused)
    }

    /// The answer, computed beside this thread.
    async fn answered(self: Arc<Self>, request: hyper::Request<Incoming>, bearer: Arc<str>) -> Response {
        let (parts, body) = request.into_parts();
        let posted = match self.posted(&parts.method, body).await {
            Ok(posted) => posted,
            Err(refusal) => return *refusal,
        };
        let Some(request) = Request::new(&parts.uri).map(|request| request.of(bearer, posted)) else {
            return Response::text(StatusCode::BAD_REQUEST, "the address is not percent-encoded UTF-8");
        };
        let time = self.limits.request_time;
        let computed = async {
            // (A heavy one waits before it takes a place that another could have.)
            let heavy = match (self.is_heavy)(&request) {
                true => Some(Arc::clone(&self.heavy_answers).acquire_owned().await),
                false => None,
            };
            let place = Arc::clone(&self.answers).acquire_owned().await;
            let shared = Arc::clone(&self);
            let task = tokio::task::spawn_blocking(move || {
                let _places = (place, heavy);
                (shared.answer)(&request)
            });
            task.await
        };
        match timeout(time, computed).await {
            Ok(Ok(response)) => response,
            Ok(Err(_)) => {
                Response::text(StatusCode::INTERNAL_SERVER_ERROR, "this could not be answered: see stderr")
            }
            Err(_) => overloaded("this took too long: ask for less, or later"),
        }
    }

    /// Asks for events until there are no more, or the client is gone.
    fn stream(self: Arc<Self>, every: Duration, mut source: Source) -> mpsc::Receiver<Bytes> {
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut ticks = interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut told = Instant::now();
            let ended = async {
                let _ = first(sender.closed(), self.stop.stopped()).await;
            };
            let mut ended = pin!(ended);
            loop {
                if first(ticks.tick(), ended.as_mut()).await.is_err() {
                    return;
                }
                // Nothing is computed before what was computed last has been taken.
                let Ok(Ok(free)) = first(sender.reserve(), ended.as_mut()).await else { return };
                let place = Arc::clone(&self.events).acquire_owned().await;
                let asked = tokio::task::spawn_blocking(move || {
                    let _place = place;
                    (source(), source)
                });
                let Ok((next, asked)) = asked.await else { return };
                source = asked;
                let (events, is_last) = match next {
                    Next::Events(events) => (events, false),
                    Next::Last(events) => (events, true),
                    Next::Later(pause) => {
                        ticks.reset_after(pause.min(QUIET));
                        (Vec::new(), false)
                    }
                };
                if !events.is_empty() {
                    free.send(encoded(&events));
                } else if told.elapsed() >= QUIET {
                    free.send(NOTHING);
                } else if !is_last {
                    continue;
                }
                if is_last {
                    return;
                }
                told = Instant::now();
            }
        });
        receiver
    }
}

fn overloaded(why: &str) -> Response {
    Response::text(StatusCode::SERVICE_UNAVAILABLE, why).with_header(header::RETRY_AFTER, "1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Token;

    #[test]
    fn the_address_to_open_is_one_that_a_browser_reaches() {
        let url = |address: &str| {
            let token = Some(Token::new("0123456789abcdef").unwrap());
            let options = Options { address: address.parse().unwrap(), token, ..Options::default() };
            Server::bind(options).unwrap().url()
        };
        assert!(url("127.0.0.1:0").starts_with("http://127.0.0.1:"));
        let all = url("0.0.0.0:0");
        assert!(!all.contains("0.0.0.0") && all.ends_with("/?token=0123456789abcdef"), "{all}");
        assert!(!host_name().is_empty());
    }
}
