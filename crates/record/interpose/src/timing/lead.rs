//! The lead that the host must have over the GPU for a timed launch, and the lead that it has.
//!
//! The events of a pair measure only the launch if the GPU reaches the first event after the host
//! has recorded the second one. On an idle stream it never does; on a busy stream it does if enough
//! work is queued. Idle streams are therefore delayed before the first event, and busy ones if the
//! thread's last pair came too late. The length of the delay is adjusted by whether the previous
//! one was sufficient.

/// Least delay, microseconds: an H200's host needs about six for a launch and two events.
const LEAST_US: u16 = 16;
/// Longest delay, microseconds.
const MOST_US: u16 = 128;
/// Pairs on busy streams that are delayed after one that came too late.
const BUSY_PAIRS: u8 = 8;

/// A thread's delays.
pub struct Lead {
    us: u16,
    /// Pairs on busy streams that are still to be delayed.
    busy_pairs: u8,
}

impl Default for Lead {
    fn default() -> Lead {
        Lead { us: LEAST_US, busy_pairs: 0 }
    }
}

impl Lead {
    /// Microseconds by which to delay a stream before a pair; `None` if it is far enough behind.
    pub fn wanted(&self, was_idle: bool) -> Option<u16> {
        (was_idle || self.busy_pairs > 0).then_some(self.us)
    }

    /// Learns from a pair on a delayed stream: whether the GPU had still to come to the first event
    /// when the second was recorded.
    pub fn delayed(&mut self, was_enough: bool) {
        self.busy_pairs = self.busy_pairs.saturating_sub(1);
        let us = if was_enough { self.us - self.us / 16 } else { self.us * 2 };
        self.us = us.clamp(LEAST_US, MOST_US);
    }

    /// Learns the same from a pair on a stream that was busy, and not delayed.
    pub fn busy(&mut self, was_enough: bool) {
        self.busy_pairs = if was_enough { 0 } else { BUSY_PAIRS };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_streams_are_delayed_and_busy_ones_after_a_pair_that_came_too_late() {
        let mut lead = Lead::default();
        assert_eq!((lead.wanted(true), lead.wanted(false)), (Some(LEAST_US), None));
        lead.busy(false);
        for _ in 0..BUSY_PAIRS {
            assert!(lead.wanted(false).is_some());
            lead.delayed(true);
        }
        assert_eq!(lead.wanted(false), None, "it is tried again without");
        lead.busy(true);
        assert_eq!(lead.wanted(false), None);
    }

    #[test]
    fn the_delay_doubles_where_it_was_too_short_and_has_bounds() {
        let mut lead = Lead::default();
        lead.delayed(false);
        assert_eq!(lead.wanted(true), Some(2 * LEAST_US));
        (0..10).for_each(|_| lead.delayed(false));
        assert_eq!(lead.wanted(true), Some(MOST_US));
        (0..100).for_each(|_| lead.delayed(true));
        assert_eq!(lead.wanted(true), Some(LEAST_US));
    }
}
