//! Exports of sessions with random bytes in them: something comes out, nothing panics.

mod common;

use apex_export::csv::Csv;
use apex_export::table::Sink;
use apex_export::{Reading, chrome, perfetto, rows, timeline};
use apex_random::Random;
use apex_trace::Session;
use std::path::Path;

fn export_everything(session: &Session) {
    let mut progress = |_| {};
    let mut reading = Reading::new(session, 0..u64::MAX, &mut progress);
    let mut bytes = Vec::new();
    let mut csv = Csv::new(&mut bytes, &rows::launches::COLUMNS).unwrap();
    rows::launches::write(&mut reading, &mut csv).unwrap();
    csv.finish().unwrap();
    let mut csv = Csv::new(&mut bytes, &rows::calls::COLUMNS).unwrap();
    rows::calls::write(&mut reading, &mut csv).unwrap();
    timeline::write(&mut reading, perfetto::Trace::new(&mut bytes)).unwrap();
    timeline::write(&mut reading, chrome::Trace::new(&mut bytes)).unwrap();
    let profile = apex_profile::Profile::from_session(session);
    rows::kernels::write(&profile, &mut Csv::new(&mut bytes, &rows::kernels::COLUMNS).unwrap()).unwrap();
    apex_export::json::summary(session, &profile, &mut bytes).unwrap();
}

fn process_file(dir: &Path) -> std::path::PathBuf {
    let mut files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.extension().is_some_and(|extension| extension == "rec")).unwrap()
}

#[test]
fn random_bytes_are_survived() {
    let dir = tempfile::tempdir().unwrap();
    common::write(dir.path(), 40, 31);
    let path = process_file(dir.path());
    let whole = std::fs::read(&path).unwrap();
    // Where there is something: the rest of each chunk is zeros.
    let used: Vec<usize> = (0..whole.len()).filter(|&at| whole[at] != 0).collect();
    let mut random = Random::new(32);
    for round in 0..400 {
        let mut damaged = whole.clone();
        for _ in 0..=round % 40 {
            let at = used[random.below(used.len() as u64) as usize];
            damaged[at] = match random.below(3) {
                0 => 0xff,
                1 => 0,
                _ => random.below(256) as u8,
            };
        }
        std::fs::write(&path, damaged).unwrap();
        if let Ok(session) = Session::open(dir.path()) {
            export_everything(&session);
        }
    }
}
