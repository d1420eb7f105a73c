//! The server by raw sockets: what it answers, what it refuses, what it bears, how it stops.

use apex_http::{
    Bearers, Error, Event, Limits, Next, Options, Posts, Refused, Request, Response, Server, StatusCode,
    Stop, Token,
};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const TOKEN: &str = "0123456789abcdef";
/// The longest time that a test waits: a server that hangs fails it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server in a thread, stopped with it.
struct Running {
    address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Running {
    fn with(options: Options, answer: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Self {
        let server = Server::bind(options).unwrap();
        let (address, stop) = (server.address(), Stop::default());
        let stopper = stop.clone();
        let thread = std::thread::spawn(move || server.run_until(&stopper, answer));
        Self { address, stop, thread: Some(thread) }
    }

    fn echo(options: Options) -> Self {
        Self::with(options, |request| Response::text(StatusCode::OK, request.segments().join("|")))
    }

    fn bounded(limits: Limits) -> Options {
        Options { limits, ..Options::default() }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// All that comes back for these bytes until the server closes.
    fn send(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect();
        // The server may have refused it before it has all of it.
        let _ = stream.write_all(bytes.as_ref());
        rest(&mut stream)
    }

    /// The response to a request of these headers, which closes its connection.
    fn get(&self, path: &str, headers: &[&str]) -> String {
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        self.send(format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n"))
    }

    fn finish(mut self) -> Result<(), Error> {
        self.stop.stop();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

/// Reads until the other side closes.
fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    // A connection that the server resets ends as well.
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..read]);
    }
    String::from_utf8(bytes).unwrap()
}

/// Reads until the text ends with `end`.
fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let (mut text, mut byte) = (String::new(), [0]);
    while !text.ends_with(end) {
        stream.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error} after {text:?}"));
        text.push(char::from(byte[0]));
    }
    text
}

fn status(response: &str) -> u16 {
    let code = response.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    code.and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no status in {response:?}"))
}

#[test]
fn it_listens_on_loopback_and_beyond_with_a_token_alone() {
    assert!(Server::bind(Options::default()).unwrap().address().ip().is_loopback());
    let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let open = Options { address: everywhere, ..Options::default() };
    let error = Server::bind(open.clone()).unwrap_err().to_string();
    assert!(error.contains("needs a token"), "{error}");
    let guarded = Server::bind(Options { token: Token::new(TOKEN).ok(), ..open }).unwrap();
    assert!(guarded.url().ends_with(&format!("/?token={TOKEN}")), "{}", guarded.url());
    for unusable in ["short", "0123456789abcde;", "0123456789abcdef\n"] {
        assert!(Token::new(unusable).is_err(), "{unusable:?}");
    }
}

#[test]
fn requests_are_answered_and_a_connection_carries_several() {
    let server = Running::echo(Options::default());
    let answer = server.get("/a%20b/c?d", &["Host: localhost"]);
    assert_eq!(status(&answer), 200);
    assert!(answer.ends_with("\r\n\r\na b|c\n"), "{answer}");
    let mut stream = server.connect();
    for path in ["first", "second"] {
        write!(stream, "GET /{path} HTTP/1.1\r\nHost: localhost:1\r\n\r\n").unwrap();
        assert!(read_until(&mut stream, &format!("\r\n\r\n{path}\n")).contains("content-length"));
    }
    write!(stream, "HEAD /third HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\n\r\n").unwrap();
    let head = rest(&mut stream);
    assert!(head.contains("content-length: 6") && head.ends_with("\r\n\r\n"), "{head}");
    drop(stream);
    server.finish().unwrap();
}

#[test]
fn every_response_tells_the_browser_to_keep_and_guess_nothing() {
    let server = Running::with(Options::default(), |request| match request.segments()[..] {
        ["page"] => Response::new(StatusCode::OK, "text/html", "<p>").with_policy("default-src 'self'"),
        _ => panic!("a page that panics"),
    });
    let (page, error) = (server.get("/page", &["Host: localhost"]), server.get("/", &["Host: localhost"]));
    let refused = server.get("/page", &["Host: elsewhere.example"]);
    assert_eq!([&page, &error, &refused].map(|response| status(response)), [200, 500, 421]);
    assert!(page.contains("content-security-policy: default-src 'self'; frame-ancestors 'none'\r\n"));
    for response in [&error, &refused] {
        assert!(response.contains("content-security-policy: default-src 'none'; "), "{response}");
    }
    for response in [&page, &error, &refused] {
        for header in [
            "cache-control: no-store",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "x-frame-options: DENY",
            "cross-origin-resource-policy: same-origin",
            "cross-origin-opener-policy: same-origin",
        ] {
            assert!(response.contains(&format!("{header}\r\n")), "{header}: {response}");
        }
    }
    assert_eq!(status(&server.get("/page", &["Host: localhost"])), 200, "after a panic");
}

