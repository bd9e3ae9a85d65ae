//! What the log says of agents that come and leave.

use std::time::Duration;

use spand_tests::access::{Log, Setup, Wanted};
use spand_tests::patience::awaited;

use super::tls::{HOUR, ends, subscribed, wish};

/// The one line of an end, once it is there.
async fn end_line(log: Log, before: usize) -> String {
    let found = async {
        loop {
            let lines = log.lines("unsubscribed: ");
            if lines.len() > before {
                assert_eq!(lines.len(), before + 1, "{lines:?}");
                break lines[before].clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    awaited("the line of an end", found).await
}

#[tokio::test]
async fn the_log_says_who_came_who_left_and_why() {
    let log = Log::of_this_thread();
    let stage = Setup::new().unwrap().start().await.unwrap();
    let made = stage.authority.make(&["web-1.example.org", "127.0.0.1"]).unwrap();

    // The stream alone: its connection stays.
    let mut client = stage.client(Some(&made)).await.unwrap();
    let stream = client.subscribe(wish()).await.unwrap().into_inner();
    assert_eq!(log.lines(" subscribed").len(), 1);
    drop(stream);
    let line = end_line(log, 0).await;
    assert!(line.contains("it ended the stream") && line.contains("host_name=web-1"), "{line}");
    assert!(line.contains("web-1.example.org at 127.0.0.1") && line.contains("after_s=0"), "{line}");

    // A certificate that ends takes the stream with it.
    let wanted = Wanted { age: HOUR, life: HOUR + Duration::from_secs(2), ..Wanted::default() };
    let short = stage.authority.make_wanted(&wanted).unwrap();
    assert!(ends(subscribed(&stage, &short).await).await, "still sent estimates after the end");
    let line = end_line(log, 1).await;
    assert!(line.contains("its certificate holds no more"), "{line}");

    // The gateway's own end.
    let stream = subscribed(&stage, &made).await;
    stage.stop();
    assert!(ends(stream).await);
    let line = end_line(log, 2).await;
    assert!(line.contains("the gateway stops"), "{line}");
}
