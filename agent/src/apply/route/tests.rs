//! What is copied, what is refused and what is planned, without a kernel.

use std::collections::BTreeMap;

use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteNextHop, RouteProtocol, RouteType,
};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};

use spand_proto::network::Network;
use spand_proto::units::{Micros, Segments, Timestamp};

use super::monitor::Disturbance;
use super::plan::{InForce, Plan, Situation, StepBacks, lost};
use super::view::{Link, View};
use super::*;
use crate::apply::{Desired, Inputs, StartReason};

fn network(text: &str) -> Network {
    text.parse().unwrap()
}

/// A route of table `main` as the kernel gives it.
fn route(prefix: &str, more: Vec<RouteAttribute>) -> RouteMessage {
    let prefix = network(prefix).prefix();
    let mut route = RouteMessage::default();
    route.header = RouteHeader {
        address_family: if prefix.addr().is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 },
        destination_prefix_length: prefix.prefix_len(),
        table: RouteHeader::RT_TABLE_MAIN,
        protocol: RouteProtocol::Boot,
        kind: RouteType::Unicast,
        ..RouteHeader::default()
    };
    route.attributes = more;
    if prefix.prefix_len() > 0 {
        route.attributes.push(RouteAttribute::Destination(prefix.addr().into()));
    }
    route
}

fn via(gateway: &str, link: u32) -> Vec<RouteAttribute> {
    let gateway: std::net::IpAddr = gateway.parse().unwrap();
    vec![RouteAttribute::Gateway(gateway.into()), RouteAttribute::Oif(link)]
}

fn with(mut attributes: Vec<RouteAttribute>, more: RouteAttribute) -> Vec<RouteAttribute> {
    attributes.push(more);
    attributes
}

fn rule(priority: u32) -> RuleMessage {
    let mut rule = RuleMessage::default();
    rule.header.family = AddressFamily::Inet;
    rule.header.action = RuleAction::ToTable;
    rule.attributes =
        vec![RuleAttribute::Priority(priority), RuleAttribute::Table(254), RuleAttribute::SuppressPrefixLen(u32::MAX)];
    rule
}

fn view_with(rules: &[RuleMessage], routes: Vec<RouteMessage>) -> View {
    let link = |name: &str, up| Link { name: name.to_owned(), up, master: None };
    View::new(
        routes,
        rules,
        BTreeMap::from([(2, link("eth0", true)), (3, link("eth1", true)), (4, link("eth2", false))]),
    )
}

fn view(routes: Vec<RouteMessage>) -> View {
    view_with(&[rule(0), rule(32_766), rule(32_767)], routes)
}

fn hop(routes: Vec<RouteMessage>) -> Result<(String, u32), Obstacle> {
    view(routes).hop(network("192.0.2.0/24")).map(|hop| (hop.gateway.to_string(), hop.link))
}

#[test]
fn the_longest_covering_route_with_the_smallest_metric_is_copied() {
    let default = || route("0.0.0.0/0", via("10.1.0.1", 2));
    assert_eq!(hop(vec![default()]), Ok(("10.1.0.1".to_owned(), 2)));
    assert_eq!(hop(vec![default(), route("192.0.0.0/16", via("10.2.0.1", 3))]), Ok(("10.2.0.1".to_owned(), 3)));
    let backup = route("0.0.0.0/0", with(via("10.2.0.1", 3), RouteAttribute::Priority(100)));
    assert_eq!(hop(vec![backup, default()]), Ok(("10.1.0.1".to_owned(), 2)));
    let elsewhere = route("192.0.0.0/16", with(via("10.2.0.1", 3), RouteAttribute::Table(100)));
    assert_eq!(hop(vec![default(), elsewhere]), Ok(("10.1.0.1".to_owned(), 2)), "another table is never looked up");
}

