//! Frames of synthetic sessions, beside the ones in `frames/` (`BLESS=1` renews these), and what
//! keys do to them.

use apex_advice::Options;
use apex_live::{Follower, Snapshot};
use apex_machine::{Device, DeviceRecord, Machine, Quantity, Readings, Record, Summary};
use apex_profile::{Activity, Figure, Process};
use apex_top::{Action, Key, Look, Theme, Top};
use apex_trace::layout::MemoryKind;
use apex_trace::meta::{Exit, Host, Meta};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Color;
use std::path::{Path, PathBuf};
use std::time::Duration;
use test_session::{LEGACY, Recording};

const PLAIN: Theme = Theme { color: false };

/// The last five seconds of a program's run.
fn look_at(program: impl FnOnce(&mut Recording)) -> Look {
    let dir = tempfile::tempdir().unwrap();
    let mut recording = Recording::new(dir.path());
    program(&mut recording);
    recording.exit();
    test_session::open(&dir);
    let mut snapshot: Snapshot = Follower::new(dir.path(), Duration::from_secs(5)).look().unwrap();
    // What recording costs is measured, and the process is this test's.
    snapshot.profile.recorder.overhead_share = Some(Figure::measured(0.0031));
    snapshot.profile.processes[0].pid = 4242;
    Look { running: vec![4242], run: Some(run(None)), ..Look::of(snapshot, &Options::default()) }
}

fn run(exit: Option<Exit>) -> Meta {
    Meta {
        schema: 1,
        apex_version: String::new(),
        command: ["python3", "train.py", "--batch", "64"].map(String::from).to_vec(),
        cwd: String::new(),
        pid: None,
        started_real_ns: 0,
        ended_real_ns: None,
        exit,
        device: "gpu".to_owned(),
        timing: "all".to_owned(),
        rank: None,
        host: Host::default(),
        ranks: std::collections::BTreeMap::new(),
        universal: Vec::new(),
        capability: Vec::new(),
        imported: Vec::new(),
        checked: false,
        attached: false,
        watched_by: None,
    }
}

/// A training run: two kernels in each step, copies of pageable memory, synchronisations, pauses.
fn training(recording: &mut Recording) {
    let gemm = recording.function("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize2");
    let gemm = recording.config(gemm, 264, 256);
    let add = recording.function("_Z10vector_addPKfS0_Pfi");
    let add = recording.config(add, 50, 100);
    let tiny = recording.function("zero_grad");
    let tiny = recording.config(tiny, 1, 32);
    for step in 0..400 {
        recording.copy(MemoryKind::Device, MemoryKind::Pageable, 1 << 20, true, 150_000);
        recording.timed(gemm, LEGACY, 900_000);
        recording.timed(add, LEGACY, 300_000);
        recording.timed(tiny, LEGACY, 3_000);
        recording.synchronise(LEGACY, 1_250_000);
        recording.now += if step % 20 == 0 { 12_000_000 } else { 400_000 };
    }
}

const FOLDER: &str = "/home/me/apex-python3-20261123-093011";

/// A screen with looks at one session.
fn top_of(look: Look) -> Top {
    let mut top = Top::new(&[]);
    top.update(Path::new(FOLDER), Ok(look));
    top
}

fn draw(top: &Top, width: u16, height: u16, theme: Theme) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    top.render(buffer.area, &mut buffer, theme);
    buffer
}

/// A frame without colours, as text.
fn frame(top: &Top, width: u16, height: u16) -> String {
    let buffer = draw(top, width, height, PLAIN);
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| format!("{}\n", row(y).trim_end())).collect()
}

/// Compares with the frame in a file.
fn assert_frame(name: &str, frame: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/frames").join(name);
    test_golden::assert_file(path, frame);
}

/// A session that was looked at for half a minute.
fn half_a_minute() -> Top {
    let look = look_at(training);
    let mut top = top_of(look.clone());
    for second in 1..30 {
        let mut look = look.clone();
        look.window = look.window.start + second..look.window.end + second * 40_000_000;
        top.update(Path::new(FOLDER), Ok(look));
    }
    top
}

#[test]
fn a_training_run_fills_a_screen_of_80_columns() {
    assert_frame("training-80x24.txt", &frame(&half_a_minute(), 80, 24));
}

#[test]
fn a_wide_screen_shows_more_of_each_kernel_and_a_small_one_what_matters_most() {
    let mut top = half_a_minute();
    top.key(Key::Down);
    assert_frame("training-140x40.txt", &frame(&top, 140, 40));
    assert_frame("training-50x14.txt", &frame(&top, 50, 14));
}

