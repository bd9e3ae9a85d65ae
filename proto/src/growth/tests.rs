use proptest::prelude::*;

use super::threshold::{
    buffer_at_loss, buffer_that_fills, fastest_growth, first_overflow, first_overflow_among, most_among_others,
};
use super::*;
use crate::units::{Bytes, Micros, Window};

const DBC: Growth = Growth::Dbc { dmax: NonZeroU32::new(2).unwrap() };

fn burst_of(f: u32) -> Growth {
    Growth::Burst { f: NonZeroU32::new(f).unwrap() }
}

/// V4: what one acknowledged segment adds below a threshold of 100.
#[test]
fn decreasing_byte_counting_adds_as_published() {
    for (window, added) in [(1, 1.0), (25, 0.8049), (50, 0.6689), (75, 0.5723)] {
        let before = GrownWindow::of(Segments(window));
        let after = DBC.grow(before, Segments(100), Segments(1)).unwrap();
        assert!((after.as_f64() - f64::from(window) - added).abs() < 5e-5, "{window}: {after:?}");
    }
    // At the threshold itself it would be 0.5; congestion avoidance holds there.
    let near = GrownWindow { whole: 99, fraction: (1 << FRACTION_BITS) - 1 };
    let divisor = dbc(near, Segments(100), 1, NonZeroU32::new(2).unwrap()).unwrap().parts() - near.parts();
    assert!((divisor as f64 / f64::from(1u32 << FRACTION_BITS) - 0.5).abs() < 5e-5);
    assert_eq!(DBC.grow(GrownWindow::of(Segments(100)), Segments(100), Segments(1)), None);
    assert_eq!(DBC.grow(GrownWindow::of(Segments(10)), NO_THRESHOLD, Segments(1)), None);
}

/// V5: windows after each round trip from one segment, each segment acknowledged.
#[test]
fn burst_tcp_opens_the_window_as_published() {
    for (f, windows) in [(4, [8.0, 12.18, 15.66, 18.43]), (8, [4.0, 6.44, 8.62, 10.33])] {
        let mut window = GrownWindow::of(Segments(1));
        for expected in windows {
            for _ in 0..window.whole {
                window = burst_of(f).grow(window, NO_THRESHOLD, Segments(1)).unwrap();
            }
            assert!((window.as_f64() - expected).abs() < 5e-3, "f = {f}: {} for {expected}", window.as_f64());
        }
    }
}

#[test]
fn burst_tcp_ends_at_its_window_and_at_the_threshold() {
    assert_eq!(burst_of(4).grow(GrownWindow::of(Segments(32)), NO_THRESHOLD, Segments(1)), None);
    assert_eq!(burst_of(4).grow(GrownWindow::of(Segments(20)), Segments(20), Segments(1)), None);
    let bounded = burst_of(4).grow(GrownWindow::of(Segments(1)), Segments(5), Segments(1));
    assert_eq!(bounded, Some(GrownWindow::of(Segments(5))));
}

#[test]
fn the_simulators_increment_is_the_same() {
    let f = NonZeroU32::new(8).unwrap();
    for window in [1u32, 2, 7, 15, 31] {
        let grown = burst_of(8).grow(GrownWindow::of(Segments(window)), NO_THRESHOLD, Segments(1)).unwrap();
        let added = burst_increment(f64::from(window), MICE_SEGMENTS, f);
        assert!((grown.as_f64() - f64::from(window) - added).abs() < 2e-6, "{window}");
    }
}

#[test]
fn slow_start_overflows_where_the_model_says() {
    // T12's paths: a pipe of 191 segments.
    for (buffer, one, two) in [(20.0, 40.0, 60.0), (50.0, 100.0, 150.0), (100.0, 200.0, 291.0), (200.0, 391.0, 391.0)] {
        assert_eq!(first_overflow(buffer, 191.0, 1.0).to_bits(), f64::to_bits(one));
        assert_eq!(first_overflow(buffer, 191.0, 2.0).to_bits(), f64::to_bits(two));
    }
    assert_eq!(first_overflow_among(50.0, 191.0, 1.0, 200.0).to_bits(), 41f64.to_bits());
    assert_eq!(first_overflow_among(50.0, 191.0, 1.0, 300.0).to_bits(), 0f64.to_bits());
    assert_eq!(most_among_others(200.0, 191.0, 1.0).to_bits(), 195.5f64.to_bits());
    assert_eq!(buffer_that_fills(191.0, 2.0).to_bits(), 95.5f64.to_bits());
    assert_eq!(fastest_growth(50.0, 191.0, 100.0, 0.0).to_bits(), 1f64.to_bits());
    assert_eq!(fastest_growth(50.0, 191.0, 1_000.0, 191.0).to_bits(), 0f64.to_bits());
    assert!(fastest_growth(0.0, 191.0, 100.0, 0.0).is_infinite());
}

#[test]
fn a_loss_shows_the_buffer_by_its_round_trip() {
    let window = Window::from_segments(Segments(60), Bytes(1_000));
    let buffer =
        |at_loss| buffer_at_loss(window, Micros(100_000), Micros(at_loss)).map(|buffer| buffer.segments(Bytes(1_000)));
    assert_eq!(buffer(150_000), Some(Segments(20)));
    assert_eq!(buffer(100_000), Some(Segments(0)));
    assert_eq!(buffer(99_999), None);
    assert_eq!(buffer_at_loss(window, Micros(0), Micros(1)), None);
}

proptest! {
    /// Never faster than the kernel's own slow start where byte counting is on, never smaller, never beyond the threshold.
    #[test]
    fn growth_is_total_and_bounded(
        whole in 0u32..=u32::MAX, fraction in 0u32..1 << FRACTION_BITS, ssthresh in 0u32..=u32::MAX,
        acked in 0u32..=u32::MAX, dmax in 1u32..=u32::MAX,
    ) {
        let window = GrownWindow { whole, fraction };
        let dbc = Growth::Dbc { dmax: NonZeroU32::new(dmax).unwrap() };
        if let Some(grown) = dbc.grow(window, Segments(ssthresh), Segments(acked)) {
            prop_assert!(grown >= window && grown <= GrownWindow::of(Segments(ssthresh)));
            prop_assert!(grown.whole - whole <= acked);
        }
        if let Some(grown) = burst_of(dmax.clamp(4, 16)).grow(window, Segments(ssthresh), Segments(acked)) {
            prop_assert!(grown >= window && grown <= GrownWindow::of(Segments(ssthresh)));
        }
        prop_assert_eq!(Growth::Standard.grow(window, Segments(ssthresh), Segments(acked)), None);
    }
}
