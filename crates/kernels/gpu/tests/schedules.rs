//! Schedules leave what their work in the stated order would: random programs against a model on
//! the host, with the work begun in a random one of the orders that the schedule allows.

mod common;

use std::ops::Range;

use apex_gpu::{Buffer, Device, Error, Host, Kernel, Kind, Rule, Schedule, Scheduler};
use apex_random::Random;

/// Words of a buffer, and of host memory.
const WORDS: usize = 16;
const BUFFERS: usize = 4;
const HOSTS: usize = 2;
/// Where a buffer begins that lies within the first one.
const INNER: usize = 6;

/// Words of a buffer; the last buffer is the one within the first.
type Part = (usize, Range<usize>);

#[derive(Clone, Debug)]
enum Step {
    Mix { to: Part, from: Part, plus: u32 },
    Copy { to: Part, from: Part },
    Clear { to: Part },
    Upload { to: usize, host: usize },
    Download { from: usize, host: usize },
}

/// Memory of a program on the host: the device's buffers, and the host's.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    buffers: Vec<Vec<u32>>,
    hosts: Vec<Vec<u32>>,
}

fn part(random: &mut Random, len: usize) -> Part {
    let buffer = random.below(BUFFERS as u64 + 1) as usize;
    let most = if buffer == BUFFERS { WORDS - INNER } else { WORDS };
    let len = len.min(most);
    let start = random.below((most - len) as u64 + 1) as usize;
    (buffer, start..start + len)
}

/// Buffer and words of a part, with the inner buffer as what it is.
fn place((buffer, words): &Part) -> Part {
    match *buffer {
        BUFFERS => (0, words.start + INNER..words.end + INNER),
        other => (other, words.clone()),
    }
}

fn meets(one: &Part, other: &Part) -> bool {
    let ((a, first), (b, second)) = (place(one), place(other));
    a == b && first.start < second.end && second.start < first.end
}

fn two_parts(random: &mut Random) -> (Part, Part) {
    loop {
        let len = 1 + random.below(WORDS as u64) as usize;
        let (to, from) = (part(random, len), part(random, len));
        // (Two parts of one buffer cannot be borrowed at once.)
        if to.1.len() == from.1.len() && to.0 != from.0 && !meets(&to, &from) {
            return (to, from);
        }
    }
}

fn step(random: &mut Random) -> Step {
    let whole = |random: &mut Random| random.below(BUFFERS as u64) as usize;
    let host = |random: &mut Random| random.below(HOSTS as u64) as usize;
    match random.below(8) {
        0..4 => {
            let (to, from) = two_parts(random);
            Step::Mix { to, from, plus: random.below(100) as u32 }
        }
        4 => {
            let (to, from) = two_parts(random);
            Step::Copy { to, from }
        }
        5 => {
            let len = random.below(5) as usize;
            Step::Clear { to: part(random, len) }
        }
        6 => Step::Upload { to: whole(random), host: host(random) },
        _ => Step::Download { from: whole(random), host: host(random) },
    }
}

impl Model {
    fn new(random: &mut Random) -> Model {
        let mut words = || (0..WORDS).map(|_| random.below(1 << 32) as u32).collect::<Vec<u32>>();
        let buffers = (0..BUFFERS).map(|_| words()).collect();
        Model { buffers, hosts: (0..HOSTS).map(|_| words()).collect() }
    }

    fn run(&mut self, step: &Step) {
        let read = |model: &Model, part: &Part| {
            let (buffer, words) = place(part);
            model.buffers[buffer][words].to_vec()
        };
        let write = |model: &mut Model, part: &Part, values: &[u32]| {
            let (buffer, words) = place(part);
            model.buffers[buffer][words].copy_from_slice(values);
        };
        match step {
            Step::Mix { to, from, plus } => {
                let (old, added) = (read(self, to), read(self, from));
                let mixed = old.iter().zip(added);
                let new: Vec<u32> = mixed
                    .map(|(old, added)| old.wrapping_mul(5).wrapping_add(added).wrapping_add(*plus))
                    .collect();
                write(self, to, &new);
            }
            Step::Copy { to, from } => write(self, to, &read(self, from)),
            Step::Clear { to } => write(self, to, &vec![0; to.1.len()]),
            Step::Upload { to, host } => self.buffers[*to] = self.hosts[*host].clone(),
            Step::Download { from, host } => self.hosts[*host] = self.buffers[*from].clone(),
        }
    }
}

/// Buffers on the device; the last one lies within the first.
struct Memory(Vec<Buffer<u32>>);

