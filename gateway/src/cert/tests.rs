//! What is made, who takes it, and what is refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::{CommandFactory, FromArgMatches, Parser};
use spand_proto::operator::Failure;
use spand_proto::tls::PemFile;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::*;

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Does what a command line says, at a moment.
fn at(now: SystemTime, folder: &Path, line: &str) -> Result<String, String> {
    let words = ["cert"].into_iter().chain(line.split_whitespace()).map(str::to_owned);
    let words = words.chain(["--dir".to_owned(), folder.display().to_string()]);
    let matches = Cli::command().try_get_matches_from(words).map_err(|error| error.to_string())?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.to_string())?;
    let done = match &cli.command {
        Command::Init(arguments) => init(arguments, now),
        Command::Issue(arguments) => issue(arguments, now),
        Command::Revoke(arguments) => revoke(arguments, now),
    };
    done.map_err(|failure| match failure {
        Failure::Usage(why) => format!("usage: {why}"),
        Failure::Environment(why) | Failure::Findings(why) => format!("environment: {why}"),
    })
}

fn now(folder: &Path, line: &str) -> Result<String, String> {
    at(SystemTime::now(), folder, line)
}

fn refused(folder: &Path, line: &str, words: &[&str]) {
    let why = now(folder, line).expect_err(line);
    for word in words {
        assert!(why.contains(word), "{line}: {why:?} lacks {word:?}");
    }
}

fn certificate<T>(path: &Path, look: impl FnOnce(&X509Certificate<'_>) -> T) -> T {
    let file = PemFile::read("tls.certificate", path, fs::File::open(path).unwrap()).unwrap();
    let certificates = file.certificates().unwrap();
    assert_eq!(certificates.len(), 1);
    look(&X509Certificate::from_der(&certificates[0]).unwrap().1)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn keys_are_their_owners_alone_and_nothing_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("made/ca");
    now(&dir, "init").unwrap();
    now(&dir, "issue web-1.example.org --address 203.0.113.9").unwrap();
    assert_eq!(mode(&dir), 0o700);
    for (name, wanted) in
        [("ca.key", 0o600), ("ca.pem", 0o644), ("web-1.example.org.key", 0o600), ("web-1.example.org.pem", 0o644)]
    {
        assert_eq!(mode(&dir.join(name)), wanted, "{name}");
    }
    let before = |name: &str| fs::read(dir.join(name)).unwrap();
    let all = ["ca.key", "ca.pem", "web-1.example.org.key", "web-1.example.org.pem"].map(before);
    refused(&dir, "init", &["environment", "ca.key is there already"]);
    refused(&dir, "issue Web-1.example.org", &["environment", "web-1.example.org.key is there already"]);
    fs::remove_file(dir.join("web-1.example.org.key")).unwrap();
    refused(&dir, "issue web-1.example.org", &["web-1.example.org.pem is there already"]);
    assert!(!dir.join("web-1.example.org.key").exists(), "a key without a certificate");
    fs::write(dir.join("web-1.example.org.key"), &all[2]).unwrap();
    assert_eq!(["ca.key", "ca.pem", "web-1.example.org.key", "web-1.example.org.pem"].map(before), all);

    // Renewal goes to a folder of its own.
    let out = folder.path().join("renewed");
    now(&dir, &format!("issue web-1.example.org --out {}", out.display())).unwrap();
    assert_eq!((mode(&out), mode(&out.join("web-1.example.org.key"))), (0o700, 0o600));
}

#[test]
fn an_authority_s_key_that_others_may_write_signs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    now(folder.path(), "init").unwrap();
    let key = folder.path().join("ca.key");
    for open in [0o666, 0o620, 0o602] {
        fs::set_permissions(&key, fs::Permissions::from_mode(open)).unwrap();
        refused(folder.path(), "issue web-1", &["environment", "ca.key", &format!("mode {open:04o}"), "chmod 600"]);
    }
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    now(folder.path(), "issue web-1").unwrap();
}

