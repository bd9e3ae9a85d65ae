//! The dialect of JSON that both programs speak (docs/reference/api.md, "JSON"): walks documents and says what in them is not of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Map, Value};

mod names;

use names::{
    ADDRESSES, BANNED, COUNTS, COUNTS_BY_NAME, IDENTIFIERS, LIST_OR_COUNT, NETWORKS, RATIOS, REPLAY_COLUMNS, TIME_ENDS,
    TIMES, TWO_TYPES, UNITS,
};

/// Where a document comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Origin {
    /// `replay`, whose columns keep their names.
    Replay,
    /// Anything else.
    Other,
}

/// Documents that were walked, and what is wrong in them.
#[derive(Debug, Default)]
pub struct Dialect {
    /// Types by name, each with where it was seen first.
    types: BTreeMap<String, BTreeMap<String, String>>,
    /// Names without a value so far.
    empty: BTreeMap<String, String>,
    faults: BTreeSet<String>,
}

/// What holds around a value.
#[derive(Clone, Copy)]
struct Around<'a> {
    origin: Origin,
    path: &'a str,
    /// Its name; of an element that of its list.
    name: &'a str,
    /// A name around it ends in a unit, or is one of counts.
    has_unit: bool,
}

impl Dialect {
    /// Walks a document.
    pub fn walk(&mut self, origin: Origin, document: &str, value: &Value) {
        self.value(Around { origin, path: document, name: "", has_unit: false }, value);
    }

    /// What is not of the dialect.
    pub fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> = self.faults.iter().cloned().collect();
        for (name, types) in &self.types {
            let kinds: Vec<&str> = types.keys().map(String::as_str).collect();
            let counted = LIST_OR_COUNT.contains(&name.as_str())
                && kinds.iter().all(|kind| *kind == "number" || kind.starts_with("list"));
            let excused = counted || TWO_TYPES.iter().any(|(known, _)| known == name);
            if kinds.len() > 1 && !excused {
                let places: Vec<String> = types.iter().map(|(kind, place)| format!("{kind} at {place}")).collect();
                faults.push(format!("`{name}` has two types: {}", places.join(", ")));
            }
        }
        faults
    }

    /// Names that never had a value, with a place of each.
    pub fn empty(&self) -> &BTreeMap<String, String> {
        &self.empty
    }

    fn fault(&mut self, around: Around<'_>, what: &str) {
        self.faults.insert(format!("{}: {what}", around.path));
    }

    fn value(&mut self, around: Around<'_>, value: &Value) {
        match value {
            Value::Null => {}
            Value::Bool(_) => {
                if is_time(around.name) {
                    self.fault(around, "a time is a string");
                }
            }
            Value::Number(_) => self.number(around),
            Value::String(text) => self.string(around, text),
            Value::Array(elements) => elements.iter().for_each(|element| self.value(around, element)),
            Value::Object(fields) => self.object(around, fields),
        }
    }

    fn object(&mut self, around: Around<'_>, fields: &Map<String, Value>) {
        // Reasons and events are no names of ours.
        let by_name = COUNTS_BY_NAME.contains(&around.name) || around.name.ends_with("_by_reason");
        for (name, value) in fields {
            let path = format!("{}.{name}", around.path);
            let inner = Around { path: &path, name, ..around };
            if by_name {
                let is_count = value.is_u64() || (value.is_boolean() && around.name == "sandbox");
                if !is_count {
                    self.fault(inner, "it stands among counts and is none");
                }
                continue;
            }
            self.note_type(inner, value);
            if let Some((_, instead)) = BANNED.iter().find(|(banned, _)| banned == name) {
                self.fault(inner, &format!("it is called `{instead}`"));
            }
            let has_unit = around.has_unit || UNITS.iter().any(|unit| name.ends_with(unit)) || name == "percent";
            self.value(Around { has_unit, ..inner }, value);
        }
    }

    fn number(&mut self, around: Around<'_>) {
        let name = around.name;
        let known = [COUNTS, IDENTIFIERS, RATIOS].iter().any(|names| names.contains(&name));
        let column = around.origin == Origin::Replay && REPLAY_COLUMNS.contains(&name);
        if is_time(name) {
            self.fault(around, "a time is RFC 3339, and no number");
        } else if !around.has_unit && !known && !column {
            self.fault(around, "a number whose name has no unit, and that is on no list");
        }
    }

    fn string(&mut self, around: Around<'_>, text: &str) {
        let name = around.name;
        let is_moment = humantime::parse_rfc3339(text).is_ok() && text.ends_with('Z');
        if is_moment != is_time(name) {
            self.fault(around, &format!("`{text}`: RFC 3339 stands under a name of a time, and nothing else does"));
        }
        if text.contains('/') && text.parse::<IpNet>().is_ok() && !NETWORKS.contains(&name) {
            self.fault(around, &format!("`{text}`: a network is called `prefix`"));
        }
        if text.parse::<IpAddr>().is_ok() && !ADDRESSES.contains(&name) {
            self.fault(around, &format!("`{text}`: the address that a connection goes to is called `destination`"));
        }
    }

    fn note_type(&mut self, around: Around<'_>, value: &Value) {
        let Some(kind) = kind(value) else {
            if !self.types.contains_key(around.name) {
                self.empty.entry(around.name.to_owned()).or_insert_with(|| around.path.to_owned());
            }
            return;
        };
        self.empty.remove(around.name);
        let seen = self.types.entry(around.name.to_owned()).or_default();
        seen.entry(kind).or_insert_with(|| around.path.to_owned());
    }
}

