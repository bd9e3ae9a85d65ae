//! Servers of the version before, upgraded one at a time under traffic.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::standing::{Standing, seconds};
use super::{Programs, Row, Size};
use crate::cluster::site::Site;
use crate::cluster::traffic::by_connection;
use crate::cluster::{Servers, of_version, required_program};
use crate::lab::namespace::Namespace;

const COUNT: usize = 3;
/// The version before the newest that `scripts/nats-server` knows.
const BEFORE: &str = "2.14.6";

/// Runs it.
///
/// # Errors
/// Where there is only one version, or a gateway or a server fails otherwise.
pub fn run(programs: &Programs, size: Size) -> Result<Vec<Row>> {
    let (old, new) = (of_version(BEFORE)?, required_program()?);
    ensure!(old != new, "SPAND_NATS_SERVER names one version, and this case needs two: unset it");
    let namespace = Namespace::create("site")?;
    let servers = namespace.enter(|| {
        let jetstream = "jetstream { store_dir: \"@STORE@\", max_memory_store: 256MB }\n";
        let mut servers = Servers::configure(COUNT, jetstream)?.context("there is a program")?;
        for server in servers.all() {
            server.set_program(&old);
        }
        for number in 0..COUNT {
            servers.start_one(number)?;
        }
        Ok(servers)
    })?;
    let gateways = Standing::gateways(size);
    let mut site = Site::of("here", namespace, servers);
    site.add(programs, 1..=gateways, |_| (String::new(), "[log]\nfilter = \"warn\"\n".to_owned()))?;
    site.hear(gateways - 1)?;
    let mut standing = Standing::at(site, size, by_connection)?;
    let mut gaps = Vec::new();
    for number in 0..COUNT {
        let server = standing.site.servers.all().get_mut(number).context("a server")?;
        let name = server.name.clone();
        server.stop()?;
        server.set_program(&new);
        standing.site.start_server(&name)?;
        let what = format!("server {} of {COUNT} upgraded", number + 1);
        gaps.push(standing.watch(&what, Duration::from_secs(20))?.longest);
    }
    let (withdrawn, ended) = standing.lost();
    standing.end_traffic()?;
    let agreed = standing.agree(Duration::from_secs(30))?;
    let equal = agreed.is_ok();
    let figure =
        agreed.map_or_else(|differ| differ, |(_, networks)| format!("{networks} networks equal to the last bit"));
    let versions = format!("servers {BEFORE} upgraded one at a time: ");
    Ok(vec![
        Row::stated(
            format!("{versions}longest time without a cell of another gateway, each"),
            format!("{} s", seconds(&gaps)),
        ),
        Row::judged(
            format!("{versions}withdrawals to hosts; streams that ended"),
            "0; 0",
            format!("{withdrawn}; {ended}"),
            withdrawn + ended == 0,
        ),
        Row::judged(format!("{versions}all gateways know the same"), "equal", figure, equal),
    ])
}
