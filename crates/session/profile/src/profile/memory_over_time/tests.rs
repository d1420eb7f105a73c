//! Each part against a model that keeps every moment, and where places come from.

use proptest::prelude::*;

use super::*;

/// Nanoseconds of a part, in these tests.
const PART: u64 = 100;
const ALL: Range<f64> = 0.0..(PART * PARTS as u64) as f64;

/// An allocation at a place, or the free of one.
#[derive(Clone, Debug)]
enum Event {
    Allocate { bytes: u64, stack: usize },
    Free(usize),
}

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let allocate = (1u64..1000, 0usize..12).prop_map(|(bytes, stack)| Event::Allocate { bytes, stack });
    let free = (0usize..1000).prop_map(Event::Free);
    let event = prop_oneof![3 => allocate, 2 => free];
    proptest::collection::vec((prop_oneof![0u64..20, 0u64..700], event), 0..300)
}

/// The live memory at a moment, with its place.
type Live = Vec<(u64, usize)>;

/// The moments of each part: what is live at its begin and after each event, and what is
/// allocated in it.
fn moments(all: &[(u64, Event)]) -> Vec<(Vec<Live>, u64)> {
    let mut parts: Vec<(Vec<Live>, u64)> = vec![(vec![Live::new()], 0)];
    let (mut live, mut now) = (Live::new(), 0);
    for (pause, event) in all {
        now += pause;
        while parts.len() <= ((now / PART) as usize).min(PARTS - 1) {
            parts.push((vec![live.clone()], 0));
        }
        let part = parts.last_mut().unwrap();
        match *event {
            Event::Allocate { bytes, stack } => {
                live.push((bytes, stack));
                part.1 += bytes;
            }
            Event::Free(which) if !live.is_empty() => drop(live.remove(which % live.len())),
            Event::Free(_) => {}
        }
        part.0.push(live.clone());
    }
    parts.resize(PARTS, (vec![live], 0));
    parts
}

fn total(live: &Live) -> u64 {
    live.iter().map(|(bytes, _)| bytes).sum()
}

proptest! {
    #[test]
    fn each_part_shows_its_fullest_moment(all in events()) {
        let mut over_time = OverTime::of(ALL);
        let (mut live, mut now): (Vec<Placed>, u64) = (Vec::new(), 0);
        for (pause, event) in &all {
            now = (now + pause).min(ALL.end as u64);
            match *event {
                Event::Allocate { bytes, stack } => {
                    let mut placed = over_time.allocate(false, (1, bytes), now);
                    over_time.read(&mut placed, 1, stack, || format!("place {stack}"));
                    live.push(placed);
                }
                Event::Free(which) if !live.is_empty() => {
                    let placed = live.remove(which % live.len());
                    over_time.free(&placed, now);
                }
                Event::Free(_) => {}
            }
        }
        let clamped: Vec<(u64, Event)> = all.iter().scan(0, |now, (pause, event)| {
            let next = (*now + pause).min(ALL.end as u64);
            let pause = next - *now;
            *now = next;
            Some((pause, event.clone()))
        }).collect();
        let parts = moments(&clamped);
        let most: Vec<u64> = parts.iter().map(|(of, _)| of.iter().map(total).max().unwrap()).collect();
        let found = over_time.finish(0);
        prop_assert_eq!(found.len(), usize::from(most.iter().any(|&bytes| bytes > 0)));
        let Some(found) = found.first() else { return Ok(()) };
        prop_assert_eq!(&found.most, &most);
        prop_assert_eq!(found.peak_bytes, *most.iter().max().unwrap());
        let least: Vec<u64> = parts.iter().map(|(of, _)| of.iter().map(total).min().unwrap()).collect();
        prop_assert_eq!(&found.least, &least);
        prop_assert_eq!(&found.allocated, &parts.iter().map(|part| part.1).collect::<Vec<u64>>());
        prop_assert!(found.inferred.iter().all(|&bytes| bytes == 0), "all stacks were read");
        for (at, (of, _)) in parts.iter().enumerate() {
            let fullest = of.iter().find(|live| total(live) == most[at]).unwrap();
            for told in &found.places {
                let own = |&(bytes, stack): &(u64, usize)| if told.place == format!("place {stack}") { bytes } else { 0 };
                prop_assert_eq!(told.bytes[at], fullest.iter().map(own).sum::<u64>(), "{} in part {}", told.place, at);
            }
            let told: u64 = found.places.iter().map(|told| told.bytes[at]).sum();
            prop_assert_eq!(told + found.rest[at], most[at]);
        }
    }
}

