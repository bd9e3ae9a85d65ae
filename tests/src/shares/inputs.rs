//! The captures, each with who sends inside and what the kernel did.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ipnet::IpNet;
use spand_engine_tests::corpus;
use spand_needs::needs_corpus;

/// Samples below which a network has no estimate.
const SAMPLES_LEAST: u32 = 3;

/// A capture.
#[derive(Clone, Debug)]
pub struct Input {
    /// Its set and its name.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// The prefixes of the senders inside. A bare capture has none.
    pub internal: Vec<IpNet>,
    /// The true share of its largest network, where it is known.
    pub truth: Option<Truth>,
}

/// The kind of sender, and of the record of its truth.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// One network of `truth`, by BBR.
    Bbr,
    /// By CUBIC or Reno.
    LossBased,
    /// By one of these behind a pacer.
    Paced,
    /// Mixed traffic of `field-truth`.
    Mixed,
    /// A capture of the `field` set, whose index has the right value.
    Field,
}

/// The share that the kernel's own account gives.
#[derive(Clone, Copy, Debug)]
pub struct Truth {
    /// Whose it is.
    pub kind: Kind,
    /// In segments.
    pub share: Option<f64>,
    /// An estimate is wanted: of BBR where neither application nor receiver held every transfer, of others where the kernel's windows give
    /// enough samples.
    pub asked: bool,
    /// No sample behind it comes from the end of a transfer. Such a window may lie anywhere below the share.
    pub exact: bool,
}

type Line = BTreeMap<String, String>;

/// Lists every capture that this machine has: the cases of `tests/cases` and the sets of the corpus.
///
/// # Errors
/// A folder or a list of truths cannot be read.
pub fn inputs() -> Result<Vec<Input>> {
    let networks = |prefixes: &[&str]| prefixes.iter().map(|prefix| prefix.parse()).collect::<Result<Vec<IpNet>, _>>();
    let lab = networks(&["192.0.2.0/24", "2001:db8:ffff::/64"])?;
    let mut inputs = captures("cases", &crate::cases::list::folder(), &lab)?;
    if let Some(folder) = needs_corpus("truth") {
        let inside = networks(&["10.78.0.0/24"])?;
        for line in corpus::table(&folder.join("truth.tsv"))? {
            let path = folder.join(format!("captures/{}.pcap.zst", line["name"]));
            let (name, truth) = (format!("truth/{}", line["name"]), Some(Truth::of_one_network(&line)));
            inputs.push(Input { name, path, internal: inside.clone(), truth });
        }
    }
    if let Some(folder) = needs_corpus("field-truth") {
        let inside = networks(&["10.79.0.0/24", "fd79::/64"])?;
        let list = folder.join("truth.csv");
        let mut lines = csv::Reader::from_path(&list).with_context(|| format!("{} cannot be read", list.display()))?;
        for line in lines.deserialize::<Line>() {
            let line = line?;
            let path = folder.join(format!("{}.pcap.zst", line["name"]));
            let (name, truth) = (format!("field-truth/{}", line["name"]), Some(Truth::of_mixed(&line)));
            inputs.push(Input { name, path, internal: inside.clone(), truth });
        }
    }
    if let Some(folder) = needs_corpus("field") {
        let list = corpus::table(&folder.join("INDEX.tsv"))?;
        for mut input in captures("field", &folder, &lab)? {
            let line = list.iter().find(|line| input.path.ends_with(&line["file"]));
            input.truth = line.and_then(|line| Truth::of_words(&line["right value"]));
            inputs.push(input);
        }
    }
    for (set, folder) in
        [("real", "captures-real/captures"), ("malformed", "captures-malformed/captures"), ("wild", "wild")]
    {
        if let Some(folder) = needs_corpus(folder) {
            inputs.extend(captures(set, &folder, &[])?);
        }
    }
    Ok(inputs)
}

/// The captures of a folder, in order of name.
fn captures(set: &str, folder: &Path, internal: &[IpNet]) -> Result<Vec<Input>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    let mut paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    paths.sort();
    let named = |path: PathBuf| {
        let name = path.file_name()?.to_string_lossy().into_owned();
        let is_capture = name.contains(".pcap") || name.contains(".cap");
        is_capture.then(|| Input { name: format!("{set}/{name}"), path, internal: internal.to_vec(), truth: None })
    };
    Ok(paths.into_iter().filter_map(named).collect())
}

impl Truth {
    fn of_one_network(line: &Line) -> Self {
        let number = |column: &str| line[column].parse().unwrap_or(0);
        let kind = match (line["cc"].as_str(), line["server"].contains("pace=")) {
            ("bbr", _) => Kind::Bbr,
            (_, true) => Kind::Paced,
            _ => Kind::LossBased,
        };
        let (losses, ends) = (number("kernel_losses_in_avoidance"), number("kernel_ends_window_limited"));
        let rate = line["kernel_rate_times_min_rtt"].parse().ok();
        let (share, asked) = match kind {
            Kind::Bbr => (rate, rate.is_some() && (ends > 0 || number("kernel_ends_bounds") == 0)),
            _ => (line["kernel_mean_window_of_samples"].parse().ok(), losses + ends >= SAMPLES_LEAST),
        };
        Self { kind, share, asked, exact: kind == Kind::Bbr || ends == 0 }
    }

    fn of_mixed(line: &Line) -> Self {
        let column = if line["cc"] == "bbr" { "bbr_rate_times_min_rtt_per_address" } else { "mean_per_address" };
        let share: Option<f64> = line[column].parse().ok();
        Self { kind: Kind::Mixed, share, asked: share.is_some(), exact: true }
    }

    /// "share 21, 20 samples, 21 losses" and the like.
    fn of_words(words: &str) -> Option<Self> {
        let mut words = words.split(|c: char| !c.is_alphanumeric()).skip_while(|word| *word != "share");
        let share = words.nth(1)?.parse().ok()?;
        Some(Self { kind: Kind::Field, share: Some(share), asked: true, exact: true })
    }
}
