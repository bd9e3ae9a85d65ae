//! Small truth cases: captures of the lab's own transfers, headers only, with the kernel's account of the sender beside
//! them. They lie in `tests/cases` and are replayed by every test run.
//!
//! [`list`] says which there are, what each shows and what is wrong in it today; [`keep`] writes and reads what is kept;
//! [`judge`] replays one and says how far the engine is off.

pub mod judge;
pub mod keep;
pub mod list;
pub mod page;