#[test]
fn each_device_of_several_has_a_bar() {
    let mut look = look_at(training);
    let second = Process { pid: 4243, rank: Some(1), ..look.profile.processes[0].clone() };
    look.profile.processes.push(second);
    look.profile.devices.push(look.profile.devices[0].clone());
    let activity = look.profile.activities[0].clone();
    look.profile.activities.push(Activity { process: 1, device: Some(1), ordinal: Some(1), ..activity });
    look.running.push(4243);
    assert_frame("two-devices-100x30.txt", &frame(&top_of(look), 100, 30));
}

#[test]
fn the_energy_of_a_kernel_is_told_of_the_only_device() {
    let told = |devices: usize, seconds: u64| {
        let mut look = look_at(training);
        look.window = 0..seconds * 1_000_000_000;
        let kernels = look.launches_per_s().expect("a window");
        let mut readings = Readings::default();
        // So that a kernel takes 2 J.
        readings.set(Quantity::AveragePower, 2.0 * kernels);
        let of = |device| DeviceRecord { device, readings: readings.clone(), ..DeviceRecord::default() };
        let records = vec![Record { to_ns: 1, devices: (0..devices).map(of).collect(), ..Record::default() }];
        let devices = vec![Device { uuid: "GPU-a".into(), ..Device::default() }; devices];
        look.machine = Summary::of(&Machine { devices, records, ..Machine::default() }, ["GPU-a"]);
        frame(&top_of(look), 120, 40).contains("about 2.00 J for each kernel")
    };
    assert!(told(1, 5));
    assert!(!told(2, 5), "whose kernels they are is not told");
    assert!(!told(1, 1), "the machine is read once a second");
}

#[test]
fn what_there_is_not_is_said() {
    assert!(frame(&Top::new(&[]), 80, 24).contains("No session is recorded on this machine now"));
    let mut top = Top::new(&[PathBuf::from(FOLDER)]);
    assert!(frame(&top, 80, 24).contains("for the first time"));
    top.update(Path::new(FOLDER), Err("no session file".to_owned()));
    assert!(frame(&top, 80, 24).contains(": no session file"));

    let mut top = top_of(look_at(training));
    top.update(Path::new(FOLDER), Err("the folder is gone".to_owned()));
    let shown = frame(&top, 80, 24);
    assert!(shown.contains("The last look failed") && shown.contains("the folder is gone"), "{shown}");
    assert!(shown.contains("vector_add"), "the look before it stays: {shown}");
    let mut look = look_at(training);
    (look.running, look.run) = (Vec::new(), Some(run(Some(Exit::Signal(9)))));
    assert!(look.is_over());
    top.update(Path::new(FOLDER), Ok(look));
    let shown = frame(&top, 80, 24);
    assert!(shown.contains("ended by signal 9") && !shown.contains("failed"), "{shown}");

    let mut without_calls = look_at(|_| {});
    without_calls.profile = Default::default();
    without_calls.window = 0..0;
    let shown = frame(&top_of(without_calls), 80, 24);
    assert!(shown.contains("no CUDA call yet") && !shown.contains("last 0"), "{shown}");

    let idle = look_at(|recording| recording.synchronise(LEGACY, 1_000));
    assert!(frame(&top_of(idle), 80, 24).contains("No kernel was launched in the last "));
}

/// Every size gets a frame of that size, in every state.
#[test]
fn every_size_is_drawn() {
    let mut states = vec![Top::new(&[]), half_a_minute()];
    for keys in [&[Key::Char('?')][..], &[Key::Char('/'), Key::Char('a')], &[Key::End, Key::Char('p')]] {
        let mut top = half_a_minute();
        keys.iter().for_each(|&key| assert_eq!(top.key(key), Action::Draw));
        states.push(top);
    }
    for top in &states {
        for width in (1..=40).chain([60, 79, 80, 81, 120, 200, 300]) {
            for height in (1..=30).chain([50, 100]) {
                draw(top, width, height, PLAIN);
            }
        }
    }
    // A part of a buffer, and one beside it.
    let mut buffer = Buffer::empty(Rect::new(0, 0, 40, 10));
    states[1].render(Rect::new(30, 5, 200, 200), &mut buffer, PLAIN);
    assert_eq!(buffer[(0, 0)].symbol(), " ");
    states[1].render(Rect::new(90, 50, 10, 10), &mut buffer, PLAIN);
}

