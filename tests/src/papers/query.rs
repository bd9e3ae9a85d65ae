//! Queries of results in texts (`rows.toml`), and the lists that fill texts in.
//!
//! A query is `SETTING:FIGURE`, the mean over seeds (with `@SEED` of one), or two of these: `A % B` by which part A is larger than B
//! and `A / B` how many times, seed by seed; `A over B` and `A - B` of the means. B may be a number. `*N` multiplies.
//! Between brackets it ends with how it is written: `.2` or `+.2` digits, `percent` and `times` with their intervals, `part` and
//! `whole` percents without, `drop` and `below` in words; and `or WORD` where it may be missing.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use super::row::{Outcomes, percent, times};
use crate::campaign::page;
use crate::campaign::statistics::Mean;

/// Lists by name; an entry has one field or several.
pub(super) type Lists = BTreeMap<String, Vec<Entry>>;

/// An entry of a list.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Entry {
    Fields(Vec<toml::Value>),
    One(toml::Value),
}

impl Entry {
    fn fields(&self) -> Vec<String> {
        let text = |value: &toml::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match self {
            Self::Fields(fields) => fields.iter().map(text).collect(),
            Self::One(field) => vec![text(field)],
        }
    }
}

/// What stands for the names between braces.
#[derive(Clone, Debug, Default)]
pub(super) struct Filling(Vec<(String, Vec<String>)>);

impl Filling {
    /// One for each combination of the entries of these lists.
    pub(super) fn each(lists: &Lists, names: &[String]) -> Result<Vec<Self>> {
        names.iter().try_fold(vec![Self::default()], |all, name| {
            all.iter().map(|one| one.over(lists, name, name)).collect::<Result<Vec<_>>>().map(|all| all.concat())
        })
    }

    /// This one with each entry of another list, under the name `variable`.
    pub(super) fn over(&self, lists: &Lists, name: &str, variable: &str) -> Result<Vec<Self>> {
        let list = lists.get(name).with_context(|| format!("there is no list {name}"))?;
        let with = |entry: &Entry| Self([&self.0[..], &[(variable.to_owned(), entry.fields())]].concat());
        Ok(list.iter().map(with).collect())
    }

    /// The text with what its names stand for.
    pub(super) fn text(&self, template: &str) -> Result<String> {
        let mut parts = template.split('{');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (name, rest) = part.split_once('}').with_context(|| format!("an open brace in {template}"))?;
            let (list, place) = match name.split_once('.') {
                Some((list, place)) => (list, place.parse()?),
                None => (name, 0),
            };
            let found = match name.parse::<usize>() {
                Ok(place) => self.0.first().and_then(|(_, fields)| fields.get(place)),
                Err(_) => self.0.iter().find(|(other, _)| other == list).and_then(|(_, fields)| fields.get(place)),
            };
            text = text + found.with_context(|| format!("{{{name}}} stands for nothing in {template}"))? + rest;
        }
        Ok(text)
    }

    /// The first field of what `variable` stands for.
    pub(super) fn number(&self, variable: &str) -> Result<f64> {
        Ok(self.text(&format!("{{{variable}}}"))?.parse()?)
    }
}

/// A query without how it is written; and that.
struct Query<'a> {
    of: &'a str,
    to: Option<(&'a str, &'a str)>,
    factor: f64,
    written: Vec<&'a str>,
}

impl<'a> Query<'a> {
    fn parse(text: &'a str) -> Result<Self> {
        let mut words = text.split_whitespace().peekable();
        let of = words.next().context("an empty query")?;
        let operator = words.next_if(|word| ["%", "/", "-", "over"].contains(word));
        let to =
            operator.map(|operator| words.next().map(|to| (operator, to)).context("a query of one")).transpose()?;
        let factor = words.next_if(|word| word.starts_with('*')).map_or(Ok(1.0), |word| word[1..].parse())?;
        Ok(Self { of, to, factor, written: words.collect() })
    }

    fn mean(outcomes: &Outcomes, of: &str) -> Result<Option<Mean>> {
        if let Ok(value) = of.parse() {
            return Ok(Some(Mean { value, half_width: None, count: 1 }));
        }
        let (setting, figure) = split(of)?;
        Ok(match figure.split_once('@') {
            Some((figure, seed)) => {
                outcomes.by_seed(setting, figure).get(&seed.parse()?).and_then(|value| Mean::of(&[*value]))
            }
            None => outcomes.mean(setting, figure),
        })
    }

