//! What is looked up in the results of a row, and what it must be.

use std::ops::RangeInclusive;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::query::{Filling, Lists, band, render, value};
use super::row::{Finding, Judged, Outcomes, Standing};
use crate::campaign::page;
use crate::campaign::statistics::Mean;

/// Lines of a row's table. Texts are templates, `found` with queries.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Find {
    /// A line for each combination of these lists' entries.
    #[serde(default)]
    each: Vec<String>,
    /// What is found is found for each entry of this one, with `join` or a comma between.
    over: Option<String>,
    join: Option<String>,
    what: String,
    #[serde(default)]
    expected: String,
    /// Where the first query's value must lie; without it or one of the next two the line has no target.
    within: Option<[String; 2]>,
    /// As far from what is expected at most.
    near: Option<f64>,
    /// All values are those of one of these.
    either: Option<Vec<Vec<f64>>>,
    /// What of several values must lie there.
    rule: Option<Rule>,
    /// The query that is held against the band in place of the first one.
    test: Option<String>,
    found: String,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Rule {
    /// More than half of them.
    Most,
    /// One or more.
    Any,
    /// Nothing must: how many do is what is found.
    Count,
    /// Their mean, which is what is found.
    Mean,
    /// Their sum, likewise.
    Sum,
}

impl Find {
    /// Adds its lines.
    pub(super) fn judge(&self, judged: &mut Judged, outcomes: &Outcomes, lists: &Lists) -> Result<()> {
        for filling in Filling::each(lists, &self.each)? {
            let (what, expected) = (filling.text(&self.what)?, filling.text(&self.expected)?);
            let found = self.found(outcomes, lists, &filling, &expected).with_context(|| what.clone())?;
            let (found, standing) = found.unzip();
            judged.0.push(Finding { what, expected, found, standing: standing.flatten() });
        }
        Ok(())
    }

    fn found(
        &self,
        outcomes: &Outcomes,
        lists: &Lists,
        filling: &Filling,
        expected: &str,
    ) -> Result<Option<(String, Option<Standing>)>> {
        let inner = match &self.over {
            Some(list) => filling.over(lists, list, list)?,
            None => vec![filling.clone()],
        };
        let mut rendered = Vec::new();
        for one in &inner {
            rendered.extend(render(outcomes, &one.text(&self.found)?)?);
        }
        let (texts, values): (Vec<String>, Vec<Vec<Mean>>) = rendered.into_iter().unzip();
        if texts.len() < inner.len() {
            return Ok(None);
        }
        let (text, values) = (texts.join(self.join.as_deref().unwrap_or(", ")), values.concat());
        let plain: Vec<f64> = values.iter().map(|mean| mean.value).collect();
        let sum = plain.iter().sum::<f64>();
        let Some(band) = self.band(filling, expected)? else {
            let is_row = |row: &Vec<f64>| row.iter().zip(&plain).all(|(one, found)| (one - found).abs() < 1.5e-6);
            return Ok(Some((text, self.either.as_ref().map(|rows| rows.iter().any(is_row).into()))));
        };
        let is_within = |value: &f64| band.contains(value);
        Ok(Some(match self.rule {
            Some(Rule::Most) => {
                let standings: Vec<Standing> = values.iter().map(|mean| Standing::of(mean, &band)).collect();
                (text, Some(Standing::of_most(&standings)))
            }
            Some(Rule::Any) => (text, Some(plain.iter().any(is_within).into())),
            Some(Rule::Count) => (plain.iter().copied().filter(is_within).count().to_string(), None),
            Some(Rule::Mean) => {
                let mean = sum / plain.len().max(1) as f64;
                (page::percent(mean), Some(is_within(&mean).into()))
            }
            Some(Rule::Sum) => (format!("{sum:.0}"), Some(is_within(&sum).into())),
            None => {
                let tested = match &self.test {
                    Some(query) => value(outcomes, &filling.text(query)?)?,
                    None => values.first().copied(),
                };
                (text, tested.map(|mean| Standing::of(&mean, &band)))
            }
        }))
    }

    fn band(&self, filling: &Filling, expected: &str) -> Result<Option<RangeInclusive<f64>>> {
        if let Some(near) = self.near {
            let expected: f64 = expected.parse()?;
            return Ok(Some(expected - near - 1e-9..=expected + near + 1e-9));
        }
        let Some([least, most]) = &self.within else { return Ok(None) };
        band(&[filling.text(least)?, filling.text(most)?]).map(Some)
    }
}
