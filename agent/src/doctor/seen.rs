//! Whether the connections of announced starts are seen. Pure.

use spand_proto::operator::Check;

use crate::control::{SeenState, Status};

pub(super) fn look(status: &Status) -> Check {
    const NAME: &str = "connections_seen";
    let Some(seen) = &status.connections_seen else {
        return Check::unknown(
            NAME,
            "the agent that runs does not compare them",
            "restart it: it is of an older release",
        );
    };
    let found = format!("announced connections: {}", seen.sentence());
    match seen.state {
        SeenState::Ok | SeenState::TooFew => Check::ok(NAME, found),
        SeenState::CannotBeSeen => {
            Check::unknown(NAME, found, "use apply = \"bpf\", if it should be known; measure at the peers otherwise")
        }
        SeenState::Unseen => Check::fail(NAME, found, format!("may be: {}", status.causes_unseen().join("; or "))),
    }
}
