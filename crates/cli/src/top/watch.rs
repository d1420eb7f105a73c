//! Looks at sessions: those that the user named, or all that are recorded now.

use apex_advice::Options;
use apex_live::{Follower, recorded_now};
use apex_predict::Models;
use apex_predict_session::recorded;
use apex_top::Look;
use std::path::PathBuf;
use std::time::Duration;

/// A look at the session in a folder, or why there is none.
pub type Looked = (PathBuf, Result<Look, String>);

/// The extent of the judgement of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The part that the screen shows: the models are not asked.
    Brief,
    /// As `apex report` says it.
    Full,
}

/// Looks at sessions again and again.
pub struct Watcher {
    followers: Vec<Follower>,
    /// Whether sessions that begin are followed, too.
    finds: bool,
    last: Duration,
    judgement: Judgement,
}

impl Watcher {
    /// Follows the sessions in these folders; if there are none, all that are recorded now.
    pub fn new(named: &[PathBuf], last: Duration, judgement: Judgement) -> Self {
        let followers = named.iter().map(|folder| Follower::fresh(folder, last)).collect();
        Self { followers, finds: named.is_empty(), last, judgement }
    }

    /// Looks at all sessions that have not ended, and once at one that has ended since.
    pub fn look(&mut self) -> Vec<Looked> {
        let recorded = if self.finds { recorded_now() } else { Vec::new() };
        for folder in &recorded {
            if !self.followers.iter().any(|follower| follower.dir() == folder) {
                self.followers.push(Follower::fresh(folder, self.last));
            }
        }
        let Self { followers, finds, judgement, .. } = self;
        let mut looked = Vec::new();
        followers.retain_mut(|follower| {
            let folder = follower.dir().to_owned();
            let look = look(follower, *judgement);
            let goes_on = match &look {
                _ if *finds => recorded.contains(&folder),
                Ok(look) => !look.is_over(),
                Err(_) => folder.exists(),
            };
            looked.push((folder, look));
            goes_on
        });
        looked
    }
}

fn look(follower: &mut Follower, judgement: Judgement) -> Result<Look, String> {
    let mut snapshot = follower.look().map_err(|error| error.to_string())?;
    let models = match judgement {
        Judgement::Full if !snapshot.profile.kernels.is_empty() => Some(Models::shipped()),
        _ => None,
    };
    if let Some(models) = &models {
        let predictions = recorded::predictions(&snapshot.profile, models);
        snapshot.profile = snapshot.profile.with(predictions);
    }
    Ok(Look::of(snapshot, &Options { models, ..Options::default() }))
}
