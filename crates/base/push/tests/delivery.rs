//! Messages to stand-ins that take them, hang, refuse, redirect, break off, or are not there.

use apex_push::{Event, Failure, Outbox, Policy, Target};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Longer than anything here takes: reaching it is a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// Answers each connection with the next of these answers, and says what was received; where there
/// is none, it keeps the connection open and says nothing.
fn stand_in(answers: Vec<&'static str>) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        let mut answers = answers.into_iter();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let received = request(&mut stream);
            match answers.next() {
                Some(answer) => stream.write_all(answer.as_bytes()).unwrap(),
                None => kept.push(stream),
            }
            if tell.send(received).is_err() {
                return;
            }
        }
    });
    (address, told)
}

/// A request with the length of its body.
fn request(stream: &mut TcpStream) -> String {
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&received).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return text;
            }
        }
        match stream.read(&mut buffer).unwrap() {
            0 => return text,
            count => received.extend(&buffer[..count]),
        }
    }
}

fn post(address: &str, longest: Duration) -> Result<(), Failure> {
    let target = Target::new(address, "/path?token=secret").unwrap();
    target.post("application/json", b"{\"a\":1}".to_vec(), longest)
}

#[test]
fn a_message_is_posted_as_it_is() {
    let (address, told) = stand_in(vec!["HTTP/1.1 204 No Content\r\n\r\n"]);
    assert_eq!(post(&address, PATIENCE), Ok(()));
    let received = told.recv().unwrap();
    assert!(received.starts_with("POST /path?token=secret HTTP/1.1\r\n"), "{received}");
    assert!(received.contains("content-type: application/json\r\n"), "{received}");
    assert!(received.contains("content-length: 7\r\n"), "{received}");
    assert!(received.contains(&format!("host: {}\r\n", &address["http://".len()..])), "{received}");
    assert!(received.ends_with("\r\n\r\n{\"a\":1}"), "{received}");
}

#[test]
fn what_is_not_taken_says_why_and_whether_later_may_do() {
    let cases = [
        ("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", Failure::Refused(500), true),
        ("HTTP/1.1 429 Wait\r\ncontent-length: 0\r\n\r\n", Failure::Refused(429), true),
        ("HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n", Failure::Refused(404), false),
        ("HTTP/1.1 302 There\r\nlocation: http://127.0.0.1:9/\r\n\r\n", Failure::Redirected(302), false),
    ];
    for (answer, expected, transient) in cases {
        let (address, _told) = stand_in(vec![answer]);
        let failure = post(&address, PATIENCE).unwrap_err();
        assert_eq!(failure, expected);
        assert_eq!(failure.is_transient(), transient, "{failure}");
    }
    for nonsense in ["", "SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 200"] {
        let (address, _told) = stand_in(vec![nonsense]);
        let failure = post(&address, PATIENCE).unwrap_err();
        assert!(failure.is_transient(), "{nonsense:?}: {failure}");
        assert!(!failure.to_string().contains("secret"), "{failure}");
    }
}

#[test]
fn who_hangs_or_is_not_there_is_not_waited_for() {
    let (address, _told) = stand_in(Vec::new());
    let longest = Duration::from_millis(200);
    assert_eq!(post(&address, longest), Err(Failure::TimedOut(longest)));
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let failure = post(&format!("http://{gone}"), PATIENCE).unwrap_err();
    assert!(matches!(failure, Failure::Unreachable(_)), "{failure}");
    assert!(failure.to_string().starts_with("cannot be reached"), "{failure}");
}

/// An outbox that reports attempts and events, and gets its answers from the test.
fn outbox(
    policy: Policy,
    answers: Receiver<Result<(), Failure>>,
) -> (Outbox<u32>, Receiver<u32>, Receiver<Event>) {
    let (attempt, attempts) = channel();
    let (tell, events) = channel();
    let send = move |message: &u32| {
        attempt.send(*message).unwrap();
        answers.recv().unwrap_or(Ok(()))
    };
    (Outbox::start(policy, send, move |event| tell.send(event).unwrap()), attempts, events)
}

const FEW: Policy = Policy { attempts: 3, pause: Duration::from_millis(1), waiting: 2 };

#[test]
fn attempts_are_bounded_and_changes_are_told_once() {
    let (answer, answers) = channel();
    let down = || Err(Failure::Refused(503));
    // The second message is taken at its third attempt; the first and third are not taken at all.
    for result in [down(), down(), down(), down(), down(), Ok(()), Err(Failure::Refused(404)), Ok(())] {
        answer.send(result).unwrap();
    }
    let (outbox, attempts, events) = outbox(Policy { waiting: 9, ..FEW }, answers);
    (1..=4).for_each(|message| outbox.put(message));
    assert_eq!(outbox.close(PATIENCE), 0);
    assert_eq!(attempts.iter().collect::<Vec<_>>(), [1, 1, 1, 2, 2, 2, 3, 4]);
    let told: Vec<_> = events.iter().collect();
    let lost = |why| [Event::Fails(why), Event::Recovered(1)];
    assert_eq!(told, [lost(Failure::Refused(503)), lost(Failure::Refused(404))].concat());
}

