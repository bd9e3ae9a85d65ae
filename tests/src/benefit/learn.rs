//! The transfers from which the gateway learns before anything is timed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::scenario::{Scenario, Site};
use super::stage::Stage;
use super::work::{Progress, in_lanes, pause, transfer};
use crate::campaign::together;

/// Transfers beyond the planned ones while a path has no estimate yet.
const LEARN_MORE: u32 = 12;

/// Lets the gateway learn on every path of the product; returns transfers by site, none for the others.
pub(super) fn learn(stage: &Stage, scenario: &Scenario, seed: u64, progress: &Progress) -> Result<Vec<u32>> {
    let paths = scenario.sites.iter().filter(|site| site.is_product()).count();
    progress.planned.store(scenario.learn * u32::try_from(paths)?, Ordering::Relaxed);
    let counts: Vec<AtomicU32> = scenario.sites.iter().map(|_| AtomicU32::new(0)).collect();
    in_lanes(scenario, |sites| {
        for index in sites {
            let (Some(site), Some(count)) = (scenario.sites.get(index), counts.get(index)) else { continue };
            if site.is_product() {
                learn_site(stage, scenario, (index, site), seed, &|| {
                    count.fetch_add(1, Ordering::Relaxed);
                    progress.one();
                })?;
            }
        }
        Ok(())
    })?;
    Ok(counts.into_iter().map(AtomicU32::into_inner).collect())
}

fn learn_site(
    stage: &Stage,
    scenario: &Scenario,
    (index, site): (usize, &Site),
    seed: u64,
    count: &(dyn Fn() + Sync),
) -> Result<()> {
    let mut dice = StdRng::seed_from_u64(seed ^ 0x1ea2 ^ (index as u64) << 32);
    let mut sizes = spaced(scenario.learn_bytes, scenario.learn);
    sizes.shuffle(&mut dice);
    let waiting = Mutex::new(VecDeque::from(sizes));
    let next = || waiting.lock().pop_front();
    let clients: Vec<u8> = site.senders.learners(site.clients).collect();
    let work = |client: u8| {
        while let Some(bytes) = next() {
            transfer(stage, index, site, client, bytes)?;
            count();
            pause(site);
        }
        anyhow::Ok(())
    };
    let work = &work;
    let side_by_side = clients.iter().copied().take(usize::from(site.learners));
    together::all(side_by_side.map(|client| move || work(client)))?;
    // A path whose transfers taught nothing yet, such as one where all lost in slow start, gets a few more of the longest.
    for n in 0..LEARN_MORE {
        thread::sleep(Duration::from_millis(200));
        if stage.share(index)?.is_some() {
            return Ok(());
        }
        let client = clients.get(n as usize % clients.len().max(1)).context("a path without clients")?;
        transfer(stage, index, site, *client, scenario.learn_bytes.1)?;
        count();
        pause(site);
    }
    Ok(())
}

/// This many sizes from the smallest to the largest, evenly by factor.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes of transfers")]
fn spaced((least, most): (u64, u64), count: u32) -> Vec<u64> {
    let factor = most as f64 / least as f64;
    let part = |n: u32| f64::from(n) / f64::from(count.saturating_sub(1).max(1));
    (0..count).map(|n| (least as f64 * factor.powf(part(n))).round() as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_spaced_by_factor() {
        assert_eq!(spaced((10, 1_000), 3), [10, 100, 1_000]);
        assert_eq!(spaced((10, 1_000), 1), [10]);
        assert_eq!(spaced((30_000, 4_000_000), 20).len(), 20);
    }
}
