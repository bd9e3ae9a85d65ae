//! Requests of any path, parameters, headers and body, to gateways that know everything, nothing, or want a password: each
//! gets an answer that is what it says, and none ends the gateway.
//!
//! A case is a byte for method and gateway, then lines: the address, headers, and after an empty line the body.

#![no_main]

use std::cell::OnceCell;

use http::{HeaderName, HeaderValue, Request, Uri};
use libfuzzer_sys::fuzz_target;
use spand_fuzz::Gateway;
use spand_gateway::api::fuzzing::Pages;

thread_local!(static GATEWAYS: OnceCell<[Gateway; 4]> = const { OnceCell::new() });

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let Some(request) = request(first % 8, rest) else { return };
    GATEWAYS.with(|gateways| {
        let gateways = gateways.get_or_init(Gateway::all);
        let gateway = &gateways[usize::from(first / 8 % 4)];
        answer(gateway, request);
    });
});

fn answer(gateway: &Gateway, request: Request<Vec<u8>>) {
    let open = ["/healthz", "/readyz"].contains(&request.uri().path());
    let proof = request.headers().get("authorization").is_some();
    let pages: &Pages = &gateway.pages;
    let (status, kind, body) = pages.ask(request);
    // Not ready is an answer; nothing else that a client asks is the gateway's fault.
    assert!(status.as_u16() < 500 || status.as_u16() == 503, "{status}");
    assert!(!gateway.wants_password || open || proof || !status.is_success(), "let in without a password");
    if kind.contains("json") && !body.is_empty() {
        serde_json::from_slice::<serde_json::Value>(&body).expect("what says JSON is JSON");
    }
    if kind.starts_with("text/event-stream") {
        let text = String::from_utf8(body).expect("what says text is text");
        for data in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
            serde_json::from_str::<serde_json::Value>(data).expect("a message is JSON");
        }
    }
}

fn request(method: u8, text: &[u8]) -> Option<Request<Vec<u8>>> {
    let (head, body) = match text.windows(2).position(|two| two == b"\n\n") {
        Some(end) => (&text[..end], &text[end + 2..]),
        None => (text, &[][..]),
    };
    let mut lines = head.split(|byte| *byte == b'\n');
    let uri = Uri::try_from(lines.next()?).ok()?;
    let method = match method {
        0 => "POST",
        1 => "HEAD",
        2 => "OPTIONS",
        _ => "GET",
    };
    let mut request = Request::builder().method(method).uri(uri);
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        request = request.header(name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?);
    }
    request.body(body.to_vec()).ok()
}
