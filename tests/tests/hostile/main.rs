//! Hostile networks at the engine, in trace time; the figures of the full size are made by `make hostile`.

mod blind;
mod floods;
mod hoards;
mod tunnels;

#[global_allocator]
static MEMORY: spand_tests::memory::Counted = spand_tests::memory::Counted;
