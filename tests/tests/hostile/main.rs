//! Hostile networks at the engine, in trace time; the figures of the full size are made by `make hostile`.

mod floods;
mod tunnels;
