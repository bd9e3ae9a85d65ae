//! Certificates as an operator's authority would make them, and as it should not.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber,
};

/// An authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key, in PEM.
#[derive(Clone, Debug)]
pub struct Made {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
    serial: u64,
}

/// What a certificate is to say.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// Host names and addresses.
    pub names: &'a [&'a str],
    /// For what it may be used.
    pub usages: &'a [ExtendedKeyUsagePurpose],
    /// How long ago it began.
    pub age: Duration,
    /// How long it holds, from its beginning on.
    pub life: Duration,
}

/// An hour.
const HOUR: Duration = Duration::from_secs(3_600);
static SERIAL: AtomicU64 = AtomicU64::new(1);

impl Default for Wanted<'_> {
    fn default() -> Self {
        let usages = &[ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        Self { names: &["localhost", "127.0.0.1"], usages, age: HOUR, life: 2 * HOUR }
    }
}

impl Authority {
    /// A new one.
    pub fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// Its own certificate in PEM.
    pub fn certificate(&self) -> String {
        self.0.pem()
    }

    /// A certificate for an hour, of these names.
    pub fn make(&self, names: &[&str]) -> Result<Made> {
        self.make_wanted(&Wanted { names, ..Wanted::default() })
    }

    /// A certificate that says this.
    pub fn make_wanted(&self, wanted: &Wanted<'_>) -> Result<Made> {
        let mut params = CertificateParams::default();
        for name in wanted.names {
            let name = match name.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName((*name).try_into()?),
            };
            params.subject_alt_names.push(name);
        }
        let begin = SystemTime::now() - wanted.age;
        params.not_before = begin.into();
        params.not_after = (begin + wanted.life).into();
        params.extended_key_usages = wanted.usages.to_vec();
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        params.serial_number = Some(SerialNumber::from(serial));
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0)?.pem();
        Ok(Made { certificate, key: key.serialize_pem(), serial })
    }

    /// A list in PEM of certificates of its own that hold no more.
    pub fn revoke(&self, revoked: &[&Made]) -> Result<String> {
        let now = SystemTime::now();
        let revoked = revoked.iter().map(|made| RevokedCertParams {
            serial_number: SerialNumber::from(made.serial),
            revocation_time: now.into(),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: now.into(),
            next_update: (now + HOUR).into(),
            crl_number: SerialNumber::from(SERIAL.fetch_add(1, Ordering::Relaxed)),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(list.signed_by(&self.0)?.pem()?)
    }
}

impl Made {
    /// Writes both parts into `folder`: the paths of certificate and key.
    pub fn write(&self, folder: &Path, name: &str) -> Result<(PathBuf, PathBuf)> {
        let (certificate, key) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
        fs::write(&certificate, &self.certificate)?;
        fs::write(&key, &self.key)?;
        Ok((certificate, key))
    }
}
