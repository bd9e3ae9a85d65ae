//! What the programs know of slow start's rules: a flag that any but the kernel's own is in force, the default, and a table each of
//! prefixes and services.

use std::collections::BTreeMap;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use spand_proto::growth::{Growth, MOST_ACKED};

use super::{layout, networks};
use crate::policy::Growths;

/// The programs' section `.data.growths`, and its tables.
pub(super) struct GrowthTables {
    control: MapHandle,
    prefixes: MapHandle,
    services: MapHandle,
    written: Written,
}

/// What the kernel has.
#[derive(Clone, Debug, Default, PartialEq)]
struct Written {
    control: [u32; 2],
    prefixes: BTreeMap<Vec<u8>, u32>,
    services: BTreeMap<Vec<u8>, u32>,
}

impl Written {
    /// What it is to have, where the rules are in force.
    fn of(growths: &Growths, in_force: bool) -> Self {
        if !in_force || growths.is_standard() {
            return Self::default();
        }
        let number = |growth: &Growth| encoded(*growth);
        Self {
            control: [1, encoded(growths.by_default)],
            prefixes: growths.prefixes.iter().map(|(prefix, rule)| (layout::prefix(*prefix), number(rule))).collect(),
            services: growths
                .services
                .iter()
                .map(|(service, rule)| (layout::service(*service), number(rule)))
                .collect(),
        }
    }
}

/// `enum growth_kind` above 16 bits of its parameter; larger parameters make no difference.
pub(super) fn encoded(growth: Growth) -> u32 {
    match growth {
        Growth::Standard => 0,
        Growth::Dbc { dmax } => 1 << 16 | dmax.get().min(MOST_ACKED),
        Growth::Burst { f } => 2 << 16 | f.get().min(0xffff),
    }
}

impl GrowthTables {
    /// Of programs that were just loaded.
    pub(super) fn new(control: MapHandle, prefixes: MapHandle, services: MapHandle) -> Self {
        Self { control, prefixes, services, written: Written::default() }
    }

    /// Brings the tables in line; where that fails, what was written so far is known, and the next call goes on from there.
    pub(super) fn write(&mut self, growths: &Growths, in_force: bool) -> libbpf_rs::Result<()> {
        let wanted = Written::of(growths, in_force);
        if wanted == self.written {
            return Ok(());
        }
        // Connections that begin meanwhile must not take the default for what an entry says: first off, last on.
        if wanted.control != self.written.control || self.written.control[0] == 1 {
            self.write_control([0, 0])?;
        }
        bring_in_line(&self.prefixes, &mut self.written.prefixes, &wanted.prefixes)?;
        bring_in_line(&self.services, &mut self.written.services, &wanted.services)?;
        self.write_control(wanted.control)
    }

    fn write_control(&mut self, control: [u32; 2]) -> libbpf_rs::Result<()> {
        let value = control.map(u32::to_ne_bytes);
        self.control.update(&0_u32.to_ne_bytes(), value.as_flattened(), MapFlags::ANY)?;
        self.written.control = control;
        Ok(())
    }
}

fn bring_in_line(
    table: &MapHandle,
    written: &mut BTreeMap<Vec<u8>, u32>,
    wanted: &BTreeMap<Vec<u8>, u32>,
) -> libbpf_rs::Result<()> {
    // What goes makes room first.
    let gone: Vec<_> = written.keys().filter(|key| !wanted.contains_key(*key)).cloned().collect();
    for key in gone {
        networks::delete(table, &key)?;
        written.remove(&key);
    }
    for (key, number) in wanted {
        if written.get(key) != Some(number) {
            table.update(key, &number.to_ne_bytes(), MapFlags::ANY)?;
            written.insert(key.clone(), *number);
        }
    }
    Ok(())
}
