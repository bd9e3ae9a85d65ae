//! The service `grpc.health.v1.Health`: what `/readyz` answers, for load balancers and probes that speak gRPC.

use futures::stream::Empty;
use spand_proto::v1::spand_server::SERVICE_NAME;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::Api;

pub(super) struct Service(pub(super) Api);

#[tonic::async_trait]
impl Health for Service {
    /// None: a stream that lasts would take a place of those for agents' subscriptions.
    type WatchStream = Empty<Result<HealthCheckResponse, Status>>;

    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        if !(service.is_empty() || service == SERVICE_NAME) {
            return Err(Status::not_found(format!(
                "there is no service {service}: ask for {SERVICE_NAME}, or for none"
            )));
        }
        let is_ready = self.0.shared.published.readiness().reasons().is_empty();
        let status = if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        Ok(Response::new(HealthCheckResponse { status: status.into() }))
    }

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("call Check from time to time"))
    }
}
