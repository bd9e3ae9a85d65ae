//! Files as they are and as they should not be.

use std::io::Read;
use std::path::Path;

use rcgen::{CertificateParams, KeyPair, SanType, date_time_ymd};

use super::*;

fn file(text: impl Into<Vec<u8>>) -> PemFile {
    PemFile { key: "tls.certificate", path: Path::new("x.pem").to_owned(), text: text.into() }
}

fn made() -> (String, String) {
    let mut params = CertificateParams::new(vec!["Web-1.Example.org".to_owned()]).unwrap();
    params.subject_alt_names.push(SanType::IpAddress("203.0.113.9".parse().unwrap()));
    params.subject_alt_names.push(SanType::IpAddress("2001:db8::9".parse().unwrap()));
    params.not_before = date_time_ymd(2026, 1, 2);
    params.not_after = date_time_ymd(2027, 1, 2);
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

#[test]
fn a_certificate_says_its_names_and_its_end() {
    let (certificate, key) = made();
    let read = file(certificate).first_certificate().unwrap();
    assert_eq!(read.names.hosts, ["web-1.example.org"]);
    let addresses: Vec<IpAddr> = vec!["203.0.113.9".parse().unwrap(), "2001:db8::9".parse().unwrap()];
    assert_eq!(read.names.addresses, addresses);
    assert_eq!(read.names.first().as_deref(), Some("web-1.example.org"));
    assert_eq!((read.not_before_unix_s, read.not_after_unix_s), (1_767_312_000, 1_798_848_000));
    file(key).private_key().unwrap();
}

#[test]
fn a_wrong_file_gets_one_sentence_that_names_it() {
    let (certificate, key) = made();
    let cut = &certificate[..certificate.len() / 2];
    let faults = [
        (file(key.clone()).certificates().unwrap_err(), "x.pem (tls.certificate) holds no certificate"),
        (file("").certificates().unwrap_err(), "holds no certificate"),
        (file(cut).certificates().unwrap_err(), "damaged"),
        (
            file("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").first_certificate().unwrap_err(),
            "damaged",
        ),
        (file(certificate.clone()).private_key().unwrap_err(), "holds no private key"),
        (
            file(key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY")).private_key().unwrap_err(),
            "no private key without a password",
        ),
        (file(certificate).revocation_lists().unwrap_err(), "holds no list of revoked certificates"),
    ];
    for (fault, expected) in faults {
        let sentence = fault.to_string();
        assert!(sentence.contains(expected), "{sentence:?} lacks {expected:?}");
    }
    assert!(!format!("{:?}", file(key.clone())).contains(&key[40..60]), "a key in a log");
}

#[test]
fn a_file_that_is_too_long_is_refused_before_it_is_all_read() {
    let path = Path::new("x.pem");
    let most = usize::try_from(PemFile::MOST_BYTES).unwrap();
    let read = |length: usize| PemFile::read("tls.key", path, io::repeat(b'-').take(length as u64));
    assert_eq!(read(most).unwrap().text.len(), most);
    assert!(read(most + 1).unwrap_err().to_string().contains("longer than 4194304 bytes"));
    let endless = PemFile::read("tls.key", path, io::repeat(b'-'));
    assert!(endless.is_err(), "such as /dev/zero");
}

#[test]
fn all_names_together_are_who_a_certificate_is_of() {
    let names = |hosts: &[&str], addresses: &[&str]| Names {
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
    };
    let one = names(&["cluster.example.org", "web-1.example.org"], &["203.0.113.1"]);
    let renewed = names(&["web-1.example.org", "cluster.example.org"], &["::ffff:203.0.113.1", "203.0.113.1"]);
    let other = names(&["cluster.example.org", "web-2.example.org"], &["203.0.113.2"]);
    assert_eq!(one.first(), other.first());
    assert_eq!(one.identity(), renewed.identity());
    assert_ne!(one.identity(), other.identity());
    assert_eq!(one.identity().as_deref(), Some("cluster.example.org,web-1.example.org,203.0.113.1"));
    assert_eq!(names(&[], &[]).identity(), None);
}
