//! One capture through the file reader and the engine.

use std::path::Path;

use spand_capture::{Next, PacketSource, open_file};
use spand_core::config::{EngineConfig, Limits, Tunnels};
use spand_core::engine::Engine;
use spand_core::event::Event;
use spand_core::flow::report::{DirectionReport, FlowReports};
use spand_core::wire::Frame;
use spand_proto::units::Timestamp;

/// What a capture gave.
pub(crate) struct Outcome {
    pub(crate) segments: u64,
    /// Directions in order of their first packet.
    pub(crate) reports: Vec<DirectionReport>,
}

/// Replays a file; damage ends it without an error, as long as something was read.
pub(crate) fn directions(path: &Path) -> Result<Outcome, String> {
    let mut source = open_file(path).map_err(|error| error.to_string())?;
    let mut engine = Engine::new(EngineConfig {
        flow_reports: FlowReports::Full,
        limits: Limits::for_replay(),
        tunnels: Tunnels::ALL,
        ..EngineConfig::default()
    });
    let mut reports = Vec::new();
    let mut now = Timestamp(0);
    loop {
        match source.next_packet() {
            Ok(Next::Packet(packet)) => {
                now = packet.timestamp;
                engine.handle_frame(
                    now,
                    &Frame { link_type: packet.link_type.0, wire_len: packet.wire_len, input: 0, data: packet.data },
                );
            }
            Ok(Next::Idle) => {}
            Ok(Next::End) | Err(_) => break,
        }
        collect(&mut engine, &mut reports);
    }
    engine.finish(now);
    collect(&mut engine, &mut reports);
    reports.sort_by_key(|report| report.details.as_ref().map(|details| details.first_frame));
    Ok(Outcome { segments: engine.counters().segments, reports })
}

fn collect(engine: &mut Engine, reports: &mut Vec<DirectionReport>) {
    while let Some(event) = engine.poll_event() {
        if let Event::DirectionEnded(report) = event {
            reports.push(*report);
        }
    }
}
