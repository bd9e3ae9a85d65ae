//! The rows.

mod barakat;
mod btcp_mice;
mod btcp_more;
mod btcp_single;
mod kernel;
mod spand;
mod startup;
mod yu;

use super::row::Row;

/// All of them, in the page's order.
pub fn all() -> Vec<Row> {
    let mut rows = vec![
        btcp_single::alone(),
        btcp_single::satellite(),
        btcp_mice::shared(),
        btcp_mice::medians(),
        yu::long_lives(),
        yu::access_delays(),
        yu::short_lives(),
        yu::other_thresholds(),
        startup::satellite(),
        startup::wide_area(),
        startup::paced(),
        startup::timers(),
        barakat::overflow(),
        barakat::byte_counting(),
        btcp_more::other_paths(),
        btcp_more::after_the_mice(),
        spand::one_bottleneck(),
        spand::five_bottlenecks(),
        spand::crowded_bottlenecks(),
    ];
    rows.extend(kernel::all());
    rows
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::papers::row::Way;

    #[test]
    fn rows_and_settings_have_names_of_their_own_and_a_script() {
        let rows = all();
        let ids: BTreeSet<&str> = rows.iter().map(|row| row.id).collect();
        assert_eq!(ids.len(), rows.len());
        for row in &rows {
            let names: BTreeSet<&str> = row.settings.iter().map(|setting| setting.name.as_str()).collect();
            assert_eq!(names.len(), row.settings.len(), "{}", row.id);
            assert!(names.iter().all(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')), "{names:?}");
            if let Way::Simulated { script, .. } = row.way {
                assert!(crate::papers::ns::scripts().join(script).is_file(), "{script}");
            }
            assert!((1..=row.seeds).contains(&row.quick_seeds), "{}", row.id);
        }
    }
}
