//! Nobody writes to the mirror through a tunnel but its configured endpoints.

use spand_core::counters::Ignored;
use spand_tests::hostile::tunnels::{SENDER, Scene, TARGET, Wrapping};
use strum::VariantArray;

const INSIDE: &str = "[traffic]\ninternal = [\"10.0.0.0/8\"]\n";

fn between(wrapping: Wrapping, endpoints: &[&str]) -> String {
    format!("{INSIDE}[[traffic.tunnel]]\nkind = \"{}\"\nendpoints = {endpoints:?}\n", wrapping.kind().name())
}

/// From one address that is not spoofed: no share, round trip, size, start, connection or network is another than if
/// datagrams had come that are no tunnel. One counter says what was there.
#[test]
fn conversations_made_up_in_tunnels_change_nothing_but_a_counter() {
    let scene = Scene::new();
    for wrapping in Wrapping::VARIANTS.iter().copied() {
        let without = scene.play(INSIDE, wrapping, false).expect("a configuration");
        assert!(without.networks.contains("share") && !without.events.is_empty(), "{}", without.networks);
        assert_eq!(without.ignored(Ignored::NotTcp), scene.made_up());
        let kind = wrapping.kind();
        let target = format!("{TARGET}/32");
        for (config, reason) in [
            (INSIDE.to_owned(), kind.not_configured()),
            (between(wrapping, &["192.0.2.0/24", "10.0.0.0/8"]), kind.unknown_endpoint()),
            (between(wrapping, &[&target, "2001:db8::/32"]), kind.unknown_endpoint()),
            (between(wrapping, &["198.51.100.0/24"]), kind.unknown_endpoint()),
        ] {
            let with = scene.play(&config, wrapping, true).expect("a configuration");
            assert_eq!(with.ignored(reason), scene.made_up(), "{wrapping:?}, {config}");
            assert_eq!(with.as_if(reason, Ignored::NotTcp), without, "{wrapping:?}, {config}");
        }
    }
}

#[test]
fn conversations_in_tunnels_between_configured_endpoints_are_followed() {
    let scene = Scene::new();
    for wrapping in Wrapping::VARIANTS.iter().copied() {
        let config = between(wrapping, &[&format!("{SENDER}/32"), &format!("{TARGET}/32")]);
        let [with, without] =
            [true, false].map(|tunnels| scene.play(&config, wrapping, tunnels).expect("a configuration"));
        let segments =
            |counted: &[(&str, u64)]| counted.iter().find(|(name, _)| *name == "segments").map(|(_, count)| *count);
        assert_eq!(segments(&with.counted), segments(&without.counted).map(|n| n + scene.made_up()), "{wrapping:?}");
        assert_ne!(with.networks, without.networks, "{wrapping:?}");
        assert!(with.connections > without.connections, "{wrapping:?}");
    }
}