    fn value(&self, outcomes: &Outcomes) -> Result<Option<Mean>> {
        let own = Self::mean(outcomes, self.of)?;
        let found = match self.to {
            None => own,
            Some((operator @ ("%" | "/"), to)) if to.parse::<f64>().is_err() => {
                let change = outcomes.change(split(self.of)?, split(to)?);
                change.map(|mean| if operator == "/" { Mean { value: 1.0 + mean.value, ..mean } } else { mean })
            }
            Some((operator, to)) => own.zip(Self::mean(outcomes, to)?).map(|(own, to)| {
                let value = match operator {
                    "-" => own.value - to.value,
                    "%" => own.value / to.value - 1.0,
                    _ => own.value / to.value,
                };
                Mean { value, half_width: None, ..own }
            }),
        };
        Ok(found.map(|mean| Mean { value: mean.value * self.factor, ..mean }))
    }
}

fn split(of: &str) -> Result<(&str, &str)> {
    of.split_once(':').with_context(|| format!("`{of}` is no setting and figure"))
}

/// What a query comes to.
pub(super) fn value(outcomes: &Outcomes, query: &str) -> Result<Option<Mean>> {
    Query::parse(query)?.value(outcomes)
}

fn write(mean: &Mean, how: &str) -> Result<String> {
    let value = mean.value;
    Ok(match how {
        "percent" => percent(mean),
        "times" => times(mean),
        "part" => page::percent(value),
        "whole" => format!("{:+.0} %", value * 100.0),
        "drop" => (if value > 0.0 { "a drop" } else { "none" }).to_owned(),
        "below" if value < 0.0 && mean.is_off_zero() => percent(mean),
        "below" => format!("{}, not off zero", percent(mean)),
        digits => match (digits.strip_prefix("+."), digits.strip_prefix('.')) {
            (Some(digits), _) => format!("{value:+.*}", digits.parse()?),
            (_, Some(digits)) => format!("{value:.*}", digits.parse()?),
            _ => bail!("nothing is written as `{how}`"),
        },
    })
}

/// A text with what its queries come to, and their values; `None` where one is missing.
pub(super) fn render(outcomes: &Outcomes, template: &str) -> Result<Option<(String, Vec<Mean>)>> {
    let mut parts = template.split('[');
    let mut text = parts.next().unwrap_or_default().to_owned();
    let (mut values, mut is_whole) = (Vec::new(), true);
    for part in parts {
        let (query, rest) = part.split_once(']').with_context(|| format!("an open bracket in {template}"))?;
        let query = Query::parse(query)?;
        let (how, missing) = match query.written.as_slice() {
            [how] => (how, None),
            [how, "or", word] => (how, Some(word)),
            other => bail!("`{}` in {template} does not say how it is written", other.join(" ")),
        };
        match (query.value(outcomes)?, missing) {
            (Some(mean), _) => {
                text += &write(&mean, how)?;
                values.push(mean);
            }
            (None, Some(word)) => text += word,
            (None, None) => is_whole = false,
        }
        text += rest;
    }
    Ok(is_whole.then_some((text, values)))
}

/// The numbers of a band.
pub(super) fn band([least, most]: &[String; 2]) -> Result<std::ops::RangeInclusive<f64>> {
    let (least, most): (f64, f64) = (least.parse()?, most.parse()?);
    ensure!(least <= most, "{least} to {most} is no band");
    Ok(least..=most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_filled_in_and_its_queries_are_answered() {
        let mut outcomes = Outcomes::default();
        for (setting, seed, value) in [("a-1", 1, 3.0), ("a-1", 2, 5.0), ("b", 1, 2.0), ("b", 2, 2.0)] {
            let figures = [("t".to_owned(), value)].into();
            outcomes.0.entry(setting.to_owned()).or_default().insert(seed, figures);
        }
        let lists: Lists = toml::from_str("n = [1]\nkind = [[\"t\", \"x\"]]").unwrap();
        let fillings = Filling::each(&lists, &["n".to_owned(), "kind".to_owned()]).unwrap();
        let text = |template: &str| {
            let filled = fillings[0].text(template).unwrap();
            render(&outcomes, &filled).unwrap().map(|(text, _)| text)
        };
        let found = text(
            "{kind.1}: [a-{0}:{kind} .1], [a-1:t@2 *10 .0], [a-1:t over b:t .2], [a-1:t - b:t +.1], [a-1:t % 5 whole]",
        );
        assert_eq!(found.unwrap(), "x: 4.0, 50, 2.00, +2.0, -20 %");
        assert!(text("[a-1:t % b:t percent]").unwrap().starts_with("+100.0 ±"));
        assert!(text("[a-1:t / b:t times]").unwrap().starts_with("2.00 ±"));
        assert_eq!(text("[c:t .1]"), None);
        assert_eq!(text("[c:t .1 or -]").unwrap(), "-");
        assert!(render(&outcomes, "[a-1:t]").is_err() && render(&outcomes, "[a-1 .1]").is_err());
        assert!(fillings[0].text("{other}").is_err());
    }
}
