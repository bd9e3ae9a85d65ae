//! `cert`: a small certificate authority (CA) of the operator's own, which signs the certificates of gateway and agents and revokes them.
//!
//! It writes files and says where they belong; it reads no configuration, and `run` does not need it: certificates of any other CA do as
//! well.

mod authority;
mod files;
mod names;

#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use rcgen::ExtendedKeyUsagePurpose;
use spand_proto::operator::{Failure, rfc3339_unix_s};

use self::authority::{Authority, Validity};
use self::names::{Address, Name};

/// Where the CA lies unless another folder is named: apart from what the programs read, and root's alone.
const DEFAULT_DIR: &str = "/etc/spand/ca";

/// What `cert` does.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Make a certificate authority: its key and its certificate
    Init(Init),
    /// Make a key and a certificate for a host's agent, or with --server for the gateway
    Issue(Issue),
    /// Revoke certificates: add them to the list for tls.revoked of the gateway
    Revoke(Revoke),
}

/// Arguments of `cert init`.
#[derive(Args, Clone, Debug)]
pub struct Init {
    /// The folder of the authority, made where it is missing
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DIR)]
    dir: PathBuf,
    /// For how many days the authority's certificate is valid
    #[arg(long, value_name = "N", default_value_t = 3_650, value_parser = clap::value_parser!(u32).range(1..=MOST_DAYS))]
    days: u32,
}

/// Arguments of `cert issue`.
#[derive(Args, Clone, Debug)]
pub struct Issue {
    /// The host's name: the certificate's common name, its first alternative name and the name of both files
    #[arg(value_name = "NAME")]
    name: Name,
    /// An address or another host name: of an agent's host, for which it may speak; of the gateway, by which agents reach it; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    address: Vec<Address>,
    /// For the gateway instead of an agent
    #[arg(long)]
    server: bool,
    /// With --server: valid for TLS clients as well, as a NATS server needs it for its connections to other servers
    #[arg(long, requires = "server")]
    client: bool,
    /// For how many days the certificate is valid; 90, with --server 365, unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_DAYS))]
    days: Option<u32>,
    /// The folder of the authority
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DIR)]
    dir: PathBuf,
    /// The folder for both files, made where it is missing; that of the authority unless given
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Arguments of `cert revoke`.
#[derive(Args, Clone, Debug)]
pub struct Revoke {
    /// Certificates of the authority
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The folder of the authority
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DIR)]
    dir: PathBuf,
}

/// A century: nobody means more.
const MOST_DAYS: i64 = 36_500;
/// More names than this make a certificate that not every TLS library reads.
const MOST_ADDRESSES: usize = 256;
const AGENT_DAYS: u32 = 90;
const SERVER_DAYS: u32 = 365;

/// Does it, and says what was written.
pub fn run(command: &Command) -> Result<(), Failure> {
    let now = SystemTime::now();
    let output = match command {
        Command::Init(arguments) => init(arguments, now)?,
        Command::Issue(arguments) => issue(arguments, now)?,
        Command::Revoke(arguments) => revoke(arguments, now)?,
    };
    // It is done: where nobody reads that, it still is.
    _ = write!(io::stdout().lock(), "{output}");
    Ok(())
}

fn init(arguments: &Init, now: SystemTime) -> Result<String, Failure> {
    let validity = Validity::days(now, arguments.days);
    let key = files::generate()?;
    let certificate = Authority::self_signed(&key, validity)?;
    let (key_path, path) = files::write_pair(&arguments.dir, "ca", &key, &certificate)?;
    Ok(format!(
        "wrote {} and {}, valid until {}\n\
         Anyone with the key can make a certificate of any host: keep this folder on a machine that runs neither program.\n\
         Next: `spand-gateway cert issue NAME --server --address ADDRESS{}`\n",
        key_path.display(),
        path.display(),
        rfc3339_unix_s(validity.not_after_unix_s()),
        folder_option(&arguments.dir),
    ))
}

