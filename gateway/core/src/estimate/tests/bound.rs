//! Lower bounds where too few samples show a share.

use spand_proto::estimate::RuleKind;

use super::*;
use crate::flow::sample::SampleReason::{Carried, EndSlowStart};

fn robust(samples: &[(SampleReason, f64, u8)]) -> Path {
    let mut path = Path::new(RuleKind::Robust);
    path.add_all(samples);
    path
}

#[test]
fn lower_bounds_alone_give_the_largest_that_two_addresses_attest() {
    let path = robust(&[(EndSlowStart, 40.0, 1), (EndSlowStart, 16.0, 1), (EndSlowStart, 38.0, 2), (Carried, 90.0, 3)]);
    let estimate = path.estimate().unwrap();
    assert!(estimate.is_lower_bound);
    assert_near(estimate.share.segments_f64(MSS), 40.0);
    assert_eq!((estimate.samples, estimate.connections, estimate.loss_connections), (4, 4, 0));
    assert!(estimate.confidence.value() < 0.5);
    assert!(
        robust(&[(EndSlowStart, 40.0, 1), (EndSlowStart, 16.0, 2)]).estimate().is_none(),
        "fewer than samples are wanted"
    );
}

#[test]
fn what_every_start_has_shows_nothing() {
    assert!(robust(&[(EndSlowStart, 10.0, 1), (EndAppLimited, 2.0, 2), (EndSlowStart, 10.0, 3)]).estimate().is_none());
}

#[test]
fn enough_samples_show_the_share_whatever_ended_below_it() {
    let mut path =
        robust(&[(EndSlowStart, 16.0, 1), (EndSlowStart, 16.0, 2), (EndSlowStart, 16.0, 3), (Loss, 80.0, 1)]);
    assert!(path.estimate().unwrap().is_lower_bound);
    path.add_all(&[(Loss, 80.0, 2), (Loss, 80.0, 3)]);
    let estimate = path.estimate().unwrap();
    assert_eq!((estimate.is_lower_bound, estimate.share.segments(MSS).0), (false, 80));
}