#[test]
fn names_that_may_be_rebound_are_refused() {
    let server = Running::echo(Options::default());
    let port = server.address.port();
    for host in ["localhost", "LocalHost:9", "127.0.0.1", "127.9.9.9:80", "[::1]", "[::1]:8000"] {
        assert_eq!(status(&server.get("/", &[&format!("Host: {host}")])), 200, "{host}");
    }
    for host in
        ["attacker.example", "localhost.attacker.example", "127.0.0.1.attacker.example", "192.168.0.1"]
    {
        assert_eq!(status(&server.get("/", &[&format!("Host: {host}:{port}")])), 421, "{host}");
    }
    for hosts in [&[][..], &["Host:"], &["Host: localhost", "Host: attacker.example"], &["Host: a@localhost"]]
    {
        assert_eq!(status(&server.get("/", hosts)), 400, "{hosts:?}");
    }
    for target in ["http://attacker.example/", "http://localhost/", "//attacker.example"] {
        let response = server.get(target, &["Host: localhost"]);
        assert!(status(&response) == 400 || target.starts_with("//"), "{target}: {response}");
    }
}

#[test]
fn pages_of_other_origins_are_refused() {
    let server = Running::echo(Options::default());
    let answered = |headers: &[&str]| {
        let headers: Vec<&str> = [&["Host: localhost:8000"], headers].concat();
        status(&server.get("/", &headers))
    };
    assert_eq!(answered(&["Origin: http://localhost:8000", "Sec-Fetch-Site: same-origin"]), 200);
    for origin in
        ["null", "http://attacker.example", "http://localhost:8001", "http://localhost:8000.example", ""]
    {
        assert_eq!(answered(&[&format!("Origin: {origin}")]), 403, "{origin}");
    }
    assert_eq!(
        answered(&["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: script"]),
        403
    );
    assert_eq!(
        answered(&["Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"]),
        403
    );
    let followed = ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"];
    assert_eq!(answered(&followed), 200, "a link that the user follows");
    // Each of several origins has to be the page's own, and each of the three words counts.
    let own = "Origin: http://localhost:8000";
    assert_eq!(answered(&[own, own]), 200);
    assert_eq!(answered(&[own, "Origin: http://attacker.example"]), 403);
    assert_eq!(answered(&["Origin: http://attacker.example", own]), 403);
    assert_eq!(answered(&["Origin: https://localhost:8000"]), 200, "a proxy in front speaks TLS");
    assert_eq!(answered(&["Origin: ftp://localhost:8000"]), 403);
    assert_eq!(answered(&["Origin: http://LOCALHOST:8000"]), 200);
    let fetched = |site: &str, mode: &str, to: &str| {
        let words = [("Site", site), ("Mode", mode), ("Dest", to)];
        let headers = words.map(|(name, word)| format!("Sec-Fetch-{name}: {word}"));
        answered(&headers.each_ref().map(String::as_str))
    };
    for site in ["cross-site", "same-site"] {
        assert_eq!(fetched(site, "navigate", "document"), 200, "{site}");
        assert_eq!(fetched(site, "cors", "document"), 403, "{site}");
        assert_eq!(fetched(site, "navigate", "empty"), 403, "{site}");
    }
    assert_eq!(fetched("same-origin", "cors", "empty"), 200);
    assert_eq!(fetched("none", "navigate", "document"), 200);
    // A link does not excuse a foreign origin.
    assert_eq!(answered(&[&followed[..], &["Origin: http://attacker.example"]].concat()), 403);
}

