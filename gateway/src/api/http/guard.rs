//! Who may ask over HTTP: requests that a foreign page had a browser send, and those without the right password, are
//! refused before anything is looked up.

use std::net::IpAddr;

use axum::http::header::{
    AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE,
};
use axum::http::{StatusCode, Uri, Version};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::problem::{Problem, quote};
use crate::api::Api;
use crate::api::passwords::Verdict;
use crate::api::refusals::Reason;

/// Answers that are open: whether the process lives and works, for supervisors that know no password.
pub(super) const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// Why a request does not name one host (RFC 9112 section 3.2): HTTP/1.1 requires it, and of several a cache or a proxy before the gateway
/// could take another than the gateway does.
pub(super) fn ambiguous_host(version: Version, uri: &Uri, headers: &HeaderMap) -> Option<Problem> {
    let mut hosts = headers.get_all(HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    let named = uri.authority().map(|authority| authority.as_str().as_bytes());
    let differs = named.zip(first).is_some_and(|(named, host)| !named.eq_ignore_ascii_case(host.as_bytes()));
    let why = match (first, second) {
        (None, _) if version == Version::HTTP_11 => "no Host header: HTTP/1.1 requires one",
        (_, Some(_)) => "two Host headers: send one",
        _ if differs => "the address and the Host header name different hosts: send the same in both",
        _ => return None,
    };
    Some(Problem::new(StatusCode::BAD_REQUEST, why))
}

/// The refusal, where there is one.
pub(super) async fn refusal(api: &Api, peer: IpAddr, path: &str, headers: &HeaderMap) -> Option<Response> {
    let access = &api.shared.access;
    let refused = |reason, status, why: &str| {
        api.shared.refusals.refuse("http", reason, peer, why);
        Problem::new(status, why.to_owned()).into_response()
    };
    if is_cross_site(headers) {
        let why = "a page of another site asked: nothing here is for other sites";
        return Some(refused(Reason::Site, StatusCode::FORBIDDEN, why));
    }
    let Some(passwords) = access.passwords() else {
        // A name that an attacker's server gives to this address would make a page of that server ours (DNS rebinding).
        // Where a password is asked for, browsers keep it to the name that it was given to.
        let foreign = headers.get(HOST).and_then(|host| foreign_name(host, access.hosts()));
        return foreign.map(|name| {
            let why = format!(
                "this gateway is not called `{}`: ask by its address, or add the name to admin.hosts in its configuration",
                quote(&name)
            );
            refused(Reason::Host, StatusCode::MISDIRECTED_REQUEST, &why)
        });
    };
    if OPEN.contains(&path) {
        return None;
    }
    let shown = headers.get(AUTHORIZATION).and_then(credentials);
    let (reason, why) = match shown {
        None => (Reason::NoPassword, "a name and a password are asked for"),
        Some((name, password)) => match passwords.check(&name, &password, peer).await {
            Verdict::Right => return None,
            Verdict::Wrong => (Reason::Password, "wrong name or password"),
            Verdict::TooMany => {
                let why = "too many wrong passwords came from there: wait a minute";
                return Some(refused(Reason::Attempts, StatusCode::TOO_MANY_REQUESTS, why));
            }
            Verdict::Busy => {
                let why = "too many passwords wait to be checked: try again in a second";
                let mut response = refused(Reason::Busy, StatusCode::SERVICE_UNAVAILABLE, why);
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
                return Some(response);
            }
        },
    };
    let mut response = refused(reason, StatusCode::UNAUTHORIZED, why);
    let challenge = HeaderValue::from_static("Basic realm=\"spand\", charset=\"UTF-8\"");
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    Some(response)
}

/// Whether a browser says that another site's page asked (Fetch Metadata), or names it (RFC 6454). Following a link here is
/// no such request.
fn is_cross_site(headers: &HeaderMap) -> bool {
    let is = |name: &'static str, value: &str| {
        headers.get(HeaderName::from_static(name)).is_some_and(|found| found.as_bytes() == value.as_bytes())
    };
    let foreign_origin = headers.get(ORIGIN).is_some_and(|origin| {
        let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        origin.is_none_or(|(_, origin)| host.is_none_or(|host| !host.eq_ignore_ascii_case(origin)))
    });
    foreign_origin || (is("sec-fetch-site", "cross-site") && !is("sec-fetch-mode", "navigate"))
}