impl Memory {
    fn new(device: &Device) -> Memory {
        let mut buffers: Vec<Buffer<u32>> =
            (0..BUFFERS).map(|_| device.zeros(WORDS).expect("memory")).collect();
        let inner = buffers[0].address() + 4 * INNER as u64;
        // SAFETY: the first buffer lives as long, has these words, and is used on this stream.
        let inner = unsafe { device.borrow_buffer(inner, WORDS - INNER, device.stream()) };
        buffers.push(inner.expect("it can be borrowed"));
        Memory(buffers)
    }

    /// Two different buffers, the first to be written.
    fn two(&mut self, to: usize, from: usize) -> (&mut Buffer<u32>, &Buffer<u32>) {
        let [to, from] = self.0.get_disjoint_mut([to, from]).expect("they differ");
        (to, from)
    }
}

fn state(
    scheduler: &mut Scheduler,
    mix: &Kernel,
    memory: &mut Memory,
    hosts: &[Host<u32>],
    step: &Step,
) -> apex_gpu::Result<()> {
    match step.clone() {
        Step::Mix { to, from, plus } => {
            let (target, source) = memory.two(to.0, from.0);
            let launch = mix.launch(1, 32).arg(target.slice_mut(to.1.clone())).arg(source.slice(from.1));
            // SAFETY: both parts have as many words.
            unsafe { scheduler.launch(launch.arg(to.1.len() as u32).arg(plus)) }
        }
        Step::Copy { to, from } => {
            let (target, source) = memory.two(to.0, from.0);
            scheduler.copy(target.slice_mut(to.1), source.slice(from.1))
        }
        Step::Clear { to } => scheduler.clear(memory.0[to.0].slice_mut(to.1)),
        Step::Upload { to, host } => scheduler.upload(&mut memory.0[to], hosts[host]),
        Step::Download { from, host } => scheduler.download(&memory.0[from], hosts[host]),
    }
}

fn schedule(
    device: &Device,
    mix: &Kernel,
    memory: &mut Memory,
    steps: &[Step],
    seed: u64,
    fault: Option<Rule>,
) -> (Schedule, Vec<Host<u32>>) {
    let made = device.schedule(|s| {
        let mut random = Random::new(seed);
        s.choose(move |ready| random.below(ready as u64) as usize);
        fault.into_iter().for_each(|rule| s.without(rule));
        let hosts =
            (0..HOSTS).map(|_| Ok(s.host(device.pinned(WORDS)?))).collect::<apex_gpu::Result<Vec<_>>>()?;
        steps.iter().try_for_each(|step| state(s, mix, memory, &hosts, step))?;
        Ok(hosts)
    });
    made.expect("a schedule")
}

/// Whether a random program leaves the same as the model, at two launches.
fn agrees(device: &Device, mix: &Kernel, memory: &mut Memory, seed: u64, fault: Option<Rule>) -> bool {
    let mut random = Random::new(seed);
    let mut model = Model::new(&mut random);
    let steps: Vec<Step> = (0..2 + random.below(12)).map(|_| step(&mut random)).collect();
    let (mut schedule, hosts) = schedule(device, mix, memory, &steps, seed, fault);
    for (buffer, words) in memory.0.iter_mut().zip(&model.buffers) {
        buffer.write(words).expect("it was written");
    }
    let mut same = true;
    for launch in 0..2 {
        // The first host memory has new values at each launch, the second what the last one left.
        if launch == 0 {
            let words = &model.hosts[1];
            schedule.host_mut(hosts[1]).expect("host memory").copy_from_slice(words);
        }
        model.hosts[0] = vec![launch; WORDS];
        schedule.host_mut(hosts[0]).expect("host memory").copy_from_slice(&model.hosts[0]);
        schedule.launch().expect("a launch");
        steps.iter().for_each(|step| model.run(step));
        for (host, words) in hosts.iter().zip(&model.hosts) {
            same &= schedule.host(*host).expect("host memory") == words;
        }
    }
    let mut found = memory.0.iter().map(|buffer| buffer.to_vec().expect("it was read"));
    same && model.buffers.iter().all(|words| found.next().as_ref() == Some(words))
}

fn setting() -> (Device, Kernel, Memory) {
    let device = common::device();
    let mix = device.load_ptx(include_str!("kernels.ptx")).unwrap().kernel("mix").unwrap();
    let memory = Memory::new(&device);
    (device, mix, memory)
}

