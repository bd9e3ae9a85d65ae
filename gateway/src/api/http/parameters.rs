//! Parameters of a query string: every name known, each at most once, every value checked.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use axum::extract::Query;
use axum::http::Uri;

use super::problem::{Problem, quote};

/// The parameters of a request.
#[derive(Debug)]
pub(super) struct Parameters {
    given: Vec<(String, String)>,
}

impl Parameters {
    /// Reads the query string; a name that is not `known`, or comes twice, is refused.
    pub(super) fn parse(uri: &Uri, known: &[&str]) -> Result<Self, Problem> {
        let Query(given) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|_| Problem::bad_request("the part after `?` cannot be read: write name=value&name=value"))?;
        for (place, (name, _)) in given.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let known = if known.is_empty() { "none here".to_owned() } else { known.join(", ") };
                return Err(Problem::bad_request(format!("there is no parameter `{}`: there is {known}", quote(name))));
            }
            if given.iter().take(place).any(|(earlier, _)| earlier == name) {
                return Err(Problem::bad_request(format!("`{name}` is given twice: give it once")));
            }
        }
        Ok(Self { given })
    }

    /// The text of a parameter.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.given.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// A parameter whose type says itself what is wrong with a text.
    pub(super) fn value<T: FromStr>(&self, name: &str) -> Result<Option<T>, Problem>
    where
        T::Err: Display,
    {
        let Some(text) = self.text(name) else { return Ok(None) };
        let value = quote(text).parse().map_err(|error| Problem::bad_request(format!("{name}: {error}")));
        value.map(Some)
    }

    /// A number within `range`.
    pub(super) fn number<T>(&self, name: &str, range: &RangeInclusive<T>) -> Result<Option<T>, Problem>
    where
        T: Display + FromStr + PartialOrd,
    {
        let Some(text) = self.text(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            Problem::bad_request(format!("{name} is `{}`: give a number from {least} to {most}", quote(text)))
        });
        number.map(Some)
    }

    /// One of the words of a list.
    pub(super) fn word<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Result<Option<T>, Problem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        found.map(Some).ok_or_else(|| {
            let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            Problem::bad_request(format!("{name} is `{}`: give one of {}", quote(text), words.join(", ")))
        })
    }
}
