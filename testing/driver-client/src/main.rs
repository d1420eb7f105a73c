//! Small CUDA programs that the tests run under the injected library: `client PROGRAM [ARGUMENT]…`.
//! They find the driver as every program does, by opening `libcuda.so.1`, and print what the tests
//! compare.

mod affine;
mod arguments;
mod beside;
mod code;
mod driver;
mod fast;
mod flushes;
mod graphs;
mod hardship;
mod memory;
mod newer;
mod order;
mod places;
mod programs;
mod shaped;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).map_or(0, |text| text.parse().expect("a number"));
    match arguments.first().map_or("", String::as_str) {
        "nothing" => {}
        "forward" => arguments::every_entry_point_gets_its_arguments(),
        "look-up" => programs::look_up(),
        "flushed-look-up" => flushes::looked_up(),
        "cold-start" => programs::cold_start(number(1)),
        "without-driver" => programs::without_driver(),
        "small-driver" => programs::small_driver(),
        "other-name" => programs::other_name(),
        "launches" => programs::launches(number(1), number(2)),
        "forms" => programs::forms(),
        "streams" => programs::streams(),
        "streams-of-contexts" => programs::streams_of_contexts(),
        "reload" => programs::reload(number(1)),
        "configurations" => programs::configurations(number(1)),
        "fork" => programs::fork(),
        "exec" => programs::exec(),
        "capture" => graphs::capture(),
        "capture-race" => graphs::capture_race(number(1)),
        "graphs" => graphs::graphs(),
        "calls" => programs::every_class(),
        "copies" => programs::copies(),
        "copies-between-devices" => programs::copies_between_devices(),
        "timed" => programs::timed(number(1)),
        "host-bound" => programs::host_bound(number(1)),
        "timed-in-turn" => programs::timed_in_turn(number(1) as u32, number(2) as u32),
        "two-streams" => programs::two_streams(number(1)),
        "contexts" => programs::contexts(),
        "callback" => programs::callback(),
        "switched" => programs::switched(),
        "failing" => programs::failing(),
        "loads" => code::loads(&arguments[1], &arguments[2], number(3) as u32),
        "varies" => code::varies(&arguments[1], number(2) as u32),
        "links" => code::links(),
        "own-faults" => hardship::own_faults(&arguments[1]),
        "blocked-signals" => hardship::blocked_signals(),
        "unhandled-fault" => hardship::unhandled_fault(),
        "small-stacks" => hardship::small_stacks(number(1)),
        "stack-depth" => println!("{}", hardship::stack_depth()),
        "without-system-calls" => hardship::without_system_calls(number(1), number(2) != 0),
        "without-allocations" => hardship::without_allocations(number(1)),
        "near-the-limit" => hardship::near_the_limit(number(1)),
        "handed-over" => fast::handed_over(number(1), number(2)),
        "on-one-processor" => fast::on_one_processor(number(1)),
        "until-refused" => fast::until_refused(),
        "waits-for-each" => fast::waits_for_each(number(1)),
        "waits-then-launches" => fast::waits_then_launches(),
        "forks" => fast::forks(number(1)),
        "ends" => fast::ends(number(1)),
        "order" => order::random_programs(number(1) as u64, number(2), number(3), false),
        "beside" => beside::random_programs(number(1) as u64, number(2), number(3), number(4) != 0),
        "launches-come-and-go" => order::launches_come_and_go(number(1)),
        "order-in-bursts" => order::random_programs(number(1) as u64, number(2), number(3), true),
        "memory-in-turn" => memory::in_turn(number(1)),
        "memory-in-threads" => memory::in_threads(number(1), number(2)),
        "memory-as-seen" => memory::as_seen(),
        "memory-waited-for" => memory::waited_for(),
        "memory-of-contexts" => memory::of_contexts(),
        "memory-until-full" => memory::until_full(),
        "memory-refused" => memory::refused(),
        "memory-shared" => memory::shared(),
        "newer" => newer::loads(&arguments[1], &arguments[2]),
        "capability" => newer::capability(),
        "shaped" => shaped::rounds(number(1), number(2) as u32, number(3) != 0),
        "shaped-observed" => shaped::observed(number(1) as u32),
        "shaped-mapped" => shaped::mapped(),
        "shaped-cases" => shaped::cases(),
        "places-contexts" => places::contexts(number(1), number(2) != 0),
        "places-green" => places::green_contexts(number(1), number(2) != 0),
        "places-own-streams" => places::own_streams(number(1), number(2), number(3) != 0),
        "threads-in-turn" => programs::threads_in_turn(number(1), number(2)),
        other => panic!("no program {other:?}"),
    }
}