/// The host name, where it is not the gateway's: addresses and `localhost` always are, and those in `own`. A name without a dot is
/// not: search domains complete it, and names of the local network (mDNS, LLMNR, DHCP) can be claimed by any machine in it.
fn foreign_name(host: &HeaderValue, own: &[String]) -> Option<String> {
    let uri: Option<Uri> = host.to_str().ok().and_then(|host| format!("http://{host}/").parse().ok());
    let Some(name) = uri.as_ref().and_then(Uri::host) else { return Some("?".to_owned()) };
    let name = name.trim_end_matches('.');
    let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let is_own = is_address
        || name.eq_ignore_ascii_case("localhost")
        || own.iter().any(|own| own.trim_end_matches('.').eq_ignore_ascii_case(name));
    (!is_own).then(|| name.to_owned())
}

/// Name and password (RFC 7617).
fn credentials(header: &HeaderValue) -> Option<(String, String)> {
    let (scheme, rest) = header.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(BASE64_STANDARD.decode(rest.trim()).ok()?).ok()?;
    let (name, password) = text.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_names_no_host_or_several_is_refused() {
        let refused_as = |version, uri: &str, hosts: &[&str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(HOST, HeaderValue::from_str(host).unwrap());
            }
            ambiguous_host(version, &uri.parse().unwrap(), &headers).is_some()
        };
        let refused = |uri: &str, hosts: &[&str]| refused_as(Version::HTTP_11, uri, hosts);
        let own = "127.0.0.1:7480";
        assert!(!refused("/healthz", &[own]) && refused("/healthz", &[]));
        assert!(
            !refused_as(Version::HTTP_10, "/healthz", &[])
                && !refused_as(Version::HTTP_2, "http://localhost/healthz", &[])
        );
        assert!(!refused("http://LOCALHOST:7480/healthz", &["localhost:7480"]));
        assert!(refused("/healthz", &[own, own]) && refused("/healthz", &[own, "evil.example"]));
        assert!(refused("http://evil.example/healthz", &[own]));
        assert!(refused("http://127.0.0.1:7481/healthz", &[own]));
    }

    #[test]
    fn names_that_others_could_give_are_foreign() {
        let own = ["Gateway.example.org".to_owned()];
        let foreign = |host: &str| foreign_name(&HeaderValue::from_str(host).unwrap(), &own);
        for host in
            ["127.0.0.1:7480", "[::1]:7480", "localhost", "LocalHost.:7480", "gateway.example.org:7480", "192.0.2.1"]
        {
            assert_eq!(foreign(host), None, "{host}");
        }
        for host in [
            "evil",
            "evil:7480",
            "gateway",
            "evil.localhost",
            "evil.example",
            "evil.example:7480",
            "127.0.0.1.evil.example",
            "x@evil.example",
            "",
            "a b",
        ] {
            assert!(foreign(host).is_some(), "{host}");
        }
    }

    #[test]
    fn a_name_may_have_a_password_with_colons() {
        let of = |text: &str| credentials(&HeaderValue::from_str(text).unwrap());
        assert_eq!(of("Basic YTpiOmM="), Some(("a".to_owned(), "b:c".to_owned())));
        assert_eq!(of("basic  YTpi"), Some(("a".to_owned(), "b".to_owned())));
        for text in ["Bearer YTpi", "Basic", "Basic ???", "Basic YWI=", "Basic gIA6gIA="] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
