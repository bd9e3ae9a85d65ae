//! The CA: its key and certificate, what it signs, and its list of revoked certificates (RFC 5280).

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::fcntl::{Flock, FlockArg};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PublicKeyData, RevokedCertParams,
    SanType, SerialNumber,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use spand_proto::operator::{Failure, rfc3339_unix_s};
use spand_proto::tls::PemFile;
use x509_parser::prelude::{CertificateRevocationList, FromDer, ParsedExtension, X509Certificate};

use super::files::cannot;
use super::names::{self, Address, Name};

/// Random bits of a serial number: 127, in 16 bytes.
const SERIAL_BYTES: usize = 16;
/// Validity of a revocation list (nextUpdate). The gateway takes an older one as well: what was revoked stays so.
const LIST_DAYS: u32 = 3_650;
const DAY: Duration = Duration::from_secs(86_400);

/// From when to when a certificate is valid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Validity {
    pub(super) begin: SystemTime,
    pub(super) end: SystemTime,
}

impl Validity {
    pub(super) fn not_after_unix_s(self) -> u64 {
        unix_s(self.end)
    }
}

/// A CA that was opened. No other process has it open at the same time.
pub(super) struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    not_after_unix_s: u64,
    _lock: Flock<File>,
}

/// Certificates that were revoked.
pub(super) struct List {
    revoked: Vec<RevokedCertParams>,
    number: SerialNumber,
}

impl Authority {
    /// The certificate of a new CA, in PEM.
    pub(super) fn self_signed(key: &KeyPair, validity: Validity) -> Result<String, Failure> {
        let serial = serial()?;
        let mut params = CertificateParams::default();
        // A name of its own: after a change of CA both certificates lie in one file, and a list names its CA by this alone.
        let [a, b, c, d, ..] = serial;
        params.distinguished_name = common_name(&format!("spand CA {:08x}", u32::from_be_bytes([a, b, c, d])));
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.not_before = validity.begin.into();
        params.not_after = validity.end.into();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(params.self_signed(key).map_err(|error| cannot_sign(&error))?.pem())
    }

    /// Opens the CA in a folder.
    pub(super) fn open(folder: &Path) -> Result<Self, Failure> {
        let (key_path, path) = (folder.join("ca.key"), folder.join("ca.pem"));
        let file = open(&key_path, folder)?;
        check_rights(&key_path, &file)?;
        if let Some(exposed) = spand_confine::exposed(&key_path) {
            eprintln!("warning: {exposed}");
        }
        let lock = Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, errno)| Failure::Environment(format!("cannot lock {}: {errno}", key_path.display())))?;
        let text = PemFile::read("the authority's key", &key_path, &*lock);
        let text = text.map_err(|error| cannot("read", &key_path, &error))?.text;
        let key = String::from_utf8(text).ok().and_then(|text| KeyPair::from_pem(&text).ok()).ok_or_else(|| {
            Failure::Environment(format!(
                "{} holds no private key in PKCS #8 without a password: make one of it with `openssl pkcs8 -topk8 -nocrypt`",
                key_path.display()
            ))
        })?;
        let text = PemFile::read("the authority", &path, open(&path, folder)?);
        let certificates =
            text.map_err(|error| cannot("read", &path, &error))?.certificates().map_err(Failure::environment)?;
        let public_key = key.subject_public_key_info();
        let own = certificates.into_iter().find_map(|certificate| {
            let (_, parsed) = X509Certificate::from_der(&certificate).ok()?;
            let ends = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0);
            let is_own = parsed.public_key().raw == public_key;
            let signs = parsed.is_ca();
            is_own.then_some((certificate, ends, signs))
        });
        let Some((certificate, not_after_unix_s, signs)) = own else {
            return Err(Failure::Environment(format!(
                "{} is not the key of a certificate in {}: bring back the two that belong together",
                key_path.display(),
                path.display()
            )));
        };
        if !signs {
            return Err(Failure::Environment(format!("{} is not the certificate of an authority", path.display())));
        }
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(|error| cannot_sign(&error))?;
        Ok(Self { folder: folder.to_owned(), issuer, certificate, not_after_unix_s, _lock: lock })
    }

    /// Fails where a certificate would be valid for longer than the CA's own, and so would fail before its end.
    pub(super) fn check_end(&self, validity: Validity, now: SystemTime) -> Result<(), Failure> {
        if validity.not_after_unix_s() <= self.not_after_unix_s {
            return Ok(());
        }
        let ends = rfc3339_unix_s(self.not_after_unix_s);
        let days = self.not_after_unix_s.saturating_sub(unix_s(now)) / DAY.as_secs();
        let way_out = match days {
            0 => String::new(),
            1 => "ask for --days 1, or ".to_owned(),
            days => format!("ask for at most --days {days}, or "),
        };
        Err(Failure::Usage(format!(
            "the authority in {} ends {ends}, before the certificate would: {way_out}make a new authority in another folder",
            self.folder.display()
        )))
    }

    /// A certificate in PEM for this key.
    pub(super) fn sign(
        &self,
        key: &KeyPair,
        name: &Name,
        addresses: &[Address],
        usages: Vec<ExtendedKeyUsagePurpose>,
        validity: Validity,
    ) -> Result<String, Failure> {
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(name.as_str());
        params.serial_number = Some(SerialNumber::from_slice(&serial()?));
        params.not_before = validity.begin.into();
        params.not_after = validity.end.into();
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages;
        params.use_authority_key_identifier_extension = true;
        for name in names::all(name, addresses) {
            params.subject_alt_names.push(match name {
                Address::Ip(address) => SanType::IpAddress(address),
                Address::Host(host) => SanType::DnsName(host.try_into().map_err(|error| cannot_sign(&error))?),
            });
        }
        Ok(params.signed_by(key, &self.issuer).map_err(|error| cannot_sign(&error))?.pem())
    }

    /// The serial number of the first certificate in a file, if this CA signed it.
    pub(super) fn own_certificate(&self, path: &Path) -> Result<Vec<u8>, Failure> {
        let file = File::open(path).map_err(|error| cannot("read", path, &error))?;
        let read = PemFile::read("to revoke", path, file).map_err(|error| cannot("read", path, &error))?;
        let certificates = read.certificates().map_err(Failure::environment)?;
        let own = self.parsed()?;
        let serial = certificates.first().and_then(|der| {
            let (_, certificate) = X509Certificate::from_der(der).ok()?;
            certificate.verify_signature(Some(own.public_key())).ok()?;
            Some(certificate.raw_serial().to_vec())
        });
        serial.ok_or_else(|| {
            Failure::Usage(format!(
                "{} is not a certificate of the authority in {}: nothing was revoked",
                path.display(),
                self.folder.display()
            ))
        })
    }

    /// The list in DER that is in `path`, to be added to; an empty one where there is none.
    pub(super) fn list(&self, der: Option<&[u8]>, path: &Path) -> Result<List, Failure> {
        let Some(der) = der else { return Ok(List { revoked: Vec::new(), number: SerialNumber::from(1) }) };
        let own = self.parsed()?;
        let list = CertificateRevocationList::from_der(der).ok().map(|(_, list)| list);
        let list = list.filter(|list| list.verify_signature(own.public_key()).is_ok()).ok_or_else(|| {
            Failure::Environment(format!(
                "{} is not a list of the authority in {}: move it away, or name the authority that made it",
                path.display(),
                self.folder.display()
            ))
        })?;
        let revoked = list.iter_revoked_certificates().map(|revoked| RevokedCertParams {
            serial_number: SerialNumber::from_slice(revoked.raw_serial()),
            revocation_time: revoked.revocation_date.to_datetime(),
            reason_code: None,
            invalidity_date: None,
        });
        // `crl_number` sees the extension only where it was read; a list without one begins to count.
        let number = list.crl_number().map_or_else(|| vec![1], |number| (number + 1_u32).to_bytes_be());
        Ok(List { revoked: revoked.collect(), number: SerialNumber::from_slice(&number) })
    }

    /// The list in PEM.
    pub(super) fn sign_list(&self, list: &List, now: SystemTime) -> Result<String, Failure> {
        let own = self.parsed()?;
        let identifier = own.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(identifier) => Some(identifier.0.to_vec()),
            _ => None,
        });
        let params = CertificateRevocationListParams {
            this_update: now.into(),
            next_update: (now + LIST_DAYS * DAY).into(),
            crl_number: list.number.clone(),
            issuing_distribution_point: None,
            revoked_certs: list.revoked.clone(),
            key_identifier_method: identifier.map_or(KeyIdMethod::Sha256, KeyIdMethod::PreSpecified),
        };
        params.signed_by(&self.issuer).and_then(|list| list.pem()).map_err(|error| cannot_sign(&error))
    }

    fn parsed(&self) -> Result<X509Certificate<'_>, Failure> {
        let parsed = X509Certificate::from_der(&self.certificate);
        let damaged = |_| Failure::Environment(format!("{} is damaged", self.folder.join("ca.pem").display()));
        parsed.map(|(_, certificate)| certificate).map_err(damaged)
    }
}

