//! Questions about one kernel over HTTP, its lines and other configurations: the meaning of the
//! parameters, and the status of an answer.

use apex_http::{Request, Response, StatusCode};
use apex_predict::{Change, Models};
use apex_predict_session::explore::Refusal;
use std::ops::RangeInclusive;

use crate::parameters::{ViewParameters, number, single};
use crate::problem::{JSON, Problem};
use crate::sessions::Known;
use crate::views::Views;

/// Threads along a side of a block.
const SIDE: RangeInclusive<u64> = 1..=9999;
/// Registers of a thread.
const REGISTERS: RangeInclusive<u64> = 1..=255;
/// Dynamic shared memory of a block, bytes.
const SHARED: RangeInclusive<u64> = 0..=1 << 20;

/// Parameters of `what-if` beside those that select a part of the session.
pub const PARAMETERS: [&str; 3] = ["block", "registers", "shared"];

/// Reads the change of a kernel that a request asks for; the rest stays. As many blocks are
/// launched as the same threads need.
fn change(request: &Request) -> Result<Change, String> {
    let block = match single(request, "block")? {
        None => None,
        Some(text) => Some(sides(&text).ok_or_else(|| {
            let (least, most) = SIDE.into_inner();
            format!("block: use one to three whole numbers from {least} to {most} with commas between")
        })?),
    };
    let [registers, shared] = [("registers", REGISTERS), ("shared", SHARED)]
        .map(|(name, allowed)| Ok::<_, String>(number(request, name, allowed)?.map(|number| number as u32)));
    Ok(Change {
        grid: None,
        block: block.map(Into::into),
        registers: registers?,
        dynamic_shared_bytes: shared?,
    })
}

fn sides(text: &str) -> Option<[u32; 3]> {
    let mut sides = [1; 3];
    let mut given = text.split(',');
    for (side, text) in sides.iter_mut().zip(&mut given) {
        let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        *side = digits?.parse().ok().filter(|side| SIDE.contains(&u64::from(*side)))?;
    }
    given.next().is_none().then_some(sides)
}

/// Answers a request about a kernel of a session.
///
/// # Errors
/// The reason for which there is no answer.
pub fn answer(views: &Views, request: &Request, known: &Known, kernel: &str) -> Result<Response, Problem> {
    let parameters = [&ViewParameters::PARAMETERS[..], &PARAMETERS].concat();
    let (wanted, change) = (ViewParameters::among(request, &parameters)?, change(request)?);
    let explored = views.kernels(known, &wanted)?.explorer.explore(&Models::shipped(), kernel, &change);
    let explored = explored.map_err(|why| match why {
        Refusal::NoKernel => Problem::Empty(why.to_string()),
        Refusal::Nonsense(why) => Problem::Nonsense(why),
    })?;
    Ok(Response::new(StatusCode::OK, JSON, apex_page::what_if(kernel, &explored)))
}

/// Answers a request for the lines of a kernel of a session.
///
/// # Errors
/// The reason for which there is no answer.
pub fn lines(views: &Views, request: &Request, known: &Known, kernel: &str) -> Result<Response, Problem> {
    let kernels = views.kernels(known, &ViewParameters::of(request)?)?;
    Ok(Response::new(StatusCode::OK, JSON, kernels.lines.json(kernel).map_err(Problem::Empty)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_in_their_forms() {
        assert_eq!(
            (sides("128"), sides("32,8"), sides("8,4,2")),
            (Some([128, 1, 1]), Some([32, 8, 1]), Some([8, 4, 2]))
        );
        for text in ["", "0", "10000", "+1", "1,2,3,4", "1,,2", "x", "4294967297"] {
            assert_eq!(sides(text), None, "{text}");
        }
    }
}
