//! Packs and unpacks recorded sessions, for scripts and readers.

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: recorded-session unpack ARCHIVE FOLDER
       recorded-session pack SESSION ARCHIVE TICKS    # times become multiples of TICKS";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["unpack", archive, folder] => test_recorded::unpack(Path::new(archive), Path::new(folder)),
        ["pack", session, archive, ticks] => match ticks.parse::<u64>() {
            Ok(ticks) if ticks.is_power_of_two() && ticks <= 1 << 16 => {
                test_recorded::pack(Path::new(session), Path::new(archive), ticks)
            }
            _ => Err(std::io::Error::other("TICKS is a power of two up to 65536")),
        },
        _ => Err(std::io::Error::other(USAGE)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("recorded-session: {error}");
            ExitCode::FAILURE
        }
    }
}
