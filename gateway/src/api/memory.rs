//! The most that listeners and reports take with their limits.

use spand_core::mem::allocated;
use spand_proto::contract::MAX_HOST_NAME_BYTES;

use super::ApiConfig;
use super::grpc::CONNECTION_WINDOW_BYTES;
use super::places::{BODIES, RESERVED};
use super::reports::Reports;

/// What TLS, HTTP and a connection's task keep, buffers of answers included.
const CONNECTION_BYTES: usize = 96 << 10;
/// An answer over HTTP that is made or sent: a page of 1,000 networks in JSON.
const ANSWER_BYTES: usize = 1 << 20;

impl ApiConfig {
    /// Of gRPC: what waits in each connection's window, and the requests of it that are read at a time.
    pub(crate) fn grpc_bytes(&self) -> usize {
        let window = usize::try_from(CONNECTION_WINDOW_BYTES).unwrap_or(usize::MAX);
        let each = window + BODIES * self.request_bytes.get() + CONNECTION_BYTES;
        self.grpc_connections.get().saturating_add(RESERVED).saturating_mul(each)
    }

    /// Of HTTP.
    pub(crate) fn http_bytes(&self) -> usize {
        self.http_connections.get().saturating_add(RESERVED).saturating_mul(ANSWER_BYTES + CONNECTION_BYTES)
    }

    /// Of what hosts report.
    pub(crate) fn reports_bytes(&self) -> usize {
        let hosts = self.reporting_hosts.get();
        // By all names of a certificate.
        hosts.saturating_mul(allocated(4 * MAX_HOST_NAME_BYTES)) + Reports::bytes(hosts)
    }
}
