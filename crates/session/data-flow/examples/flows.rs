//! Prints the data flow of a session's steps, a line of JSON each: `flows SESSION`.

use apex_predict::Models;
use apex_predict_session::recorded;
use apex_profile::Profile;
use apex_trace::Session;
use std::path::PathBuf;

fn main() {
    let folder = std::env::args().nth(1).expect("usage: flows SESSION");
    let session = Session::open(PathBuf::from(folder)).expect("a session");
    let profile = Profile::from_session(&session);
    let predictions = recorded::predictions(&profile, &Models::shipped());
    let profile = profile.with(predictions);
    for flow in apex_data_flow::of_session(&session, &profile) {
        let first = flow.launches.first().map_or("", |launch| &profile.kernels[launch.kernel].short_name);
        println!(
            "{{\"first\":{first:?},\"launches\":{},\"chain\":{},\"repeats\":{},\"known\":{},\"serial_ns\":{:.0},\
             \"chain_ns\":{:.0},\"concurrent_ns\":{:.0},\"saved\":{:.4},\"saved_at_most\":{:.4}}}",
            flow.launches.len(),
            flow.chain.len(),
            flow.repeats,
            flow.launches.iter().filter(|launch| launch.is_known).count(),
            flow.serial_ns,
            flow.chain_ns,
            flow.concurrent_ns,
            flow.saved(),
            flow.saved_at_most()
        );
    }
}
