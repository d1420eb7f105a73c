//! Models that are replaced while they are in use: whole, broken, foreign, slowly, not at all.

use apex_model::network::Network;
use apex_model::{Activation, Model};
use apex_predict::reload::{Event, Folder, Watch};
use apex_predict::{Case, Device, Models};
use cuda_launch::LaunchConfig;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Models of random weights, which predict as they like.
fn random(seed: u64) -> [Model; 3] {
    Models::FILES.map(|file| {
        let shipped = test_manifest::content(&format!("crates/predict/predict/models/{file}.zst"));
        let like = Model::from_bytes(&shipped).unwrap();
        let (features, targets) = (like.features().clone(), like.network().targets().to_vec());
        let calibrations = vec![None; targets.len()];
        let network = Network::new(features.features.len(), &[4], Activation::Silu, targets, seed).unwrap();
        Model::new(features, network, calibrations, like.notes().to_vec()).unwrap()
    })
}

fn bytes(seed: u64) -> [Vec<u8>; 3] {
    random(seed).map(|model| model.to_bytes())
}

fn write(folder: &Path, files: &[Vec<u8>; 3]) {
    for (name, bytes) in Models::FILES.iter().zip(files) {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}

/// A folder of models.
fn folder(seed: u64) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &bytes(seed));
    folder
}

/// The files of a folder, one of them to be changed.
fn large(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join(Models::FILES[1])
}

/// Returns a hash of the models' prediction for one launch, which differs between models of
/// different weights.
fn said(models: &Models) -> u64 {
    let launch = LaunchConfig::new(100, 128);
    let said = models.predict(&Device::h200(), &Case::of_launch(launch)).unwrap();
    said.duration_us.value.to_bits()
}

#[test]
fn new_files_are_used_and_old_models_stay_with_who_holds_them() {
    let files = folder(1);
    let mut watched = Folder::open(files.path()).unwrap();
    let (old, before) = (watched.models(), said(&watched.models()));
    assert!(watched.look().is_none());
    write(files.path(), &bytes(2));
    assert!(matches!(watched.look(), Some(Event::Replaced)));
    assert_ne!(said(&watched.models()), before);
    assert_eq!(said(&old), before);
    assert!(watched.look().is_none(), "what was taken is not new");
}

#[test]
fn a_file_moved_into_place_is_used() {
    let files = folder(1);
    let mut watched = Folder::open(files.path()).unwrap();
    let before = said(&watched.models());
    for (name, model) in Models::FILES.iter().zip(random(2)) {
        model.save(&files.path().join(name)).unwrap();
    }
    assert!(matches!(watched.look(), Some(Event::Replaced)));
    assert_ne!(said(&watched.models()), before);
}

#[test]
fn a_broken_file_is_refused_once_and_changes_nothing() {
    let files = folder(1);
    let mut watched = Folder::open(files.path()).unwrap();
    let before = watched.models();
    let good = std::fs::read(large(&files)).unwrap();
    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() ^= 1;
    for broken in [&b"nothing"[..], b"", &damaged, &good[..good.len() - 1]] {
        std::fs::write(large(&files), broken).unwrap();
        assert!(watched.look().is_none(), "it may still be being written");
        match watched.look() {
            Some(Event::Refused(why)) => assert!(why.to_string().contains(Models::FILES[1]), "{why}"),
            other => panic!("{other:?}"),
        }
        assert!(watched.look().is_none(), "refused once");
        assert!(Arc::ptr_eq(&before, &watched.models()));
    }
}

#[test]
fn a_model_of_other_features_is_refused() {
    let files = folder(1);
    let mut watched = Folder::open(files.path()).unwrap();
    let [_, large_model, _] = random(2);
    let mut features = large_model.features().clone();
    features.version += 1;
    let calibrations = large_model.calibrations().to_vec();
    let newer =
        Model::new(features, large_model.network().clone(), calibrations, large_model.notes().to_vec())
            .unwrap();
    newer.save(&large(&files)).unwrap();
    assert!(watched.look().is_none());
    let Some(Event::Refused(why)) = watched.look() else { panic!("it was taken") };
    assert!(why.to_string().contains("features"), "{why}");
    // The same for models in each other's place.
    std::fs::copy(files.path().join(Models::FILES[0]), large(&files)).unwrap();
    assert!(watched.look().is_none());
    assert!(matches!(watched.look(), Some(Event::Refused(_))));
}