#[test]
fn a_certificate_says_whom_it_names_for_what_and_how_long() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    now(dir, "init --days 400").unwrap();
    let line = "issue Gateway.example.org --server --address gw --address 192.0.2.1 --address 2001:db8::1 \
                --address ::ffff:192.0.2.1";
    let output = now(dir, line).unwrap();
    assert!(output.contains("for gateway.example.org, gw, 192.0.2.1, 2001:db8::1, valid until 2"), "{output}");
    now(dir, "issue web-1").unwrap();
    let serial = |name: &str| certificate(&dir.join(name), |one| one.raw_serial().to_vec());
    let serials = ["ca.pem", "gateway.example.org.pem", "web-1.pem"].map(serial);
    assert!(serials.iter().all(|serial| serial.len() == 16));
    assert!(serials[0] != serials[1] && serials[1] != serials[2] && serials[0] != serials[2]);
    certificate(&dir.join("gateway.example.org.pem"), |one| {
        assert_eq!(one.subject().to_string(), "CN=gateway.example.org");
        let usage = one.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.server_auth && !usage.client_auth);
        let names = &one.subject_alternative_name().unwrap().unwrap().value.general_names;
        let hosts = names.iter().filter(|name| matches!(name, GeneralName::DNSName(_))).count();
        assert_eq!((hosts, names.len()), (2, 4), "each once");
        assert_eq!(days(one), 365);
        assert!(!one.is_ca());
    });
    let output = now(dir, "issue nats-1.example.net --server --client").unwrap();
    assert!(output.contains("to the NATS server, as /etc/nats/server.key"), "{output}");
    certificate(&dir.join("nats-1.example.net.pem"), |one| {
        let usage = one.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && usage.server_auth);
    });
    certificate(&dir.join("web-1.pem"), |one| {
        let usage = one.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && !usage.server_auth);
        assert_eq!(days(one), 90);
        certificate(&dir.join("ca.pem"), |ca| {
            assert_eq!(days(ca), 400);
            assert!(ca.is_ca() && ca.subject().to_string().starts_with("CN=spand CA "));
            one.verify_signature(Some(ca.public_key())).unwrap();
        });
    });
}

/// Days from now on: it is valid from an hour ago.
fn days(certificate: &X509Certificate<'_>) -> i64 {
    let validity = certificate.validity();
    (validity.not_after.timestamp() - validity.not_before.timestamp() - 3_600) / 86_400
}

#[test]
fn what_is_printed_for_the_configuration_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    now(dir, "init").unwrap();
    let output = now(dir, "issue gateway --server --address gw.example.org --address 2001:db8::1").unwrap();
    let config = output.split("gateway.toml:\n").nth(1).unwrap();
    crate::config::Config::parse(config, Path::new("/etc/spand/gateway.toml")).unwrap();
    assert!(config.contains("grpc_listen = \"[2001:db8::1]:7400\""), "{config}");
    let output = now(dir, "issue web-1").unwrap();
    assert!(
        output.contains("`[agents.addresses]` \"web-1\" = "),
        "an agent without an address may speak for none: {output}"
    );
    let output = now(dir, &format!("revoke {}", dir.join("web-1.pem").display())).unwrap();
    assert!(output.ends_with("[tls]\nrevoked = \"revoked.pem\"\n"), "{output}");
}

#[test]
fn names_that_are_none_are_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    now(dir, "init").unwrap();
    let long = ["a"; 40].join(".");
    for (line, words) in [
        ("issue ../web", "letters, digits"),
        ("issue a/b", "letters, digits"),
        ("issue web_1", "letters, digits"),
        ("issue -- -web", "letters, digits"),
        ("issue web..1", "1 to 63"),
        ("issue .", "1 to 63"),
        ("issue 203.0.113.9", "go to --address"),
        ("issue 2001:db8::1", "go to --address"),
        ("issue 203.0.113", "a number"),
        ("issue ca", "a file of the authority"),
        ("issue Revoked", "a file of the authority"),
        (&format!("issue {long}"), "79 characters, 64 at most"),
        ("issue web --address 203.0.113.0/24", "neither an address nor a host name"),
        ("issue web --address 0.0.0.0", "not the address of a machine"),
        ("issue web --address ff02::1", "not the address of a machine"),
        ("issue gateway --server", "needs --address"),
        ("issue web --days 0", "0 is not in 1..=36500"),
        ("init --days 0", "0 is not in 1..=36500"),
        ("revoke", "FILE"),
    ] {
        let with_dir = line.replacen("issue --", &format!("issue --dir {} --", dir.display()), 1);
        if with_dir == line { refused(dir, line, &[words]) } else { refused_as_is(&with_dir, words) }
    }
    assert!("".parse::<Name>().is_err());
    let many = " --address web-2".repeat(MOST_ADDRESSES + 1);
    refused(dir, &format!("issue web{many}"), &["usage", "257 addresses are too many", "agents.addresses"]);
    assert_eq!(fs::read_dir(dir).unwrap().count(), 2, "the authority alone");
}

