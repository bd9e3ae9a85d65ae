//! Sends a question to a running gateway, and makes one sentence of each way in which no good answer comes. It prints nothing.

use std::fs::File;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

use axum::http::Uri;
use serde_json::Value;
use spand_proto::operator::Failure;
use spand_proto::tls::PemFile;

use crate::http_client::HttpClient;

/// The lists that are printed as tables, and the most rows that the interface gives of one.
const LISTS: [&str; 4] = ["networks", "agents", "classes", "events"];
pub(super) const MOST_ROWS: usize = 1_000;
/// Values of one answer; a page of networks has a quarter of that.
const MOST_VALUES: usize = 400_000;

/// A document of JSON that is not too large: each value takes many times its text in memory and on the screen.
fn parsed(body: &str) -> Option<Value> {
    (body.matches(',').count() < MOST_VALUES).then(|| serde_json::from_str(body).ok())?
}

fn lists(document: &Value) -> impl Iterator<Item = &Vec<Value>> {
    LISTS.iter().filter_map(|list| document[list].as_array())
}

/// Whether a page of a list has any row.
pub(super) fn has_rows(document: &Value) -> bool {
    lists(document).any(|rows| !rows.is_empty())
}

/// Where a gateway answers.
#[derive(Clone, Debug)]
pub(super) struct Url {
    text: String,
    tls: bool,
    host: String,
    port: u16,
}

/// Where a gateway answers whose configuration names no other address.
impl Default for Url {
    fn default() -> Self {
        let (host, port) = ("127.0.0.1".to_owned(), 7480);
        Self { text: format!("http://{host}:{port}"), tls: false, host, port }
    }
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let uri: Uri = text.parse().ok()?;
            let tls = match uri.scheme_str()? {
                "http" => false,
                "https" => true,
                _ => return None,
            };
            let whole = uri.path_and_query().is_none_or(|path| path == "/") && !uri.authority()?.as_str().contains('@');
            let host = uri.host()?.trim_matches(['[', ']']).to_owned();
            let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
            whole.then(|| Self { text: text.trim_end_matches('/').to_owned(), tls, host, port })
        };
        read().ok_or_else(|| "write http:// or https://, a host and a port, such as http://127.0.0.1:7480".to_owned())
    }
}

/// A gateway, and how it is asked.
#[derive(Debug)]
pub(super) struct Gateway {
    url: Url,
    client: HttpClient,
}

impl Gateway {
    pub(super) fn new(
        given: Option<&Url>,
        ca: Option<&Path>,
        user: Option<&str>,
        password: Option<&Path>,
    ) -> Result<Self, Failure> {
        let url = given.cloned().unwrap_or_default();
        if user.is_some() && !url.tls && !is_loopback(&url.host) {
            return Err(Failure::Usage(format!(
                "{} would get the password in the clear: write https:// and --ca, or ask on the gateway's machine",
                url.text
            )));
        }
        let unreadable = |path: &Path, error: std::io::Error| {
            Failure::Environment(format!("cannot read {}: {error}", path.display()))
        };
        if let Some(exposed) = password.and_then(spand_confine::exposed) {
            eprintln!("warning: {exposed}");
        }
        let password =
            password.map(|path| spand_confine::read_to_string(path).map_err(|error| unreadable(path, error)));
        let password = password.transpose()?;
        let password = password.as_deref().map(|text| text.lines().next().unwrap_or_default());
        let authorities = match (url.tls, ca) {
            (false, None) => None,
            (false, Some(_)) => {
                return Err(Failure::Usage(format!("{} has no TLS: write https://, or leave --ca out", url.text)));
            }
            (true, None) => {
                let what = "the file with the certificates of the authority that signed the gateway's certificate";
                return Err(Failure::Usage(format!("{} needs --ca: name {what}", url.text)));
            }
            (true, Some(path)) => {
                let file = File::open(path).and_then(|file| PemFile::read("--ca", path, file));
                let file = file.map_err(|error| unreadable(path, error))?;
                Some(file.certificates().map_err(|error| Failure::Usage(error.to_string()))?)
            }
        };
        let client = HttpClient::trusting(authorities, user.zip(password))?;
        Ok(Self { url, client: if given.is_none() { client.suspicious() } else { client } })
    }

    /// A good answer: its text, and what it holds.
    pub(super) fn document(&self, path: &str) -> Result<(String, Value), Failure> {
        let body = self.ask(path)?;
        let document = parsed(&body).filter(|document| lists(document).all(|rows| rows.len() <= MOST_ROWS));
        let document = document.ok_or_else(|| self.no_gateway())?;
        Ok((body, document))
    }

    /// The body of a good answer.
    fn ask(&self, path: &str) -> Result<String, Failure> {
        let url = &self.url.text;
        let (status, body) = match self.client.get(&self.url.host, self.url.port, path) {
            Ok(Some((200, body))) => return Ok(body),
            Ok(Some(other)) => other,
            Ok(None) => {
                let way_out = "start the gateway, or name its api.http_listen with --url";
                return Err(Failure::Environment(format!("nobody answers at {url}: {way_out}")));
            }
            Err(why) => {
                let way_out =
                    "name the gateway's api.http_listen with --url, with https:// and --ca where admin.tls is true";
                return Err(Failure::Environment(format!("cannot ask {url}: {why}; {way_out}")));
            }
        };
        let problem = parsed(&body).unwrap_or_default();
        let detail = match problem["detail"].as_str() {
            Some(detail) => detail.to_owned(),
            None => return Err(self.no_gateway()),
        };
        Err(match status {
            400 => Failure::Usage(detail),
            401 if self.client.has_password() => Failure::Environment(format!(
                "{detail} at {url}: see --user, --password-file and the gateway's admin.passwords"
            )),
            401 => Failure::Environment(format!("{detail} at {url}: give them with --user and --password-file")),
            _ => Failure::Environment(format!("{url} answers: {detail}")),
        })
    }

    /// Somebody else answers.
    pub(super) fn no_gateway(&self) -> Failure {
        let way_out = "name the gateway's api.http_listen with --url";
        Failure::Environment(format!("the server at {} is not a gateway: {way_out}", self.url.text))
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// A text as a part of a URL, with percent-encoding.
pub(super) fn encoded(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let one = |byte: u8| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}
