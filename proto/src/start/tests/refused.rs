use super::*;

/// The reason for which `change` makes a good request be refused.
fn reason(policy: &StartPolicy, change: impl FnOnce(&mut Estimate), ask: impl FnOnce(&mut StartRequest<'_>)) -> String {
    let mut estimate = estimate(40);
    change(&mut estimate);
    let mut request = request(&estimate);
    ask(&mut request);
    start(&request, policy).map_or_else(|refusal| refusal.reason().to_string(), |_| "none".to_owned())
}

#[test]
fn every_refusal_has_its_reason_and_its_edge() {
    let careful =
        |change: fn(&mut Estimate), ask: fn(&mut StartRequest<'_>)| reason(&StartPolicy::CAREFUL, change, ask);
    let now = |us| Timestamp::from_micros(us);
    assert_eq!(careful(|_| (), |_| ()), "none");
    assert_eq!(careful(|_| (), |r| r.estimate = None), "no_estimate");
    assert_eq!(careful(|e| e.samples = 2, |_| ()), "too_few_samples");
    assert_eq!(careful(|e| e.samples = 3, |_| ()), "none");
    assert_eq!(careful(|e| e.connections = 1, |_| ()), "too_few_connections");
    assert_eq!(careful(|e| e.connections = 2, |_| ()), "none");
    assert_eq!(reason(&StartPolicy::CAREFUL, |_| (), |r| r.now = now(300_000_000)), "none");
    assert_eq!(reason(&StartPolicy::CAREFUL, |_| (), |r| r.now = now(300_000_001)), "stale");
    assert_eq!(careful(|_| (), |r| r.handshake_rtt = Some(Micros(50_000))), "none");
    assert_eq!(careful(|_| (), |r| r.handshake_rtt = Some(Micros(49_999))), "rtt_mismatch");
    assert_eq!(careful(|_| (), |r| r.handshake_rtt = Some(Micros(200_000))), "none");
    assert_eq!(careful(|_| (), |r| r.handshake_rtt = Some(Micros(200_001))), "rtt_mismatch");
    assert_eq!(careful(|_| (), |r| r.mss = Bytes(0)), "mss_zero");
    assert_eq!(careful(|_| (), |r| r.size = TransferSize::Known(Bytes(0))), "empty_transfer");
    let no_rtt = |e: &mut Estimate| (e.rtt_mean, e.rtt_min) = (None, Some(Micros(0)));
    assert_eq!(careful(no_rtt, |_| ()), "no_rtt");
    // Paper mode checks no path: it needs a round trip only to pace, and the handshake's own will do.
    assert_eq!(reason(&StartPolicy::PAPER, no_rtt, |_| ()), "none");
    assert_eq!(reason(&StartPolicy::PAPER, no_rtt, |r| r.handshake_rtt = None), "no_rtt");
}

#[test]
fn names_are_unique_and_found_again() {
    for &reason in RefusalReason::VARIANTS {
        assert_eq!(reason.name().parse(), Ok(reason));
        assert_eq!(serde_json::to_string(&reason).unwrap(), format!("\"{reason}\""));
    }
    for &mode in Mode::VARIANTS {
        assert_eq!(mode.name().parse(), Ok(mode));
        assert_eq!(serde_json::to_string(&mode).unwrap(), format!("\"{mode}\""));
        assert_eq!(StartPolicy::of(mode).mode, mode);
    }
    for limit in Limit::VARIANTS {
        assert_eq!(serde_json::to_string(limit).unwrap(), format!("\"{limit}\""));
    }
    assert!("brave".parse::<Mode>().is_err());
    assert!(Fraction::try_from(0.0).is_err() && Fraction::try_from(f64::NAN).is_err());
    assert!(Fraction::try_from(1.0).is_ok() && Fraction::try_from(1.01).is_err());
}