#[test]
fn what_is_not_read_is_of_the_place_of_its_size_if_there_is_one() {
    let mut over_time = OverTime::of(ALL);
    over_time.allocate(false, (1, 64), 0);
    let mut read = |bytes, stack: usize| {
        let mut placed = over_time.allocate(false, (1, bytes), 0);
        over_time.read(&mut placed, 1, stack, || format!("place {stack}"));
    };
    read(64, 1);
    read(100, 2);
    read(100, 3);
    for size in [(1, 64), (1, 100), (2, 64)] {
        over_time.allocate(false, size, 0);
    }
    let [found] = &over_time.finish(0)[..] else { panic!("one picture") };
    let places: Vec<(&str, u64)> =
        found.places.iter().map(|told| (told.place.as_str(), told.peak_bytes)).collect();
    // What came before the first stack, two sizes of several places, another entry point.
    assert_eq!(places, [(NO_STACK, 64 + 100 + 64), ("place 1", 128), ("place 2", 100), ("place 3", 100)]);
    assert_eq!((found.inferred[0], found.peak_bytes, found.rest[0]), (64, 556, 0));
}

#[test]
fn a_stack_that_is_read_later_moves_what_was_allocated() {
    let mut over_time = OverTime::of(ALL);
    let mut first = over_time.allocate(true, (1, 500), 0);
    let second = over_time.allocate(true, (1, 70), 1);
    over_time.free(&second, 2);
    let mut third = over_time.allocate(true, (1, 30), 3);
    over_time.read(&mut first, 1, 7, || "first".to_owned());
    over_time.read(&mut third, 1, 8, || "third".to_owned());
    over_time.free(&first, PART);
    let [found] = &over_time.finish(3)[..] else { panic!("one picture") };
    assert_eq!((found.process, found.on_host, found.peak_at_ns), (3, true, 1));
    let of = |name: &str| {
        let told = found.places.iter().find(|told| told.place == name);
        told.map(|told| (told.peak_bytes, told.bytes[1], told.bytes[2]))
    };
    // The second part begins with what the first one has left.
    assert_eq!(of("first"), Some((500, 500, 0)));
    assert_eq!((of("third"), of(NO_STACK)), (None, Some((70, 0, 0))));
    assert_eq!((found.most[..3].to_vec(), found.rest[..3].to_vec()), (vec![570, 530, 30], vec![0, 30, 30]));
}

#[test]
fn a_window_begins_with_what_was_allocated_before_it() {
    let mut over_time = OverTime::of(1000.0..1000.0 + ALL.end);
    let early = over_time.allocate(false, (1, 40), 10);
    let large = over_time.allocate(false, (1, 1 << 40), 20);
    over_time.free(&large, 30);
    over_time.allocate(false, (1, 2), 1000 + PART);
    over_time.free(&early, 1000 + 2 * PART);
    over_time.allocate(false, (1, 7000), 1001 + ALL.end as u64);
    let [found] = &over_time.finish(0)[..] else { panic!("one picture") };
    assert_eq!(found.most[..4], [40, 42, 42, 2]);
    assert_eq!((found.least[..4].to_vec(), found.most[PARTS - 1]), (vec![40, 40, 2, 2], 2));
    assert_eq!((found.allocated[..3].to_vec(), found.peak_at_ns), (vec![0, 2, 0], 1000 + PART));
}