fn refused_as_is(line: &str, words: &str) {
    let error = Cli::try_parse_from(["cert"].into_iter().chain(line.split_whitespace())).unwrap_err().to_string();
    assert!(error.contains(words), "{line}: {error}");
}

#[test]
fn no_certificate_outlives_its_authority() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let begin = SystemTime::now();
    at(begin, dir, "init --days 89").unwrap();
    let why = at(begin, dir, "issue web-1").unwrap_err();
    assert!(why.starts_with("usage: ") && why.contains("at most --days 89"), "{why}");
    at(begin, dir, "issue web-1 --days 89").unwrap();
    let over = begin + Duration::from_secs(90 * 86_400);
    let why = at(over, dir, "issue web-2 --days 1").unwrap_err();
    assert!(why.contains("make a new authority") && !why.contains("--days"), "{why}");
    assert!(!dir.join("web-2.key").exists());
}

#[test]
fn files_of_an_authority_that_are_missing_or_do_not_belong_together_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    let shown = one.display().to_string();
    refused(&one, "issue web-1", &["environment", "there is no ", &format!("cert init --dir {shown}")]);
    now(&one, "init").unwrap();
    now(&other, "init").unwrap();
    fs::copy(other.join("ca.key"), one.join("ca.key")).unwrap();
    refused(&one, "issue web-1", &["environment", "ca.key is not the key of a certificate in"]);
    fs::write(one.join("ca.key"), "-----BEGIN NOTHING-----\n").unwrap();
    refused(&one, "issue web-1", &["environment", "ca.key holds no private key"]);
    fs::copy(other.join("ca.key"), one.join("ca.key")).unwrap();
    fs::write(one.join("ca.pem"), "").unwrap();
    refused(&one, "issue web-1", &["environment", "ca.pem", "no certificate"]);
    // A host's certificate with its key is no authority.
    now(&other, "issue web-1").unwrap();
    fs::copy(other.join("web-1.key"), one.join("ca.key")).unwrap();
    fs::copy(other.join("web-1.pem"), one.join("ca.pem")).unwrap();
    refused(&one, "issue web-2", &["is not the certificate of an authority"]);
    // As a folder that must not be written to.
    fs::write(folder.path().join("file"), "").unwrap();
    refused(&folder.path().join("file/ca"), "init", &["environment", "cannot look for"]);
}

#[test]
fn a_list_grows_and_takes_certificates_of_its_own_authority_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    for dir in [&one, &other] {
        now(dir, "init").unwrap();
        for name in ["web-1", "web-2"] {
            now(dir, &format!("issue {name}")).unwrap();
        }
    }
    let file = |dir: &Path, name: &str| dir.join(name).display().to_string();
    let (first, second, foreign) = (file(&one, "web-1.pem"), file(&one, "web-2.pem"), file(&other, "web-1.pem"));
    refused(&one, &format!("revoke {first} {foreign}"), &["usage", "not a certificate of the authority", "nothing"]);
    assert!(!one.join("revoked.pem").exists(), "nothing was revoked");
    assert!(now(&one, &format!("revoke {first}")).unwrap().contains("which lists 1 certificate\n"));
    assert_eq!(mode(&one.join("revoked.pem")), 0o644);
    // What an interrupted run left is in nobody's way.
    fs::write(one.join("revoked.pem.new"), "").unwrap();
    let output = now(&one, &format!("revoke {first} {second}")).unwrap();
    assert!(
        output.contains("web-1.pem: was revoked already") && output.contains("which lists 2 certificates\n"),
        "{output}"
    );
    assert!(!one.join("revoked.pem.new").exists());
    let list = files::read_list(&one.join("revoked.pem")).unwrap().unwrap();
    let (_, list) = x509_parser::parse_x509_crl(&list).unwrap();
    let serials: Vec<Vec<u8>> = list.iter_revoked_certificates().map(|one| one.raw_serial().to_vec()).collect();
    let wanted = [&first, &second].map(|path| certificate(Path::new(path), |one| one.raw_serial().to_vec()));
    assert_eq!(serials, wanted);
    assert_eq!(list.crl_number().unwrap().to_string(), "2");
    // Another authority's list is not written over.
    fs::copy(one.join("revoked.pem"), other.join("revoked.pem")).unwrap();
    refused(&other, &format!("revoke {foreign}"), &["environment", "is not a list of the authority"]);
    assert_eq!(fs::read(one.join("revoked.pem")).unwrap(), fs::read(other.join("revoked.pem")).unwrap());
}
