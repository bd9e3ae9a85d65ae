//! The standard health check.

use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::*;
use crate::publisher::Part;

#[tokio::test]
async fn a_health_check_follows_readiness() {
    let rig = Rig::new(ApiConfig::default()).await;
    let mut client =
        HealthClient::new(Channel::from_shared(format!("http://{}", rig.grpc)).unwrap().connect().await.unwrap());
    let mut check = async |service: &str| {
        let answer = client.check(HealthCheckRequest { service: service.to_owned() }).await;
        answer.map(|answer| answer.into_inner().status()).map_err(|status| status.code())
    };
    let readiness = rig.published.readiness();
    for part in [Part::Capture, Part::Engine, Part::Store] {
        readiness.ready(part);
    }
    assert_eq!(check("").await, Ok(ServingStatus::Serving));
    readiness.not_ready(Part::Store, "the disk is full");
    assert_eq!(check("spand.v1.Spand").await, Ok(ServingStatus::NotServing));
    assert_eq!(check("another").await, Err(Code::NotFound));
}
