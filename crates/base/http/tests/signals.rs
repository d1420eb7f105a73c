//! Signals stop the server. One test, alone in its process.

use apex_http::{Options, Response, Server, StatusCode};
use std::io::{Read, Write};
use std::net::TcpStream;

#[test]
fn signals_stop_it() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let server = Server::bind(Options::default()).unwrap();
        let address = server.address();
        let thread = std::thread::spawn(|| server.run(|_| Response::text(StatusCode::OK, "here")));
        // It answers: it listens for signals, too.
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("here\n"), "{answer}");
        // SAFETY: sends a signal to this process.
        assert_eq!(unsafe { libc::kill(libc::getpid(), signal) }, 0);
        thread.join().unwrap().unwrap();
        assert!(TcpStream::connect(address).is_err());
    }
}
