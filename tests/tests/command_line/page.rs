//! docs/reference/cli.md names every command, option, default and exit code of both programs, and none that is not there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, process};

use anyhow::{Context as _, Result, ensure};
use clap::{Arg, Command, CommandFactory};
use spand_proto::operator::{ENVIRONMENT, FINDINGS, USAGE};
use spand_tests::product::standing_in::link_programs;

/// A row's first cell, and its second.
type Rows = BTreeSet<(String, String)>;

pub(super) fn the_page_has_every_command_option_and_default() {
    let page = page();
    let mut documented: BTreeMap<String, Rows> = page
        .iter()
        .filter(|(name, _)| name.starts_with("spand-"))
        .map(|(name, rows)| (name.clone(), first(rows)))
        .collect();
    for program in [spand_gateway::cli::Cli::command(), spand_agent::cli::Cli::command()] {
        let name = program.get_name().to_owned();
        let own = documented.remove(&name).unwrap_or_default();
        assert_eq!(own, options(&program), "options of {name} itself");
        for (name, command) in commands(&program) {
            let rows = documented.remove(&name).unwrap_or_else(|| panic!("docs/reference/cli.md lacks `{name}`"));
            assert_eq!(rows, options(command), "options of {name}, documented and real");
        }
    }
    assert!(documented.is_empty(), "docs/reference/cli.md names what is not there: {:?}", documented.keys());
}

pub(super) fn a_value_from_a_list_stands_on_the_page_with_all_others() {
    let page = page();
    let mut checked = 0;
    for program in [spand_gateway::cli::Cli::command(), spand_agent::cli::Cli::command()] {
        for (name, command) in commands(&program) {
            for option in command.get_arguments().filter(|option| option.get_action().takes_values()) {
                let rows = page.get(&name);
                let row =
                    rows.iter().flat_map(|rows| rows.iter()).find(|row| row[0] == format!("`{}`", written(option)));
                for value in option.get_possible_values() {
                    let value = format!("`{}`", value.get_name());
                    assert!(row.is_some_and(|row| row[2].contains(&value)), "{}: {value}", written(option));
                    checked += 1;
                }
            }
        }
    }
    assert!(checked >= 3, "only {checked} values found");
}

pub(super) fn the_page_has_every_exit_code() {
    let codes: Vec<String> = page()["Exit codes"].iter().map(|row| row[0].clone()).collect();
    assert_eq!(codes, [0, ENVIRONMENT, FINDINGS, USAGE].map(|code| format!("`{code}`")));
}

/// A command on a page about captures of this repository is followed by what it prints.
pub(super) fn what_pages_show_is_what_is_printed() -> Result<()> {
    let folder = tempfile::tempdir()?;
    link_programs(folder.path())?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(root.join("docs/getting-started/replay.md"))?;
    let mut checked = 0;
    for shown in page.split("\n    $ ").skip(1) {
        let (line, output) = shown.split_once('\n').context("a command has an output")?;
        let block = output.lines().take_while(|line| line.starts_with("    ") || line.is_empty());
        let shown = block.map(|line| line.strip_prefix("    ").unwrap_or(line)).collect::<Vec<_>>().join("\n");
        let mut words = line.split_whitespace();
        let program = folder.path().join(words.next().context("a program")?);
        let output = process::Command::new(program).args(words).current_dir(&root).env("COLUMNS", "110").output()?;
        let printed = String::from_utf8(output.stdout)?;
        let printed = printed.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        ensure!(output.status.success() && printed.trim_end() == shown.trim_end(), "{line} prints:\n{printed}");
        checked += 1;
    }
    ensure!(checked >= 2, "only {checked} commands found");
    Ok(())
}

/// Sections by title, each with the cells of its table's rows.
fn page() -> BTreeMap<String, Vec<[String; 3]>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/cli.md");
    let text = fs::read_to_string(path).expect("the page");
    let mut sections: BTreeMap<String, Vec<[String; 3]>> = BTreeMap::new();
    let mut title = String::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("##") {
            heading.trim_start_matches('#').trim().trim_matches('`').clone_into(&mut title);
            assert!(sections.insert(title.clone(), Vec::new()).is_none(), "two sections are called {title}");
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let ["", first, second, third, ""] = cells.as_slice()
            && first.starts_with('`')
        {
            sections.entry(title.clone()).or_default().push([*first, *second, *third].map(str::to_owned));
        }
    }
    sections
}

fn first(rows: &[[String; 3]]) -> Rows {
    rows.iter().map(|[option, default, _]| (option.clone(), default.clone())).collect()
}

/// Every command that is run by its name, with those above it: `spand-gateway cert init`.
fn commands(program: &Command) -> Vec<(String, &Command)> {
    let mut open = vec![(program.get_name().to_owned(), program)];
    let mut all = Vec::new();
    while let Some((name, command)) = open.pop() {
        if command.has_subcommands() {
            let own = command.get_subcommands().filter(|command| !command.is_hide_set());
            open.extend(own.map(|own| (format!("{name} {}", own.get_name()), own)));
        } else {
            all.push((name, command));
        }
    }
    all
}

/// What a command takes itself.
fn options(command: &Command) -> Rows {
    let own = command.get_arguments().filter(|option| !option.is_hide_set());
    let own = own.filter(|option| !["help", "version"].contains(&option.get_id().as_str()));
    let default = |option: &Arg| {
        let values = option.get_default_values().iter();
        let values: Vec<String> = values.map(|value| format!("`{}`", value.to_string_lossy())).collect();
        // clap gives a flag the default `false`.
        if option.get_action().takes_values() { values.join(", ") } else { String::new() }
    };
    own.map(|option| (format!("`{}`", written(option)), default(option))).collect()
}

/// An option as one would write it: `--config FILE`, `--json`, `FILE`.
fn written(option: &Arg) -> String {
    let takes = option.get_action().takes_values();
    let value = option.get_value_names().filter(|_| takes).unwrap_or_default();
    let value: Vec<&str> = value.iter().map(clap::builder::Str::as_str).collect();
    let name = option.get_long().map(|long| format!("--{long}"));
    name.into_iter().chain(value.into_iter().map(str::to_owned)).collect::<Vec<_>>().join(" ")
}
