//! Shares against the kernel's own account, on recordings of one network each: a table by recording in `target/kernel-truth.tsv`, and
//! the least that must be right. Without the corpus it says so.

#[cfg(test)]
mod judged;

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::fs;
    use std::path::PathBuf;

    use spand_tests::corpus;

    use super::judged::{Judged, Kind};

    /// Part with an estimate, and part of these within [`judged::NEAR`], of each kind of sender: in percent, at least.
    const LEAST: [(Kind, [u32; 2]); 3] =
        [(Kind::Bbr, [94, 88]), (Kind::LossBased, [92, 100]), (Kind::Paced, [100, 75])];

    #[test]
    fn shares_agree_with_the_kernels_windows_and_rates() {
        let Some(truth) = corpus::set("truth") else { return };
        let rows = corpus::table(&truth.join("truth.tsv")).expect("a table");
        let only = std::env::var("SPAND_TRUTH_ONLY").unwrap_or_default();
        let rows = rows.iter().filter(|row| row["name"].contains(&only));
        let judged: Vec<Judged> = rows.map(|row| Judged::of(row, &truth.join("captures"))).collect();
        let table: String = judged.iter().map(Judged::line).collect();
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../kernel-truth.tsv");
        fs::write(&path, format!("{}{table}", Judged::HEADER)).expect("room on the disk");
        println!("{}{table}", Judged::HEADER);
        let mut short = String::new();
        for (kind, [estimated_least, near_least]) in LEAST {
            let of_kind: Vec<_> = judged.iter().filter(|one| one.kind == kind && one.is_asked()).collect();
            let estimated = of_kind.iter().filter(|one| one.share.is_some()).count();
            let exact: Vec<_> = of_kind.iter().filter(|one| one.is_exact() && one.share.is_some()).collect();
            let near = exact.iter().filter(|one| one.is_near()).count();
            println!("{kind:?}: {estimated} of {} with an estimate; {near} of {} near", of_kind.len(), exact.len());
            let reaches = |part: usize, of: usize, least: u32| 100 * part >= least as usize * of;
            if !reaches(estimated, of_kind.len(), estimated_least) || !reaches(near, exact.len(), near_least) {
                writeln!(short, "{kind:?} below {estimated_least} and {near_least} %").unwrap();
            }
        }
        assert!(short.is_empty() || !only.is_empty(), "{short}the table: {}", path.display());
    }
}
