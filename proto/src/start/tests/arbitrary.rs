//! Any input under any policy.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::{estimate, request};
use crate::estimate::Estimate;
use crate::start::*;
use crate::units::Window;

/// Any policy that a configuration could make.
fn policy() -> impl Strategy<Value = StartPolicy> {
    let fraction = proptest::option::of((0.001..=1.0).prop_map(|part| Fraction::try_from(part).unwrap()));
    let floor = proptest::option::of((any::<u32>(), any::<u32>()))
        .prop_map(|f| f.map(|(lowest, loss_connections)| Floor { lowest: Segments(lowest), loss_connections }));
    let pacing = (any::<bool>(), any::<u32>()).prop_map(|(bucket, at_once)| {
        let at_once = Segments(at_once);
        if bucket { PacingRule::TokenBucket { depth: at_once } } else { PacingRule::AfterBurst { burst: at_once } }
    });
    let cap = proptest::option::of(any::<u32>().prop_map(Segments));
    (fraction, cap, floor, pacing, 1..=u32::MAX, any::<bool>()).prop_map(|(fraction, cap, floor, pacing, k, check)| {
        let rtt_bounds = check.then_some(RttBounds { low: 0.5, high: 2.0 });
        let segments_per_ack = NonZeroU32::new(k).unwrap();
        StartPolicy { segments_per_ack, fraction, cap, floor, rtt_bounds, pacing, ..StartPolicy::CAREFUL }
    })
}

proptest! {
    #[test]
    fn no_input_panics_and_every_start_is_consistent(
        policy in policy(),
        share_bytes in 0.0..1e15f64,
        size in proptest::option::of(any::<u64>()),
        mss: u64,
        snd_wnd in proptest::option::of(any::<u64>()),
        rtt in proptest::option::of(any::<u64>()),
        initial_window: u32,
        budget in proptest::option::of(any::<u32>()),
    ) {
        let estimate = Estimate { share: Window::from_bytes(share_bytes).unwrap(), ..estimate(0) };
        let request = StartRequest {
            size: size.map(Bytes).into(),
            mss: Bytes(mss),
            snd_wnd: snd_wnd.map(Bytes),
            handshake_rtt: rtt.map(Micros),
            initial_window: Segments(initial_window),
            budget: budget.map(Segments),
            ..request(&estimate)
        };
        if let Ok(start) = start(&request, &policy) {
            prop_assert!(start.cwnd.0 >= 1 && start.ssthresh >= start.cwnd);
            prop_assert_eq!(start.clipped_by.is_some(), start.cwnd < start.account.shifted);
            let mut window = start.account.shifted;
            for bound in &start.account.bounds {
                prop_assert_eq!(bound.before, window);
                window = bound.after;
            }
            prop_assert_eq!(window, start.cwnd);
            if let Some(pacing) = start.pacing {
                prop_assert!(pacing.rate.0 > 0 && pacing.after_segments < start.cwnd);
            }
        }
    }
}