#[test]
fn a_token_is_demanded_of_each_request() {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let mut server = Running::echo(Options { address, token: Token::new(TOKEN).ok(), ..Options::default() });
    server.address.set_ip(Ipv4Addr::LOCALHOST.into());
    let get = |path: &str, header: &str| server.get(path, &["Host: machine.example", header]);
    for header in
        ["X: y", "Authorization: Bearer 0123456789abcdeX", "Authorization: Bearer", "Cookie: apex-token-1=x"]
    {
        let refused = get("/?token=0123456789abcde", header);
        assert_eq!(status(&refused), 401, "{header}");
        assert!(refused.contains("www-authenticate: Bearer\r\n") && !refused.contains(TOKEN));
    }
    assert_eq!(status(&get("/", &format!("Authorization: Bearer {TOKEN}"))), 200);
    for scheme in ["bearer", "BEARER", "bEaReR ", "Bearer  "] {
        assert_eq!(status(&get("/", &format!("Authorization: {scheme} {TOKEN}"))), 200, "{scheme}");
    }
    for value in ["", "Bearer", "Basic ", "Bearerx ", "XBearer ", "Bearer\t", "Bearer x "] {
        assert_eq!(status(&get("/", &format!("Authorization: {value}{TOKEN}"))), 401, "{value:?}");
    }
    let cookie = format!("apex-token-{}={TOKEN}", server.address.port());
    assert_eq!(status(&get("/", &format!("Cookie: a=b; {cookie}"))), 200);
    assert_eq!(status(&get("/", &format!("Cookie: {cookie}; a=b"))), 200);
    let port = server.address.port();
    for name in ["", "a", "token", "apex-token-1", "apex-token", &format!("xapex-token-{port}")] {
        assert_eq!(status(&get("/", &format!("Cookie: {name}={TOKEN}"))), 401, "{name}");
    }
    for query in ["xtoken=", "tokens=", "Token=", "token", "a=token="] {
        assert_eq!(status(&get(&format!("/?{query}{TOKEN}"), "X: y")), 401, "{query}");
    }
    // The address that was printed: the token goes into a cookie, and out of the address.
    let sent_on = get(&format!("//attacker.example/s?a=1&token={TOKEN}&b=2"), "X: y");
    assert_eq!(status(&sent_on), 303);
    assert!(sent_on.contains("location: /attacker.example/s?a=1&b=2\r\n"), "{sent_on}");
    assert!(sent_on.contains(&format!("set-cookie: {cookie}; Path=/; HttpOnly; SameSite=Strict\r\n")));
}

#[test]
fn malformed_and_oversized_requests_are_refused() {
    let server = Running::echo(Options::default());
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "BREW"] {
        let refused =
            server.send(format!("{method} / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        assert_eq!(status(&refused), 405, "{method}");
        assert!(refused.contains("allow: GET, HEAD\r\n"));
    }
    let second = "GET /second HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for body in ["Content-Length: 99999999\r\n", "Content-Length: 1\r\n", "Transfer-Encoding: chunked\r\n"] {
        let refused = server.send(format!("GET / HTTP/1.1\r\nHost: localhost\r\n{body}\r\n{second}"));
        assert_eq!(status(&refused), 413, "{body}");
        assert!(!refused.contains("second"), "a body was taken for a request: {refused}");
    }
    let long = "x".repeat(20_000);
    let many: Vec<String> = (0..100).map(|number| format!("X-{number}: y")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).chain(["Host: localhost"]).collect();
    for refused in [
        server.get(&format!("/{long}"), &["Host: localhost"]),
        server.get("/", &["Host: localhost", &format!("X: {long}")]),
        server.get("/", &many),
    ] {
        assert!([414, 431].contains(&status(&refused)), "{refused}");
    }
    for garbage in
        ["\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "\0\0\0\0\r\n\r\n", "\u{16}\u{3}\u{1}\r\n\r\n"]
    {
        let answer = server.send(format!("{garbage}GET / HTTP/1.1\r\nConnection: close\r\n\r\n"));
        assert!(answer.is_empty() || status(&answer) == 400, "{garbage:?}: {answer}");
    }
    assert_eq!(status(&server.get("/%ff", &["Host: localhost"])), 400);
    assert_eq!(status(&server.get("/", &["Host: localhost"])), 200, "after all of these");
}

#[test]
fn a_head_that_never_ends_loses_its_connection() {
    let head_time = Duration::from_millis(200);
    let server = Running::echo(Running::bounded(Limits { head_time, ..Limits::default() }));
    for begun in ["", "GET / HTTP/1.1\r\nHost: loc", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
        let answer = server.send(begun);
        assert!(!answer.contains("200 OK") || begun.ends_with("\r\n\r\n"), "{answer}");
    }
}

#[test]
fn an_answer_that_takes_too_long_is_given_up() {
    let limits = Limits { request_time: Duration::from_millis(200), answers: 2, ..Limits::default() };
    let (sender, receiver) = channel::<()>();
    let receiver = Mutex::new(receiver);
    let server = Running::with(Running::bounded(limits), move |_| {
        // Until the test has ended.
        let _ = receiver.lock().unwrap().recv();
        Response::text(StatusCode::OK, "late")
    });
    // More than can be computed at once: those that wait for their turn are given up as well.
    let answers: Vec<_> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..4).map(|_| scope.spawn(|| server.get("/", &["Host: localhost"]))).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    for answer in answers {
        assert_eq!(status(&answer), 503);
        assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
    }
    drop(sender);
    server.finish().unwrap();
}