/// The type of a value; of a list with that of its elements. Nothing where there is none to see.
fn kind(value: &Value) -> Option<String> {
    let text = match value {
        Value::Null => return None,
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Object(_) => "object",
        Value::Array(elements) => return elements.iter().find_map(kind).map(|kind| format!("list of {kind}")),
    };
    Some(text.to_owned())
}

fn is_time(name: &str) -> bool {
    TIMES.contains(&name) || TIME_ENDS.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn faults(origin: Origin, documents: &[Value]) -> Vec<String> {
        let mut dialect = Dialect::default();
        for document in documents {
            dialect.walk(origin, "one", document);
        }
        dialect.faults()
    }

    #[test]
    fn what_is_of_the_dialect_is_no_fault() {
        let document = json!({
            "at": "2027-01-15T08:00:00.5Z", "paused_until": null, "prefix": "192.0.2.0/24", "destination": "192.0.2.7",
            "rtt_min_ms": 1.5, "pid": 7, "refused_by_reason": { "stale": 3 }, "confidence": 0.5,
            "difference": { "completion_ms": { "mean": 1, "low": 0.5, "percent": [1, 2, 3] } }, "wc_quartiles_bytes": [1, 2],
        });
        assert_eq!(faults(Origin::Other, &[document.clone(), document]), Vec::<String>::new());
        let columns = json!({ "mss": 1_448, "time": "2027-01-15T08:00:00.123456789Z" });
        assert_eq!(faults(Origin::Replay, &[columns]), Vec::<String>::new());
    }

    #[test]
    fn each_rule_finds_what_breaks_it() {
        for (document, expected) in [
            (json!({ "share": 3 }), "no unit"),
            (json!({ "list": [{ "rtt": 3 }] }), "one.list.rtt: a number whose name has no unit"),
            (json!({ "mss": 3 }), "no unit"),
            (json!({ "way": "route" }), "`method`"),
            (json!({ "network": "192.0.2.0/24" }), "`prefix`"),
            (json!({ "at_unix_ms": 3 }), "`at`"),
            (json!({ "to": "192.0.2.0/24" }), "a network is called `prefix`"),
            (json!({ "to": ["192.0.2.7"] }), "is called `destination`"),
            (json!({ "address": "192.0.2.7" }), "`destination`"),
            (json!({ "at": "yesterday" }), "RFC 3339 stands under"),
            (json!({ "made_at": 7 }), "no number"),
            (json!({ "since": true }), "a time is a string"),
            (json!({ "ends": "2027-01-15T08:00:00Z" }), "RFC 3339 stands under"),
            (json!({ "refused_by_reason": { "stale": "3" } }), "among counts"),
            (json!({ "one": { "reason": "a" }, "two": { "reason": { "mode": "b" } } }), "`reason` has two types"),
            (json!({ "one": { "rules": ["a"] }, "two": { "rules": [{ "mode": "b" }] } }), "`rules` has two types"),
        ] {
            let faults = faults(Origin::Other, std::slice::from_ref(&document));
            assert!(faults.iter().any(|fault| fault.contains(expected)), "{document}: {faults:?}");
        }
    }

    #[test]
    fn a_plural_is_a_list_or_a_count_and_what_has_no_value_is_reported() {
        let document = json!({ "total": 3, "networks": 3, "one": { "networks": [{ "prefix": null }] } });
        let mut dialect = Dialect::default();
        dialect.walk(Origin::Other, "one", &document);
        assert_eq!(dialect.faults(), Vec::<String>::new());
        assert_eq!(dialect.empty().keys().collect::<Vec<_>>(), ["prefix"]);
        dialect.walk(Origin::Other, "two", &json!({ "networks": "many" }));
        assert_eq!(dialect.faults().len(), 1);
    }
}
