//! The reference numbers: one row per direction, by tshark, tcptrace and an interval count.

use std::collections::BTreeMap;
use std::path::Path;

use spand_core::wire::segment::Endpoint;

/// One direction of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) source: Endpoint,
    pub(crate) destination: Endpoint,
    cells: BTreeMap<String, String>,
}

/// Rows by file, in the order of connections.
pub(crate) struct Reference(BTreeMap<String, Vec<Row>>);

impl Reference {
    /// Reads `ref_conn.tsv`.
    pub(crate) fn read(path: &Path) -> Self {
        let mut reader = csv::ReaderBuilder::new().delimiter(b'\t').from_path(path).unwrap();
        let header = reader.headers().unwrap().clone();
        let mut files: BTreeMap<String, Vec<Row>> = BTreeMap::new();
        for record in reader.records() {
            let record = record.unwrap();
            let cells: BTreeMap<String, String> =
                header.iter().zip(&record).map(|(name, cell)| (name.to_owned(), cell.to_owned())).collect();
            let endpoint = |address: &str, port: &str| Endpoint {
                address: cells[address].parse().unwrap(),
                port: cells[port].parse().unwrap(),
            };
            let row = Row { source: endpoint("src", "sport"), destination: endpoint("dst", "dport"), cells };
            files.entry(row.cells["file"].clone()).or_default().push(row);
        }
        Self(files)
    }
}

/// The directions of a file that carried packets.
pub(crate) fn rows_of(reference: &Reference, file: &str) -> Vec<Row> {
    let rows = reference.0.get(file).map(Vec::as_slice).unwrap_or_default();
    rows.iter().filter(|row| row.count("pkts").is_some_and(|packets| packets > 0)).cloned().collect()
}

impl Row {
    /// A whole number; `None` where the tool gave none.
    pub(crate) fn count(&self, column: &str) -> Option<u64> {
        self.cells[column].parse().ok()
    }

    /// A number of milliseconds.
    pub(crate) fn millis(&self, column: &str) -> Option<f64> {
        self.cells[column].parse().ok()
    }

    /// What the interval count calls repeated: payload, or a bare SYN or FIN.
    pub(crate) fn repeated_packets(&self) -> Option<u64> {
        Some(self.count("cov_retx_pkts")? + self.count("cov_synfin_retx")?)
    }
}