#[test]
fn light_answers_and_events_do_not_wait_for_heavy_answers() {
    let limits = Limits { answers: 2, heavy_answers: 1, ..Limits::default() };
    let (sender, receiver) = channel::<()>();
    let receiver = Mutex::new(receiver);
    let (began, begins) = channel();
    let answer = move |request: &Request| match request.segments()[..] {
        ["heavy"] => {
            began.send(()).unwrap();
            // Until the test has ended.
            let _ = receiver.lock().unwrap().recv();
            Response::text(StatusCode::OK, "heavy")
        }
        ["events"] => {
            let event = || Next::Last(vec![Event { name: "light", data: "".into() }]);
            Response::events(Duration::from_millis(5), event)
        }
        _ => Response::text(StatusCode::OK, "light"),
    };
    let is_heavy = |request: &Request| request.segments()[..] == ["heavy"];
    let server = Running::with(Options { limits, is_heavy, ..Options::default() }, answer);
    std::thread::scope(|scope| {
        let ask = || server.get("/heavy", &["Host: localhost"]);
        let heavy: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        begins.recv().unwrap();
        assert!(server.get("/", &["Host: localhost"]).trim_end().ends_with("light"));
        assert!(server.get("/events", &["Host: localhost"]).contains("event: light"));
        drop(sender);
        assert!(heavy.into_iter().all(|asked| asked.join().unwrap().trim_end().ends_with("heavy")));
    });
    server.finish().unwrap();
}

#[test]
fn events_that_take_long_leave_places_for_answers() {
    let limits = Limits { answers: 1, ..Limits::default() };
    let (sender, receiver) = channel::<()>();
    let receiver = Arc::new(Mutex::new(receiver));
    let (began, begins) = channel();
    let answer = move |request: &Request| {
        if request.segments() != ["events"] {
            return Response::text(StatusCode::OK, "light");
        }
        let (receiver, began) = (Arc::clone(&receiver), began.clone());
        Response::events(Duration::from_millis(5), move || {
            began.send(()).unwrap();
            let _ = receiver.lock().unwrap().recv();
            Next::Last(Vec::new())
        })
    };
    let server = Running::with(Running::bounded(limits), answer);
    let mut stream = server.connect();
    stream.write_all(EVENTS).unwrap();
    begins.recv().unwrap();
    assert!(server.get("/", &["Host: localhost"]).trim_end().ends_with("light"));
    drop(sender);
    rest(&mut stream);
    server.finish().unwrap();
}

#[test]
fn idle_connections_make_room() {
    let server = Running::echo(Running::bounded(Limits { connections: 20, ..Limits::default() }));
    let mut idle: Vec<TcpStream> = (0..200).map(|_| server.connect()).collect();
    for stream in idle.iter_mut().skip(1).step_by(2) {
        // Part of a head counts as nothing.
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: ");
    }
    for _ in 0..3 {
        assert_eq!(status(&server.get("/", &["Host: localhost"])), 200);
    }
    assert_eq!(rest(&mut idle[0]), "", "the one that was idle longest is closed");
}