#[test]
fn each_obstacle_is_named() {
    let default = || route("0.0.0.0/0", via("10.1.0.1", 2));
    let mut blackhole = route("192.0.0.0/16", vec![]);
    blackhole.header.kind = RouteType::BlackHole;
    let mut local = route("192.0.2.7/32", vec![RouteAttribute::Table(255)]);
    local.header.kind = RouteType::Local;
    let window = RouteAttribute::Metrics(vec![RouteMetric::InitCwnd(15)]);
    let several = RouteAttribute::MultiPath(vec![RouteNextHop::default(), RouteNextHop::default()]);
    for (routes, expected) in [
        (vec![], Obstacle::NoRoute),
        (vec![route("198.51.100.0/24", via("10.1.0.1", 2))], Obstacle::NoRoute),
        (vec![route("0.0.0.0/0", vec![several])], Obstacle::Multipath),
        (vec![default(), route("0.0.0.0/0", via("10.2.0.1", 3))], Obstacle::Multipath),
        (vec![route("0.0.0.0/0", vec![RouteAttribute::Oif(2)])], Obstacle::OnLink),
        (vec![default(), route("192.0.2.0/24", via("10.2.0.1", 3))], Obstacle::Administrator),
        (vec![route("0.0.0.0/0", with(via("10.1.0.1", 2), window))], Obstacle::Administrator),
        (vec![default(), route("192.0.2.128/25", via("10.2.0.1", 3))], Obstacle::MoreSpecific),
        (vec![default(), local], Obstacle::MoreSpecific),
        (vec![default(), blackhole], Obstacle::NotCopyable),
        (vec![route("0.0.0.0/0", with(via("10.1.0.1", 2), RouteAttribute::NhId(7)))], Obstacle::NotCopyable),
        (vec![route("0.0.0.0/0", via("10.1.0.1", 4))], Obstacle::LinkDown),
        (vec![route("0.0.0.0/0", via("10.1.0.1", 9))], Obstacle::LinkDown),
    ] {
        assert_eq!(hop(routes), Err(expected));
    }
}

#[test]
fn rules_of_someone_else_are_an_obstacle() {
    let default = || vec![route("0.0.0.0/0", via("10.1.0.1", 2))];
    let mut suppressing = rule(32_766);
    suppressing.attributes[2] = RuleAttribute::SuppressPrefixLen(0);
    let mut marked = rule(0);
    marked.attributes.push(RuleAttribute::FwMark(1));
    let mut from = rule(32_766);
    from.header.src_len = 24;
    for foreign in [rule(100), suppressing, marked, from] {
        let view = view_with(&[rule(0), rule(32_766), foreign], default());
        assert_eq!(view.hop(network("192.0.2.0/24")), Err(Obstacle::PolicyRouting));
    }
}

#[test]
fn a_copy_keeps_metrics_and_is_recognised_when_the_kernel_gives_it_back() {
    let mtu = RouteAttribute::Metrics(vec![RouteMetric::Mtu(1_400)]);
    let view = view(vec![route("0.0.0.0/0", with(via("10.1.0.1", 2), mtu))]);
    let hop = view.hop(network("192.0.2.0/24")).unwrap();
    let copy = hop.route(network("192.0.2.0/24"), Segments(20));
    assert!(
        copy.attributes.contains(&RouteAttribute::Metrics(vec![RouteMetric::Mtu(1_400), RouteMetric::InitCwnd(20)]))
    );
    assert!(signature::signed(&copy));
    assert!(hop.matches(&copy, Segments(20)));
    assert!(!hop.matches(&copy, Segments(21)));
    assert!(!signature::signed(&route("192.0.2.0/24", via("10.1.0.1", 2))));
}

struct Case {
    view: View,
    in_force: BTreeMap<Network, InForce>,
    stepped_back: StepBacks,
    unsettled: Vec<(Timestamp, Disturbance)>,
    refused: BTreeMap<Network, Timestamp>,
}