impl List {
    /// Adds a certificate. False where it is listed already.
    pub(super) fn add(&mut self, serial: &[u8], now: SystemTime) -> bool {
        let serial_number = SerialNumber::from_slice(serial);
        if self.revoked.iter().any(|revoked| revoked.serial_number == serial_number) {
            return false;
        }
        let revocation_time = now.into();
        self.revoked.push(RevokedCertParams {
            serial_number,
            revocation_time,
            reason_code: None,
            invalidity_date: None,
        });
        true
    }

    pub(super) fn len(&self) -> usize {
        self.revoked.len()
    }
}

/// Opens a file of the CA.
fn open(path: &Path, folder: &Path) -> Result<File, Failure> {
    OpenOptions::new().read(true).open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::Environment(format!(
            "there is no {}: make an authority with `spand-gateway cert init{}`, or name its folder with --dir",
            path.display(),
            super::folder_option(folder)
        )),
        _ => cannot("read", path, &error),
    })
}

/// Fails where others may write the key: they could have put theirs in its place.
fn check_rights(key: &Path, file: &File) -> Result<(), Failure> {
    let mode = file.metadata().map_err(|error| cannot("read", key, &error))?.permissions().mode() & 0o777;
    if mode & 0o022 == 0 {
        return Ok(());
    }
    let key = key.display();
    Err(Failure::Environment(format!(
        "{key} may be written by others (mode {mode:04o}): make sure that it is still the authority's, and `chmod 600 {key}`"
    )))
}

fn common_name(name: &str) -> DistinguishedName {
    let mut all = DistinguishedName::new();
    all.push(DnType::CommonName, name);
    all
}

/// A random serial number of 16 bytes, positive and without a leading zero (RFC 5280 section 4.1.2.2).
fn serial() -> Result<[u8; SERIAL_BYTES], Failure> {
    let mut serial = [0; SERIAL_BYTES];
    let filled = default_provider().secure_random.fill(&mut serial);
    filled.map_err(|_| Failure::Environment("the system gives no random numbers".to_owned()))?;
    serial[0] = serial[0] & 0x7f | 0x40;
    Ok(serial)
}

fn unix_s(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn cannot_sign(error: &rcgen::Error) -> Failure {
    Failure::Environment(format!("cannot sign: {error}"))
}