/// A stream of numbers, each when the test sends it.
fn numbers(every: Duration) -> (std::sync::mpsc::Sender<u32>, impl Fn(&Request) -> Response + Send + Sync) {
    let (sender, receiver) = channel();
    let receiver: Arc<Mutex<Receiver<u32>>> = Arc::new(Mutex::new(receiver));
    let answer = move |request: &Request| {
        if request.segments() != ["events"] {
            return Response::text(StatusCode::OK, "no events");
        }
        let receiver = Arc::clone(&receiver);
        Response::events(every, move || {
            let event = |name, data: String| Event { name, data: data.into() };
            match receiver.lock().unwrap().try_recv() {
                Ok(number) => Next::Events(vec![event("number", number.to_string())]),
                Err(std::sync::mpsc::TryRecvError::Empty) => Next::Events(Vec::new()),
                Err(std::sync::mpsc::TryRecvError::Disconnected) => {
                    Next::Last(vec![event("end", String::new())])
                }
            }
        })
    };
    (sender, answer)
}

const EVENTS: &[u8] = b"GET /events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

#[test]
fn events_come_as_they_happen_until_the_last() {
    let (sender, answer) = numbers(Duration::from_millis(5));
    let server = Running::with(Options::default(), answer);
    let mut stream = server.connect();
    stream.write_all(EVENTS).unwrap();
    assert!(read_until(&mut stream, "\r\n\r\n").contains("content-type: text/event-stream\r\n"));
    for number in [7, 8] {
        sender.send(number).unwrap();
        read_until(&mut stream, &format!("event: number\ndata: {number}\n\n"));
    }
    drop(sender);
    assert!(rest(&mut stream).contains("event: end\ndata: \n\n"));
    server.finish().unwrap();
}

#[test]
fn a_stream_that_has_nothing_for_long_is_not_asked_meanwhile() {
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    let answer = move |request: &Request| {
        let count = Arc::clone(&count);
        let is_quiet = request.segments() == ["quiet"];
        Response::events(Duration::from_millis(1), move || {
            if !is_quiet {
                return Next::Events(vec![Event { name: "tick", data: "".into() }]);
            }
            *count.lock().unwrap() += 1;
            Next::Later(Duration::from_secs(3600))
        })
    };
    let server = Running::with(Options::default(), answer);
    let mut quiet = server.connect();
    quiet.write_all(b"GET /quiet HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    while *asked.lock().unwrap() == 0 {
        std::thread::yield_now();
    }
    let mut other = server.connect();
    other.write_all(EVENTS).unwrap();
    for _ in 0..5 {
        read_until(&mut other, "event: tick\n");
    }
    assert_eq!(*asked.lock().unwrap(), 1);
    // It ends with the server all the same.
    server.stop.clone().stop();
    assert!(!rest(&mut quiet).contains("event:"));
    server.finish().unwrap();
}