fn issue(arguments: &Issue, now: SystemTime) -> Result<String, Failure> {
    let Issue { name, address, server, client, days, dir, out } = arguments;
    if *server && !client && address.is_empty() {
        return Err(Failure::Usage(
            "a gateway's certificate needs --address: each name or address by which `gateway.url` of agents names the gateway"
                .to_owned(),
        ));
    }
    if address.len() > MOST_ADDRESSES {
        return Err(Failure::Usage(format!(
            "{} addresses are too many for one certificate, {MOST_ADDRESSES} at most: give the host a prefix in \
             agents.addresses of gateway.toml instead",
            address.len()
        )));
    }
    let authority = Authority::open(dir)?;
    let validity = Validity::days(now, days.unwrap_or(if *server { SERVER_DAYS } else { AGENT_DAYS }));
    authority.check_end(validity, now)?;
    let folder = out.as_deref().unwrap_or(dir);
    files::check_free(folder, name.as_str())?;
    let key = files::generate()?;
    let usages = match (server, client) {
        (true, true) => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        (true, false) => vec![ExtendedKeyUsagePurpose::ServerAuth],
        (false, _) => vec![ExtendedKeyUsagePurpose::ClientAuth],
    };
    let certificate = authority.sign(&key, name, address, usages, validity)?;
    let (key_path, path) = files::write_pair(folder, name.as_str(), &key, &certificate)?;

    let mut output = format!("wrote {} and {}\n", key_path.display(), path.display());
    let names: Vec<String> = names::all(name, address).iter().map(ToString::to_string).collect();
    let until = rfc3339_unix_s(validity.not_after_unix_s());
    _ = writeln!(output, "for {}, valid until {until}\n", names.join(", "));
    output += &destination(arguments, &key_path, &path);
    Ok(output)
}

/// Where the files belong, and the lines of the configuration that name them.
fn destination(arguments: &Issue, key: &Path, certificate: &Path) -> String {
    if arguments.client {
        return format!(
            "Bring both and {} to the NATS server, as /etc/nats/server.key, /etc/nats/server.pem and /etc/nats/ca.pem (docs/operate/share.md)\n",
            arguments.dir.join("ca.pem").display()
        );
    }
    let (program, machine, more) = if arguments.server {
        let first = arguments.address.iter().find_map(Address::as_ip);
        let listen =
            first.map_or_else(|| "ADDRESS:7400".to_owned(), |ip| std::net::SocketAddr::new(ip, 7_400).to_string());
        ("gateway", "gateway's machine", format!("[api]\ngrpc_listen = \"{listen}\"\n"))
    } else {
        (
            "agent",
            "host",
            "[gateway]\n# GATEWAY: a name or address of the gateway's certificate\nurl = \"https://GATEWAY:7400\"\n"
                .to_owned(),
        )
    };
    let mut output = format!(
        "Bring both and {} to the {machine}. There, as root:\n\
         \n    install -g spand-{program} -m 640 {} /etc/spand/{program}.key\
         \n    install -m 644 {} /etc/spand/{program}.pem\
         \n    install -m 644 ca.pem /etc/spand/ca.pem\n\n",
        arguments.dir.join("ca.pem").display(),
        file_name(key),
        file_name(certificate),
    );
    if !arguments.server && !arguments.address.iter().any(|address| address.as_ip().is_some()) {
        _ = writeln!(
            output,
            "It names no address: say in gateway.toml for which the agent may speak, `[agents.addresses]` \"{}\" = [\"PREFIX\"]\n",
            arguments.name
        );
    }
    _ = write!(
        output,
        "In /etc/spand/{program}.toml:\n\n{more}\n[tls]\ncertificate = \"{program}.pem\"\nkey = \"{program}.key\"\nca = \"ca.pem\"\n"
    );
    output
}

fn revoke(arguments: &Revoke, now: SystemTime) -> Result<String, Failure> {
    let authority = Authority::open(&arguments.dir)?;
    let path = arguments.dir.join("revoked.pem");
    let before = files::read_list(&path)?;
    let mut list = authority.list(before.as_deref(), &path)?;
    let mut output = String::new();
    for file in &arguments.files {
        let added = list.add(&authority.own_certificate(file)?, now);
        _ = writeln!(output, "{}: {}", file.display(), if added { "revoked" } else { "was revoked already" });
    }
    files::replace(&path, &authority.sign_list(&list, now)?)?;
    let count = list.len();
    _ = write!(
        output,
        "wrote {}, which lists {count} certificate{}\n\
         Bring it to the gateway as /etc/spand/revoked.pem; in /etc/spand/gateway.toml:\n\n[tls]\nrevoked = \"revoked.pem\"\n",
        path.display(),
        if count == 1 { "" } else { "s" },
    );
    Ok(output)
}

/// The option that names `dir`, where that is not the usual one.
fn folder_option(dir: &Path) -> String {
    if dir == Path::new(DEFAULT_DIR) { String::new() } else { format!(" --dir {}", dir.display()) }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Validity {
    /// From an hour ago, since clocks differ, until this many days from now.
    fn days(now: SystemTime, days: u32) -> Self {
        const DAY: Duration = Duration::from_secs(86_400);
        const HOUR: Duration = Duration::from_secs(3_600);
        Self { begin: now - HOUR, end: now + days * DAY }
    }
}
