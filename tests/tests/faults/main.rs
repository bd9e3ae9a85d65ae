//! Faults of the machine that the tests of single parts do not make; `docs/faults.md` lists all of them.

mod disk;
mod scarce;