#[test]
fn a_file_that_is_gone_leaves_the_models_in_use() {
    let files = folder(1);
    let mut watched = Folder::open(files.path()).unwrap();
    let before = watched.models();
    let good = std::fs::read(large(&files)).unwrap();
    std::fs::remove_file(large(&files)).unwrap();
    assert!(watched.look().is_none());
    assert!(matches!(watched.look(), Some(Event::Refused(_))));
    std::fs::write(large(&files), good).unwrap();
    assert!(matches!(watched.look(), Some(Event::Replaced)), "what was refused is no more: said once");
    assert_eq!(said(&before), said(&watched.models()));
    std::fs::remove_dir_all(files.path()).unwrap();
    assert!(watched.look().is_none());
    assert!(matches!(watched.look(), Some(Event::Refused(_))));
}

#[test]
fn a_file_that_is_written_slowly_is_used_when_it_is_whole() {
    let files = folder(1);
    let mut watched = Folder::open(files.path()).unwrap();
    let before = said(&watched.models());
    let [small, ..] = bytes(2);
    for part in [small.len() / 3, small.len() / 2, small.len() - 1] {
        std::fs::write(files.path().join(Models::FILES[0]), &small[..part]).unwrap();
        assert!(watched.look().is_none(), "not yet, and nothing to complain about");
        assert_eq!(said(&watched.models()), before);
    }
    std::fs::write(files.path().join(Models::FILES[0]), &small).unwrap();
    assert!(matches!(watched.look(), Some(Event::Replaced)));
    assert_ne!(said(&watched.models()), before);
}

#[test]
fn equal_files_are_not_new() {
    let files = folder(1);
    let mut watched = Folder::open(files.path()).unwrap();
    let before = watched.models();
    write(files.path(), &bytes(1));
    assert!(watched.look().is_none());
    assert!(Arc::ptr_eq(&before, &watched.models()));
}

#[test]
fn a_folder_without_models_is_no_beginning() {
    let files = tempfile::tempdir().unwrap();
    let why = Folder::open(files.path()).unwrap_err().to_string();
    assert!(why.contains(Models::FILES[0]), "{why}");
    assert!(Watch::start(files.path(), |_| ()).is_err());
}

/// A watched folder, and what it tells.
fn watched(files: &Path) -> (Watch, Receiver<Event>) {
    let (send, told) = channel();
    // Who no longer listens needs to hear nothing.
    let watch = Watch::start(files, move |event| drop(send.send(event))).unwrap();
    (watch, told)
}

#[test]
fn a_watch_swaps_before_it_tells() {
    let files = folder(1);
    let (watch, told) = watched(files.path());
    let mut last = said(&watch.models());
    for seed in 2..5 {
        for (name, model) in Models::FILES.iter().zip(random(seed)) {
            model.save(&files.path().join(name)).unwrap();
        }
        // It may look between two of the files.
        while said(&watch.models()) == last {
            assert!(matches!(told.recv_timeout(PATIENCE), Ok(Event::Replaced)));
        }
        last = said(&watch.models());
    }
    std::fs::write(large(&files), "nothing").unwrap();
    while !matches!(told.recv_timeout(PATIENCE).unwrap(), Event::Refused(_)) {}
    assert_eq!(said(&watch.models()), last);
    drop(watch);
    assert!(told.recv().is_err(), "the thread has ended, and tells nothing any more");
}

#[test]
fn threads_that_predict_meanwhile_see_whole_models_only() {
    let files = folder(1);
    let (watch, told) = watched(files.path());
    let stop = AtomicBool::new(false);
    let allowed: Vec<u64> = (1..4).map(|seed| said(&Models::new(random(seed)).unwrap())).collect();
    std::thread::scope(|scope| {
        let predicting: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut count = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        let said = said(&watch.models());
                        assert!(allowed.contains(&said));
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        for seed in 2..4 {
            write(files.path(), &bytes(seed));
            while said(&watch.models()) != allowed[seed as usize - 1] {
                told.recv_timeout(PATIENCE).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(predicting.into_iter().all(|thread| thread.join().unwrap() > 0));
    });
}
