//! By a Unix socket, beside TCP.

use std::path::Path;

use tokio::net::UnixListener;

use super::*;
use crate::api::Listening;
use crate::config::Config;

#[tokio::test]
async fn the_socket_s_mode_proves_agents_of_this_machine_and_their_connections_count_with_all_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.sock");
    let text = "[agents]\nidentity = \"peer_address\"\n[api]\nconnections_per_peer = 2\n";
    let config = Config::parse(text, Path::new("gateway.toml")).unwrap();
    let published = Published::new(PublisherConfig::default(), SetClock(Arc::new(AtomicU64::new(10_000_000_000))));
    let access = Access::open(&config).unwrap();
    let api = Api::with_access(config.api(), access, published.clone(), (None, None), &Confined::default());
    let tcp = bind().await;
    let address = tcp.local_addr().unwrap();
    let listening = Listening { tcp: Some(tcp), unix: Some(UnixListener::bind(&path).unwrap()) };
    let (stop, stopped) = watch::channel(false);
    let (served, refusals) = (api.clone(), api);
    let server = tokio::spawn(async move { served.serve_grpc(listening, stopped).await });

    let socket = format!("unix:{}", path.display());
    let mut local = SpandClient::connect(socket.clone()).await.unwrap();
    let mut other = SpandClient::connect(format!("http://{address}")).await.unwrap();
    let refused = other.subscribe(wish(&["203.0.113.9"])).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let stream = local.subscribe(wish(&["203.0.113.9"])).await.unwrap().into_inner();
    assert_eq!(published.subscriber_count(), 1);
    assert!(other.query(query(vec![question("192.0.2.7")])).await.is_ok());

    let mut third = SpandClient::connect(socket).await.unwrap();
    assert!(third.query(query(vec![question("192.0.2.7")])).await.is_ok());
    assert_eq!(refusals.shared.measures.displaced(), 1, "the limit of a peer is one for both ways in");
    drop((third, stream, other, local));
    stop.send(true).unwrap();
    server.await.unwrap();
}