#[test]
fn random_programs_leave_what_their_stated_order_would() {
    let (device, mix, mut memory) = setting();
    let given = std::env::var("SCHEDULE_PROGRAMS").ok();
    let programs = given.map_or(2000, |text| text.parse().expect("a number of programs"));
    for seed in 0..programs {
        assert!(agrees(&device, &mix, &mut memory, seed, None), "program {seed}");
    }
}

#[test]
fn each_rule_of_the_order_is_needed() {
    let (device, mix, mut memory) = setting();
    if *device.kind() == Kind::Gpu {
        return; // A GPU need not start work in the order of the graph's nodes.
    }
    for rule in Rule::ALL {
        let found = (0..500).find(|&seed| !agrees(&device, &mix, &mut memory, seed, Some(rule)));
        assert!(found.is_some(), "no program needs {rule:?}");
    }
}

#[test]
fn independent_work_is_not_ordered() {
    let (device, mix, mut memory) = setting();
    let mixed = |to: usize, from: usize| Step::Mix { to: (to, 0..4), from: (from, 0..4), plus: 0 };
    let (independent, _) =
        schedule(&device, &mix, &mut memory, &[mixed(1, 0), mixed(2, 0), mixed(3, 0)], 0, None);
    assert_eq!((independent.nodes(), independent.longest_chain()), (3, 1));
    let (chain, _) = schedule(&device, &mix, &mut memory, &[mixed(1, 0), mixed(2, 1), mixed(3, 2)], 0, None);
    assert_eq!((chain.nodes(), chain.longest_chain()), (3, 3));
    let apart = [0..4usize, 4..8].map(|words| Step::Clear { to: (1, words) });
    assert_eq!(schedule(&device, &mix, &mut memory, &apart, 0, None).0.longest_chain(), 1);
}

#[test]
fn a_schedule_keeps_what_it_uses_and_waits_for_others() {
    let (device, mix, _) = setting();
    let stream = device.new_stream().unwrap();
    let mut to = device.zeros::<u32>(1).unwrap();
    let (mut schedule, ()) = {
        let from = device.upload(&[7u32]).unwrap();
        // SAFETY: both have a word.
        let made = device
            .schedule(|s| unsafe { s.launch(mix.launch(1, 1).arg(&mut to).arg(&from).arg(1u32).arg(0u32)) });
        made.unwrap()
    };
    drop(mix);
    let others: Vec<_> = (0..20).map(|_| device.upload(&[9u32]).unwrap()).collect();
    to.write_on(&[1], &stream).unwrap();
    schedule.launch().unwrap();
    schedule.launch_on(&stream).unwrap();
    assert_eq!(to.to_vec().unwrap(), [(5 + 7) * 5 + 7]);
    assert!(others.iter().all(|other| other.to_vec().unwrap() == [9]));
}

#[test]
fn a_schedule_moves_to_another_thread() {
    let device = common::device();
    let mut to = device.upload(&[1u32, 2]).unwrap();
    let (mut schedule, output) = device
        .schedule(|s| {
            let output = s.host(device.pinned::<u32>(2)?);
            s.clear(to.slice_mut(1..))?;
            s.download(&to, output)?;
            Ok(output)
        })
        .unwrap();
    let moved = std::thread::spawn(move || {
        schedule.launch()?;
        schedule.host(output).map(<[u32]>::to_vec)
    });
    assert_eq!(moved.join().unwrap().unwrap(), [1, 0]);
}

#[test]
fn wrong_work_is_refused_before_it_runs() {
    let (device, mix, mut memory) = setting();
    let wrong_size = device.schedule(|s| {
        let host = s.host(device.pinned::<u32>(3)?);
        s.upload(&mut memory.0[1], host)
    });
    assert!(matches!(wrong_size.unwrap_err(), Error::SizeMismatch { from_elements: 3, .. }));
    // SAFETY: refused, as arguments are missing.
    let missing = device.schedule(|s| unsafe { s.launch(mix.launch(1, 1).arg(1u32)) });
    assert!(matches!(missing.unwrap_err(), Error::ArgumentCount { .. }));
    let (mut empty, ()) = device.schedule(|_| Ok(())).unwrap();
    let stream = device.new_stream().unwrap();
    let in_capture = stream.capture(|| empty.launch_on(&stream));
    assert!(matches!(in_capture.unwrap_err(), Error::NotInCapture { .. }));
}

#[test]
#[should_panic(expected = "of another schedule")]
fn host_memory_of_another_schedule_is_refused() {
    let device = common::device();
    let host = |device: &Device| device.schedule(|s| Ok(s.host(device.pinned::<u32>(1)?))).unwrap();
    let ((_, first), (mut second, _)) = (host(&device), host(&device));
    let _ = second.host(first);
}
