//! The congestion control on BBR: an object of its own, so that a kernel which does not take it loses nothing else. It shares the
//! tables of the other programs.

use std::os::fd::AsFd;

use libbpf_rs::{Link, MapCore, MapType, Object, ObjectBuilder};

use super::{layout, refusal};
use crate::probe::{self, Prototype};

pub(super) static PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bbr.bpf.o"));

/// In the kernel for as long as this lives.
pub(super) struct OnBbr {
    _object: Object,
    _links: Vec<Link>,
}

impl OnBbr {
    /// Registers it under this name, with the tables of `others`; where that is not possible, why.
    pub(super) fn load(others: &Object, name: &[u8; layout::NAME_BYTES]) -> Result<Self, String> {
        let prototype = probe::bbr().map_err(|lack| lack.to_string())?;
        refusal::forget_warnings();
        Self::load_for(prototype, others, name).map_err(|error| refusal::reason(&error))
    }

    fn load_for(
        prototype: Prototype,
        others: &Object,
        name: &[u8; layout::NAME_BYTES],
    ) -> Result<Self, libbpf_rs::Error> {
        let fitting = match prototype {
            Prototype::FourAndStart => "on_bbr_tx",
            Prototype::Four => "on_bbr",
            Prototype::Two => "on_bbr_old",
        };
        let mut open = ObjectBuilder::default().name("spand_bbr")?.open_memory(PROGRAMS)?;
        for mut map in open.maps_mut() {
            if map.map_type() == MapType::StructOps {
                // Programs that only the other one uses are not loaded.
                map.set_autocreate(map.name() == fitting)?;
                layout::set_name(&mut map, name);
                continue;
            }
            // What begins with a dot is the compiler's, and each object's own.
            let shared = others.maps().find(|other| other.name() == map.name());
            if let Some(shared) = shared.filter(|shared| !shared.name().as_encoded_bytes().starts_with(b".")) {
                map.reuse_fd(shared.as_fd())?;
            }
        }
        let mut object = open.load()?;
        let mut links = Vec::new();
        for mut map in object.maps_mut().filter(|map| map.name() == fitting) {
            links.push(map.attach_struct_ops()?);
        }
        Ok(Self { _object: object, _links: links })
    }
}
