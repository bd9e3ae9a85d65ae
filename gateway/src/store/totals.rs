//! The history of the whole in the store: an entry for each step of each resolution.
//!
//! ```text
//! key    resolution (1 byte: 0 minutes, 1 ten minutes, 2 hours), beginning in seconds since 1970 (8 bytes, big endian)
//! value  as in [`super::codec`]
//! ```
//!
//! A tree of its own: what is damaged here leaves the rest as it is.

use sled::{Batch, Db};
use spand_proto::units::Timestamp;
use strum::VariantArray;

use super::codec::{opened, sealed};
use crate::totals::{Point, Step, TotalsChange};

const TREE: &[u8] = b"totals";
/// Steps written together, of some 200 bytes: a batch stays far below the database's 512 KiB segment.
const BATCH_STEPS: usize = 256;
const NANOS: u64 = 1_000_000_000;

/// Reads all steps, and how many could not be read.
pub(super) fn read(database: &Db) -> sled::Result<(Vec<(Step, Point)>, usize)> {
    let (mut points, mut unreadable) = (Vec::new(), 0);
    // Opening it would write it.
    if !database.tree_names().iter().any(|name| name == TREE) {
        return Ok((points, unreadable));
    }
    for entry in &database.open_tree(TREE)? {
        let (key, value) = entry?;
        let point = opened::<Point>(&key, &value).ok();
        match step(&key).zip(point).filter(|(step, point)| *key == self::key(*step, point.at)) {
            Some(found) => points.push(found),
            None => unreadable += 1,
        }
    }
    Ok((points, unreadable))
}

/// Writes a change.
pub(super) fn write(database: &Db, change: &TotalsChange) -> sled::Result<()> {
    let tree = database.open_tree(TREE)?;
    let mut steps = change.iter().peekable();
    while steps.peek().is_some() {
        let mut batch = Batch::default();
        for ((step, at), point) in steps.by_ref().take(BATCH_STEPS) {
            let key = key(*step, *at);
            match point {
                Some(point) => batch.insert(key.as_slice(), sealed(&key, point)?),
                None => batch.remove(key.as_slice()),
            }
        }
        tree.apply_batch(batch)?;
    }
    Ok(())
}

fn key(step: Step, at: Timestamp) -> [u8; 9] {
    let mut key = [step as u8; 9];
    key[1..].copy_from_slice(&(at.0 / NANOS).to_be_bytes());
    key
}

fn step(key: &[u8]) -> Option<Step> {
    let place = usize::from(*key.first()?);
    Step::VARIANTS.get(place).copied().filter(|step| usize::from(*step as u8) == place)
}
