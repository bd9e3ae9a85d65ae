//! `/` and `/dashboard/…`: the pages for people, embedded in the program. They ask the same interface as everyone else.

use axum::extract::Path;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::problem::{Problem, quote};

/// Nothing from elsewhere, nothing inline, in nobody's frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const ICON: &str = "image/svg+xml";

/// Name, type and text of a file.
type File = (&'static str, &'static str, &'static str);

/// A file of `gateway/dashboard` by its name there.
macro_rules! files {
    ($($name:literal: $kind:expr),+ $(,)?) => {
        [$(($name, $kind, include_str!(concat!("../../../dashboard/", $name)))),+]
    };
}

const FILES: [File; 21] = files![
    "index.html": HTML,
    "style.css": CSS,
    "icon.svg": ICON,
    "app.js": SCRIPT,
    "api.js": SCRIPT,
    "live.js": SCRIPT,
    "format.js": SCRIPT,
    "dom.js": SCRIPT,
    "chart.js": SCRIPT,
    "history.js": SCRIPT,
    "rows.js": SCRIPT,
    "views/overview.js": SCRIPT,
    "views/traffic.js": SCRIPT,
    "views/networks.js": SCRIPT,
    "views/network.js": SCRIPT,
    "views/agents.js": SCRIPT,
    "views/benefit.js": SCRIPT,
    "views/events.js": SCRIPT,
    "views/gateways.js": SCRIPT,
    "vendor/uplot/uPlot.iife.min.js": SCRIPT,
    "vendor/uplot/uPlot.min.css": CSS,
];

pub(super) async fn page(headers: HeaderMap) -> Result<Response, Problem> {
    answer("index.html", &headers)
}

pub(super) async fn file(Path(name): Path<String>, headers: HeaderMap) -> Result<Response, Problem> {
    answer(&name, &headers)
}

fn answer(name: &str, headers: &HeaderMap) -> Result<Response, Problem> {
    let found = FILES.iter().find(|(known, ..)| *known == name);
    let (_, kind, text) = found.ok_or_else(|| {
        let detail = format!("the dashboard has no file `{}`: begin at /", quote(name));
        Problem::new(StatusCode::NOT_FOUND, detail)
    })?;
    // Revalidated each time, so that a new gateway never runs with the files of an old one.
    let tag = format!("\"{:08x}\"", crc32fast::hash(text.as_bytes()));
    let known = headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response =
        if known { StatusCode::NOT_MODIFIED.into_response() } else { (StatusCode::OK, *text).into_response() };
    let tag = HeaderValue::from_str(&tag).unwrap_or(HeaderValue::from_static("\"\""));
    let fixed: [(HeaderName, &'static str); 6] = [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    response.headers_mut().insert(ETAG, tag);
    for (name, value) in fixed {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_names_only_files_that_are_there_and_nothing_inline() {
        let known = |name: &str| FILES.iter().any(|(file, ..)| *file == name);
        let mut named = 0;
        for (file, kind, text) in FILES.iter().filter(|(file, ..)| !file.starts_with("vendor/")) {
            for path in text.split(['"', '\'']).filter_map(|word| word.strip_prefix("/dashboard/")) {
                assert!(known(path), "{file} names {path}");
                named += 1;
            }
            for word in ["style=", "onclick", "http://", "https://", "innerHTML", "<script>"] {
                let place = text.find(word).map(|at| &text[at..(at + 40).min(text.len())]);
                assert!(place.is_none_or(|place| place.contains("www.w3.org")), "{file} ({kind}) has {place:?}");
            }
        }
        assert!(named > 20, "only {named} names found");
    }
}