#[test]
fn streams_have_a_limit_and_end_with_the_server() {
    let (_sender, answer) = numbers(Duration::from_millis(5));
    let server =
        Running::with(Running::bounded(Limits { streams: 1, connections: 2, ..Limits::default() }), answer);
    let mut stream = server.connect();
    stream.write_all(EVENTS).unwrap();
    read_until(&mut stream, "\r\n\r\n");
    let refused = server.get("/events", &["Host: localhost"]);
    assert_eq!(status(&refused), 503, "{refused}");
    let head = server.send("HEAD /events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!(status(&head), 200);
    // A stream is no idle connection: it keeps its place.
    let _idle: Vec<TcpStream> = (0..10).map(|_| server.connect()).collect();
    assert_eq!(status(&server.get("/", &["Host: localhost"])), 200);
    let stop = server.stop.clone();
    stop.stop();
    assert!(!rest(&mut stream).contains("event:"), "the stream was closed, and by the server alone");
    server.finish().unwrap();
}

#[test]
fn what_is_answered_when_the_server_stops_is_sent_to_its_end() {
    let options = Running::bounded(Limits { stop_time: PATIENCE, ..Limits::default() });
    let (entered, at) = channel();
    let (go, gate) = channel::<()>();
    let (entered, gate) = (Mutex::new(entered), Mutex::new(gate));
    let server = Running::with(options, move |_| {
        entered.lock().unwrap().send(()).unwrap();
        gate.lock().unwrap().recv().unwrap();
        Response::new(StatusCode::OK, "text/plain", "x".repeat(500_000))
    });
    let mut stream = server.connect();
    write!(stream, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    at.recv().unwrap();
    server.stop.stop();
    go.send(()).unwrap();
    let answer = rest(&mut stream);
    assert!(answer.ends_with(&"x".repeat(500_000)), "{} bytes", answer.len());
    let address = server.address;
    server.finish().unwrap();
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
}

/// A POST of this body, with further headers.
fn post(body: &str, headers: &str) -> String {
    let length = body.len();
    format!(
        "POST /p HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    )
}

const POSTS: Option<Posts> = Some(Posts { path: "/p", most_bytes: 8 });
const JSON: &str = "Content-Type: application/json\r\n";

#[test]
fn what_is_posted_reaches_the_answer_within_its_bound_and_refusals_are_told() {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let refused = Refused::new(move |status| tell.lock().unwrap().send(status.as_u16()).unwrap());
    let options = Options { posts: POSTS, refused: Some(refused), ..Options::default() };
    let server = Running::with(options, |request| {
        let posted = request.posted().map_or("nothing".into(), String::from_utf8_lossy);
        Response::text(StatusCode::OK, posted.into_owned()).with_note("x-note", "one")
    });
    let answer = server.send(post("12345678", JSON));
    assert!(answer.contains("x-note: one") && answer.ends_with("12345678\n"), "{answer}");
    assert!(server.get("/", &["Host: localhost"]).ends_with("nothing\n"));
    for (request, expected) in [
        (post("123456789", JSON), 413),
        (post("1", "Content-Type: text/plain\r\n"), 415),
        (post("1", &format!("{JSON}Content-Encoding: gzip\r\n")), 415),
        (post("1", &format!("{JSON}Origin: http://elsewhere\r\n")), 403),
        (post("1", JSON).replace("POST", "PUT"), 405),
        (post("1", JSON).replace("POST", "GET"), 405),
        (post("1", JSON).replace("POST /p", "GET /"), 413),
        (post("1", JSON).replace("/p", "/"), 405),
    ] {
        assert_eq!(status(&server.send(&request)), expected, "{request}");
        assert_eq!(told.recv().unwrap(), expected);
    }
    let chunks = post("", JSON).replace("Content-Length: 0", "Transfer-Encoding: chunked");
    assert_eq!(status(&server.send(format!("{chunks}5\r\n12345\r\n4\r\n6789\r\n0\r\n\r\n"))), 413);
    assert!(server.send(format!("{chunks}5\r\n12345\r\n3\r\n678\r\n0\r\n\r\n")).ends_with("12345678\n"));
    server.finish().unwrap();
}

#[test]
fn a_body_that_does_not_come_is_not_waited_for() {
    let limits = Limits { body_time: Duration::from_millis(50), ..Limits::default() };
    let options = Options { posts: POSTS, ..Running::bounded(limits) };
    let server = Running::with(options, |_| unreachable!("it is not answered"));
    assert_eq!(status(&server.send(post("12345678", JSON).trim_end_matches('8'))), 408);
}

#[test]
fn several_tokens_have_their_bearers() {
    let name = |token: &str| token.strip_prefix("secret-of-").map(Arc::from);
    let options = Options { bearers: Some(Bearers::new(name)), posts: POSTS, ..Options::default() };
    let server = Running::with(options, |request| Response::text(StatusCode::OK, request.bearer()));
    let ask = |header: &str| server.get("/", &["Host: localhost", header]);
    assert!(ask("Authorization: Bearer secret-of-ada").ends_with("ada\n"));
    assert!(ask(&format!("Cookie: apex-token-{}=secret-of-bob", server.address.port())).ends_with("bob\n"));
    assert_eq!(status(&ask("Authorization: Bearer other")), 401);
    assert_eq!(status(&server.send(post("1", JSON))), 401);
    let opened = server.get("/a?token=secret-of-ada", &["Host: localhost"]);
    assert_eq!(status(&opened), 303);
    assert!(opened.contains("=secret-of-ada; Path=/; HttpOnly; SameSite=Strict"), "{opened}");
}
