//! The timeline over HTTP: the meaning of its parameters, and the status of an answer. A session
//! that is being read, or was deleted, is answered with status 200, because browsers log every
//! other status as an error.

use std::ops::RangeInclusive;

use apex_http::{Request, Response, StatusCode};
use apex_timeline::{
    Asked, AskedLaunch, MOST_COLUMNS, MOST_EVENTS, Missing, Problem, Question, Step, Timelines, Unanswered,
};

use crate::parameters::{all_known, number, single};
use crate::problem::JSON;
use crate::sessions::Known;

/// Columns where the request does not say how many.
const COLUMNS: usize = 1000;
/// Lanes and ranks that a request may name.
const MOST_NAMED: usize = 64;
/// Moments: what a number in JavaScript holds exactly.
const MOMENTS: RangeInclusive<u64> = 0..=(1 << 53) - 1;

/// Parameters of `timeline`, `timeline/span` and `timeline/launch`.
pub const PARAMETERS: [&[&str]; 3] = [
    &["from", "to", "columns", "lane", "rank", "series", "events"],
    &["from", "to", "lane", "rank"],
    &["lane", "at", "step"],
];

/// Answers a request for a session's timeline, or a part of it; `None` if there is no such part.
///
/// # Errors
/// The reason for which there is no answer.
pub fn answer(
    timelines: &Timelines,
    request: &Request,
    known: &Known,
    what: &[&str],
) -> Result<Option<Response>, crate::Problem> {
    let [whole, span, launch] = PARAMETERS;
    let asked = match *what {
        [] => Question::Part(asked(request, whole)?),
        ["span"] => Question::Span(asked(request, span)?),
        ["launch"] => Question::Launch(asked_launch(request, launch)?),
        _ => return Ok(None),
    };
    Ok(Some(of_session(timelines, known, &asked)))
}

/// A timeline that is being made, or that there cannot be, is an answer, too: its `state` says so.
fn of_session(timelines: &Timelines, known: &Known, asked: &Question) -> Response {
    let ok = |json: String| Response::new(StatusCode::OK, JSON, json);
    let look = match timelines.look(&known.dir) {
        Ok(look) => look,
        Err(Problem::Unreadable(why)) => return ok(asked.without(&Missing::Unreadable(why))),
        Err(Problem::Deleted) => return ok(asked.without(&Missing::Deleted(known.gone()))),
    };
    let Some(timeline) = &look.timeline else { return ok(asked.without(&look.building())) };
    let answered = match asked {
        Question::Part(asked) => look.answer(asked),
        Question::Span(asked) => timeline.span(asked),
        Question::Launch(asked) => timeline.launch(asked),
    };
    match answered {
        Ok(json) => ok(json),
        Err(Unanswered::Nothing(why)) => Response::text(StatusCode::NOT_FOUND, why),
        Err(Unanswered::Damaged) => {
            // (It is built again.)
            timelines.forget(&known.dir, timeline);
            ok(asked.without(&Missing::Building(0.0)))
        }
    }
}

fn asked(request: &Request, known: &[&str]) -> Result<Asked, String> {
    all_known(request, known)?;
    let [from, to] = [number(request, "from", MOMENTS)?, number(request, "to", MOMENTS)?];
    if from.zip(to).is_some_and(|(from, to)| from >= to) {
        return Err("from has to be before to".to_owned());
    }
    let columns = number(request, "columns", 1..=MOST_COLUMNS as u64)?;
    let events = number(request, "events", 0..=MOST_EVENTS as u64)?;
    let lanes: Vec<String> = request.all("lane").map(str::to_owned).collect();
    let ranks = match single(request, "rank")? {
        None => Ok(Vec::new()),
        Some(ranks) => ranks.split(',').map(str::parse).collect(),
    };
    let ranks: Vec<u32> = ranks.map_err(|_| "rank: use numbers with commas between".to_owned())?;
    if lanes.len() > MOST_NAMED || ranks.len() > MOST_NAMED {
        return Err(format!("name at most {MOST_NAMED} lanes and {MOST_NAMED} ranks"));
    }
    let only_time = match single(request, "series")?.as_deref() {
        None => false,
        Some("time") => true,
        Some(_) => return Err("series: use time".to_owned()),
    };
    Ok(Asked {
        from,
        to,
        columns: columns.map_or(COLUMNS, |columns| columns as usize),
        lanes,
        ranks,
        only_time,
        events: events.map_or(MOST_EVENTS, |events| events as usize),
    })
}

fn asked_launch(request: &Request, known: &[&str]) -> Result<AskedLaunch, String> {
    all_known(request, known)?;
    let lane =
        single(request, "lane")?.ok_or("lane is missing: use the id of one of the timeline's lanes")?;
    let at =
        number(request, "at", MOMENTS)?.ok_or("at is missing: use nanoseconds since the session's start")?;
    let step = match single(request, "step")?.as_deref() {
        None => None,
        Some("next") => Some(Step::Next),
        Some("previous") => Some(Step::Previous),
        Some(_) => return Err("step: use next or previous".to_owned()),
    };
    Ok(AskedLaunch { lane, at, step })
}
