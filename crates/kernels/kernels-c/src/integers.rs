//! What the integers of a call say: sizes, and choices that are numbered. An error names the
//! operation and the integer.

use crate::call::Failure;

/// A size, which must not be negative.
pub fn size(operation: &str, name: &str, number: i64) -> Result<usize, Failure> {
    usize::try_from(number)
        .map_err(|_| Failure::invalid(format!("{operation}: {name} is {number}, and must not be negative")))
}

/// One of `forms`, which are numbered from 1 on; `None` for 0, which leaves the choice to the
/// operation.
pub fn form<F: Copy>(operation: &str, forms: &[F], number: i64) -> Result<Option<F>, Failure> {
    if number == 0 {
        return Ok(None);
    }
    let place = number.checked_sub(1).and_then(|place| usize::try_from(place).ok());
    let form = place.and_then(|place| forms.get(place));
    form.copied().map(Some).ok_or_else(|| unknown(operation, "form", number))
}

/// The number of a form that is one of `forms`.
pub fn number<F: PartialEq>(forms: &[F], form: F) -> i32 {
    forms.iter().position(|known| *known == form).map_or(0, |place| place as i32 + 1)
}

/// The failure of a number that stands for nothing.
pub fn unknown(operation: &str, what: &str, number: i64) -> Failure {
    Failure::invalid(format!("{operation}: there is no {what} {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_have_numbers_from_one_on() {
        let forms = ['a', 'b'];
        assert_eq!(form("sum", &forms, 0).unwrap(), None);
        for (place, of) in forms.into_iter().enumerate() {
            assert_eq!(form("sum", &forms, place as i64 + 1).unwrap(), Some(of));
            assert_eq!(number(&forms, of), place as i32 + 1);
        }
        for wrong in [3, -1, i64::MIN, i64::MAX] {
            assert_eq!(
                form("sum", &forms, wrong).unwrap_err().message,
                format!("sum: there is no form {wrong}")
            );
        }
    }

    #[test]
    fn a_negative_size_is_named() {
        assert_eq!(size("sum", "rows", 3).unwrap(), 3);
        let said = size("sum", "rows", -3).unwrap_err().message;
        assert_eq!(said, "sum: rows is -3, and must not be negative");
    }
}