impl Case {
    fn new(in_force: &[(&str, u32)]) -> Self {
        let view = view(vec![route("0.0.0.0/0", via("10.1.0.1", 2))]);
        let set = |(text, window): &(&str, u32)| {
            let hop = view.hop(network(text)).unwrap();
            (network(text), InForce { hop, link: "eth0".to_owned(), window: Segments(*window) })
        };
        let in_force = in_force.iter().map(set).collect();
        Self { view, in_force, stepped_back: StepBacks::default(), unsettled: Vec::new(), refused: BTreeMap::new() }
    }

    /// Steps as `network window`, removals, obstacles.
    fn plan(&self, desired: &[(&str, u32)], limit: usize) -> (Vec<String>, Vec<String>, Vec<(String, Obstacle)>) {
        let wanted = |window: u32| Desired {
            window: Segments(window),
            reason: StartReason { mode: spand_proto::start::Mode::Careful, share: Segments(40), clipped_by: None },
            expires: Timestamp(0),
            announced: None,
            inputs: Inputs::new(
                &spand_proto::made_up::estimate(
                    network("192.0.2.0/24"),
                    spand_proto::units::Window::default(),
                    Timestamp(0),
                ),
                None,
                None,
                &spand_proto::start::StartPolicy::CAREFUL,
            ),
        };
        let desired = desired.iter().map(|(text, window)| (network(text), wanted(*window))).collect();
        let plan = Plan::new(&Situation {
            desired: &desired,
            view: &self.view,
            in_force: &self.in_force,
            stepped_back: &self.stepped_back,
            unsettled: &self.unsettled,
            refused: &self.refused,
            limit,
            now: Timestamp(0),
        });
        (
            plan.steps.iter().map(|step| format!("{} {}", step.network, step.window.0)).collect(),
            plan.removals.iter().flat_map(|(_, networks)| networks).map(ToString::to_string).collect(),
            plan.obstacles.iter().map(|(network, obstacle)| (network.to_string(), *obstacle)).collect(),
        )
    }
}

#[test]
fn a_plan_is_what_differs() {
    let case = Case::new(&[("192.0.2.0/24", 20), ("198.51.100.0/24", 20)]);
    let (steps, removals, obstacles) = case.plan(&[("192.0.2.0/24", 20), ("203.0.113.0/24", 15)], 10);
    assert_eq!(steps, ["203.0.113.0/24 15"]);
    assert_eq!(removals, ["198.51.100.0/24"]);
    assert_eq!(obstacles, []);
    let (steps, removals, _) = case.plan(&[("192.0.2.0/24", 25), ("198.51.100.0/24", 20)], 10);
    assert_eq!((steps, removals.len()), (vec!["192.0.2.0/24 25".to_owned()], 0));
}

#[test]
fn what_is_in_force_keeps_its_room() {
    let case = Case::new(&[("198.51.100.0/24", 20)]);
    let desired = [("192.0.2.0/24", 20), ("198.51.100.0/24", 20), ("203.0.113.0/24", 20)];
    let (steps, removals, obstacles) = case.plan(&desired, 2);
    assert_eq!((steps, removals.len()), (vec!["192.0.2.0/24 20".to_owned()], 0));
    assert_eq!(obstacles, [("203.0.113.0/24".to_owned(), Obstacle::NoRoom)]);
}

#[test]
fn a_network_that_is_unsettled_refused_or_stepped_back_from_goes_and_stays_away() {
    let mut case = Case::new(&[("192.0.2.0/24", 20), ("198.51.100.0/24", 20)]);
    case.refused.insert(network("203.0.113.0/24"), Timestamp(1));
    let mut disturbance = Disturbance::default();
    disturbance.prefix("192.0.0.0/16".parse().unwrap());
    case.unsettled.push((Timestamp(1), disturbance));
    case.stepped_back.on_lost(network("198.51.100.0/24"), Timestamp(0));
    let desired = [("192.0.2.0/24", 20), ("198.51.100.0/24", 20), ("203.0.113.0/24", 20)];
    let (steps, removals, obstacles) = case.plan(&desired, 10);
    assert_eq!((steps.len(), removals.len()), (0, 2));
    assert_eq!(
        obstacles.iter().map(|(_, o)| *o).collect::<Vec<_>>(),
        [Obstacle::Settling, Obstacle::SteppedBack, Obstacle::Kernel]
    );
}

