//! The two text formats in which metrics are read: Prometheus' own, which every reader takes, and `OpenMetrics`.

/// A text format of metrics.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exposition {
    /// Prometheus' text format 0.0.4: for a reader that asks for nothing else, and for files (node exporter's `textfile`).
    Text,
    /// `OpenMetrics` 1.0.0.
    OpenMetrics,
}

impl Exposition {
    /// The format for a request's `Accept` header (RFC 9110, 12.5.1): `OpenMetrics` where the header names it and prefers nothing else.
    #[must_use]
    pub fn accepted(accept: Option<&str>) -> Self {
        let accept = accept.unwrap_or_default();
        let open = quality(accept, "application/openmetrics-text");
        if open > 0.0 && open >= quality(accept, "text/plain") { Self::OpenMetrics } else { Self::Text }
    }

    /// Its media type.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Metrics in this format, from the `OpenMetrics` text of the library, which writes no other.
    #[must_use]
    pub fn of(self, open_metrics: &str) -> String {
        match self {
            Self::Text => text(open_metrics),
            Self::OpenMetrics => open_metrics.to_owned(),
        }
    }
}

/// The greatest weight that the header gives to the media type; 0 where it does not name the type.
fn quality(accept: &str, kind: &str) -> f32 {
    let range = |range: &str| {
        let mut parts = range.split(';').map(str::trim);
        if !parts.next()?.eq_ignore_ascii_case(kind) {
            return None;
        }
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        // An unreadable weight asks for nothing.
        Some(weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0)))
    };
    accept.split(',').filter_map(range).fold(0.0, f32::max)
}

/// Version 0.0.4 differs in the comments alone: `HELP` and `TYPE` name a counter and an info as their samples are named, an info is a
/// gauge, and there is no end mark. Samples are written alike.
fn text(open_metrics: &str) -> String {
    let mut written = String::with_capacity(open_metrics.len());
    // The library writes HELP before TYPE, but the type decides the name.
    let mut help = None;
    for line in open_metrics.lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT ")) {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map(|(_, help)| help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                _ => ("", kind),
            };
            if let Some(help) = help.take() {
                written.extend(["# HELP ", name, suffix, " ", help, "\n"]);
            }
            written.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
        } else {
            written.extend([line, "\n"]);
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_readers_that_ask_for_it() {
        for (accept, wanted) in [
            (None, Exposition::Text),
            (Some("*/*"), Exposition::Text),
            (Some("text/plain;version=0.0.4"), Exposition::Text),
            (Some("application/openmetrics-text"), Exposition::OpenMetrics),
            // Prometheus 2.42 and 3.
            (
                Some(
                    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                     text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                ),
                Exposition::OpenMetrics,
            ),
            (
                Some(
                    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2",
                ),
                Exposition::OpenMetrics,
            ),
            (Some("text/plain, application/openmetrics-text;q=0.3"), Exposition::Text),
            (Some("application/openmetrics-text;q=0"), Exposition::Text),
            (Some("application/openmetrics-text;q=much"), Exposition::Text),
        ] {
            assert_eq!(Exposition::accepted(accept), wanted, "{accept:?}");
        }
    }

    #[test]
    fn the_text_names_counters_and_infos_as_their_samples_are_named() {
        let open = "# HELP a_build It is.\n# TYPE a_build info\na_build_info{version=\"1\"} 1\n\
            # HELP a_packets Packets.\n# TYPE a_packets counter\n# UNIT a_packets packets\na_packets_total{if=\"# EOF\"} 7\n\
            # HELP a_up # EOF\n# TYPE a_up gauge\na_up 1\n# EOF\n";
        let text = "# HELP a_build_info It is.\n# TYPE a_build_info gauge\na_build_info{version=\"1\"} 1\n\
            # HELP a_packets_total Packets.\n# TYPE a_packets_total counter\na_packets_total{if=\"# EOF\"} 7\n\
            # HELP a_up # EOF\n# TYPE a_up gauge\na_up 1\n";
        assert_eq!(Exposition::Text.of(open), text);
        assert_eq!(Exposition::OpenMetrics.of(open), open);
    }
}