#[test]
fn of_too_many_messages_the_oldest_are_lost_and_nobody_waits() {
    let (answer, answers) = channel();
    let (outbox, attempts, events) = outbox(FEW, answers);
    outbox.put(0);
    // The thread hangs in its first attempt.
    assert_eq!(attempts.recv().unwrap(), 0);
    (1..=5).for_each(|message| outbox.put(message));
    drop(answer);
    assert_eq!(outbox.close(PATIENCE), 0, "what was lost was told when messages were taken again");
    assert_eq!(attempts.iter().collect::<Vec<_>>(), [4, 5]);
    assert_eq!(events.iter().collect::<Vec<_>>(), [Event::Recovered(3)]);
}

#[test]
fn closing_gives_up_what_hangs() {
    let (_answer, answers) = channel();
    let (outbox, attempts, _events) = outbox(FEW, answers);
    outbox.put(0);
    assert_eq!(attempts.recv().unwrap(), 0);
    outbox.put(1);
    assert_eq!(outbox.close(Duration::ZERO), 2, "the one that hangs has not arrived either");
}

/// A message that waits when time is up is not tried any more, nor one that failed for a while.
#[test]
fn nothing_is_tried_after_the_outbox_was_given_up() {
    let (answer, answers) = channel();
    let (outbox, attempts, events) = outbox(FEW, answers);
    (0..2).for_each(|message| outbox.put(message));
    assert_eq!(attempts.recv().unwrap(), 0);
    assert_eq!(outbox.close(Duration::ZERO), 2);
    answer.send(Ok(())).unwrap();
    assert!(attempts.iter().next().is_none(), "the thread ends");
    assert!(events.iter().next().is_none());
}

#[test]
fn what_was_given_up_before_counts_with_what_is_under_way() {
    let (answer, answers) = channel();
    let (outbox, attempts, _events) = outbox(Policy { waiting: 9, ..FEW }, answers);
    answer.send(Err(Failure::Refused(404))).unwrap();
    (0..3).for_each(|message| outbox.put(message));
    assert_eq!([attempts.recv().unwrap(), attempts.recv().unwrap()], [0, 1]);
    assert_eq!(outbox.close(Duration::ZERO), 3);
}

#[test]
fn what_was_never_taken_is_counted_and_told_once() {
    let (answer, answers) = channel();
    let refused = || Err(Failure::Refused(404));
    [refused(), refused(), refused()].into_iter().for_each(|result| answer.send(result).unwrap());
    let (outbox, attempts, events) = outbox(Policy { waiting: 9, ..FEW }, answers);
    (0..3).for_each(|message| outbox.put(message));
    assert_eq!(outbox.close(PATIENCE), 3);
    assert_eq!(attempts.iter().collect::<Vec<_>>(), [0, 1, 2], "a refusal for good is not repeated");
    assert_eq!(events.iter().collect::<Vec<_>>(), [Event::Fails(Failure::Refused(404))]);
}

/// Pauses are at least as long as the policy says: twice as long before each further attempt.
#[test]
fn pauses_between_attempts_double() {
    let policy = Policy { attempts: 4, pause: Duration::from_millis(20), waiting: 1 };
    let (tell, told) = channel();
    let send = move |_: &u32| {
        tell.send(Instant::now()).unwrap();
        Err(Failure::Refused(503))
    };
    let outbox = Outbox::start(policy, send, |_| {});
    outbox.put(0);
    assert_eq!(outbox.close(PATIENCE), 1);
    let moments: Vec<Instant> = told.iter().collect();
    let pauses: Vec<u128> = moments.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
    assert_eq!(pauses.len(), 3, "{pauses:?}");
    assert!(pauses.iter().zip([20, 40, 80]).all(|(&pause, least)| pause >= least), "{pauses:?}");
}

/// A message is taken even where none may wait.
#[test]
fn one_message_waits_at_least() {
    let (_, answers) = channel();
    let (outbox, attempts, _events) = outbox(Policy { waiting: 0, ..FEW }, answers);
    outbox.put(7);
    assert_eq!(outbox.close(PATIENCE), 0);
    assert_eq!(attempts.iter().collect::<Vec<_>>(), [7]);
}

#[test]
fn a_token_goes_along_and_a_header_comes_back() {
    let answer = "HTTP/1.1 200 OK\r\nx-confirmed: key 7\r\ncontent-length: 0\r\n\r\n";
    let (address, told) = stand_in(vec![answer, answer]);
    let target = Target::new(&address, "/path").unwrap().with_token("secret").unwrap();
    assert!(!format!("{target:?}").contains("secret"));
    let ask = |header| target.post_for("application/json", b"{}".to_vec(), PATIENCE, header).unwrap();
    assert_eq!(ask("x-confirmed").as_deref(), Some("key 7"));
    assert_eq!(ask("x-other"), None);
    assert!(told.recv().unwrap().to_lowercase().contains("\r\nauthorization: bearer secret\r\n"));
    assert!(Target::new(&address, "").unwrap().with_token("a\nb").is_err());
}