#[test]
fn keys_sort_filter_and_select() {
    let mut top = half_a_minute();
    let shown = |top: &Top| frame(top, 80, 40);
    let first = |top: &Top| {
        let text = shown(top);
        let table = text.lines().skip_while(|line| !line.starts_with("kernel ")).nth(1).unwrap();
        table.split_whitespace().next().unwrap().to_owned()
    };
    assert!(shown(&top).contains("3 kernels, by GPU time\n") && first(&top) == "cublas");
    top.key(Key::Char('l'));
    assert!(shown(&top).contains("by launches\n"));
    top.key(Key::Char('s'));
    assert!(shown(&top).contains("by GPU time of a launch\n"));
    top.key(Key::Char('/'));
    for c in "ADD".chars() {
        top.key(Key::Char(c));
    }
    assert!(shown(&top).contains("Filter: ADD"));
    top.key(Key::Enter);
    assert!(shown(&top).contains("1 of 3 kernels") && first(&top) == "vector_add");
    top.key(Key::Down);
    assert!(shown(&top).contains("vector_add(float const*, float const*, float*, int)"));
    top.key(Key::Escape);
    assert!(!shown(&top).contains("filter: ADD") && !shown(&top).contains("float const*"));
    top.key(Key::Char('?'));
    assert!(shown(&top).contains("quit; the programs continue"));
    assert_eq!(top.key(Key::Char('q')), Action::Draw, "it leaves the help");
    assert_eq!(top.key(Key::Char('q')), Action::Quit);
}

#[test]
fn tab_goes_through_the_sessions_and_pause_holds_them() {
    let mut top = top_of(look_at(training));
    top.update(Path::new("/tmp/other"), Ok(look_at(|recording| recording.synchronise(LEGACY, 1_000))));
    assert!(frame(&top, 80, 24).contains("1/2"));
    top.key(Key::Tab);
    assert!(frame(&top, 80, 24).contains("2/2  other"));
    top.key(Key::Char('p'));
    top.update(Path::new("/tmp/third"), Err("none".to_owned()));
    let paused = frame(&top, 80, 24);
    assert!(paused.contains("PAUSED") && paused.contains("2/2"), "{paused}");
    top.key(Key::Char('p'));
    assert!(frame(&top, 80, 24).contains("2/3"), "what came meanwhile is taken in");
    top.key(Key::BackTab);
    assert!(frame(&top, 80, 24).contains("1/3"));
    // Sessions that have ended go when there are too many; the chosen one stays.
    for number in 0..200 {
        top.update(&PathBuf::from(format!("/tmp/{number}")), Err("none".to_owned()));
    }
    assert!(frame(&top, 80, 24).contains("1/64  apex-python3"));
}

#[test]
fn foreign_text_moves_no_cursor() {
    let hostile = "a\u{1b}[2Jb\nc\u{202e}d\u{9b}31m";
    let mut look = look_at(training);
    look.run.as_mut().unwrap().command = vec![hostile.to_owned()];
    look.profile.devices[0].name = hostile.to_owned();
    for kernel in &mut look.profile.kernels {
        (kernel.name, kernel.short_name) = (hostile.to_owned(), hostile.to_owned());
    }
    for finding in &mut look.advice.findings {
        (finding.title, finding.change) = (hostile.to_owned(), hostile.to_owned());
    }
    let mut top = Top::new(&[]);
    top.update(Path::new(&format!("/tmp/{hostile}")), Ok(look));
    top.update(Path::new(&format!("/tmp/{hostile}")), Err(hostile.to_owned()));
    top.key(Key::Down);
    top.key(Key::Char('/'));
    top.key(Key::Char('\u{1b}'));
    for (width, height) in [(80, 24), (200, 60)] {
        let shown = frame(&top, width, height);
        assert!(shown.contains("a\\x1b[2Jb"), "{shown}");
        let is_harmless = |c: char| c == '\n' || apex_untrusted::text::is_printable(c);
        assert!(shown.chars().all(is_harmless), "{shown:?}");
    }
}

#[test]
fn without_colours_there_are_none() {
    let top = half_a_minute();
    let colours = |theme| {
        let buffer = draw(&top, 100, 30, theme);
        buffer.content().iter().filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
    };
    assert_eq!(colours(PLAIN), 0);
    assert!(colours(Theme { color: true }) > 100);
}