#[test]
fn each_removal_doubles_the_time_without_our_route_up_to_an_hour_and_an_hour_forgets_it() {
    let (mut backs, removed) = (StepBacks::default(), network("192.0.2.0/24"));
    let mut now = Timestamp(0);
    let mut lengths = Vec::new();
    for _ in 0..12 {
        let length = backs.on_lost(removed, now);
        lengths.push(length.0 / 1_000_000);
        assert!(backs.is_away(removed, now) && !backs.is_away(removed, now.after(length)));
        // Set again at once, and removed again.
        now = now.after(length);
        backs.forget(now);
    }
    assert_eq!(lengths, [4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 3_600, 3_600]);
    backs.forget(now.after(Micros::from_secs(3_600)));
    assert_eq!(backs.on_lost(removed, now), Micros::from_secs(4));
    assert_eq!(backs.on_lost(network("198.51.100.0/24"), now), Micros::from_secs(4), "each network by itself");
}

#[test]
fn an_agent_that_cannot_remember_more_step_backs_applies_nothing_new() {
    let mut case = Case::new(&[("192.0.2.0/24", 20)]);
    let many = (0..u32::try_from(plan::MOST_STEPPED_BACK).unwrap()).map(|n| 0x0a00_0000 + n * 256);
    for n in many {
        case.stepped_back.on_lost(Network::of(std::net::Ipv4Addr::from(n).into()), Timestamp(0));
    }
    let (steps, removals, obstacles) = case.plan(&[("192.0.2.0/24", 25), ("198.51.100.0/24", 20)], 10);
    assert_eq!((steps, removals.len()), (vec!["192.0.2.0/24 25".to_owned()], 0), "what is in force stays in our hands");
    assert_eq!(obstacles, [("198.51.100.0/24".to_owned(), Obstacle::SteppedBack)]);
}

#[test]
fn a_route_that_is_gone_or_different_is_lost() {
    let case = Case::new(&[("192.0.2.0/24", 20)]);
    assert_eq!(lost(&case.in_force, &case.view), [network("192.0.2.0/24")]);
    let copy = |window| case.in_force[&network("192.0.2.0/24")].hop.route(network("192.0.2.0/24"), Segments(window));
    assert_eq!(lost(&case.in_force, &view(vec![copy(20)])), []);
    assert_eq!(lost(&case.in_force, &view(vec![copy(7)])), [network("192.0.2.0/24")]);
}

#[test]
fn a_disturbance_touches_what_it_covers_equals_or_lies_inside_of() {
    let touched = |prefix: &str| {
        let mut disturbance = Disturbance::default();
        disturbance.prefix(prefix.parse().unwrap());
        disturbance.touches(network("192.0.2.0/24"), Some(2))
    };
    assert!(["0.0.0.0/0", "192.0.2.0/24", "192.0.2.128/25"].iter().all(|prefix| touched(prefix)));
    assert!(["192.0.3.0/24", "::/0", "10.0.0.0/8"].iter().all(|prefix| !touched(prefix)));
    let mut many = Disturbance::default();
    for n in 0..300u32 {
        many.prefix(ipnet::IpNet::new((0x0a00_0000 + n).to_be_bytes().into(), 32).unwrap());
    }
    assert!(many.touches(network("192.0.2.0/24"), None), "too many to remember: everything is in doubt");
    let mut link = Disturbance::default();
    link.link(3);
    assert!(link.touches(network("192.0.2.0/24"), Some(3)) && !link.touches(network("192.0.2.0/24"), Some(2)));
}
