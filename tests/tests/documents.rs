//! The documents name only what is there: files they link to, paths of this repository, targets of the Makefile, and ways
//! to build or run it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn links_lead_somewhere() {
    let mut checked = 0;
    for document in documents() {
        let folder = document.path.parent().expect("a folder");
        let links = document.text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.is_empty() && !link.contains("://")) {
            let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
            let target = if file.is_empty() { document.path.clone() } else { folder.join(file) };
            assert!(target.exists(), "{} links to {link}", document.path.display());
            if let Some(anchor) = anchor.filter(|_| target.extension().is_some_and(|extension| extension == "md")) {
                let text = fs::read_to_string(&target).expect("a document");
                let there = anchors(&text).any(|heading| heading == anchor);
                assert!(there, "{} links to {link}, and there is no such heading", document.path.display());
            }
            checked += 1;
        }
    }
    assert!(checked > 100, "only {checked} links found");
}

/// The anchors of a document's headings, as GitHub and its like make them.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let mut fenced = false;
    text.lines().filter_map(move |line| {
        fenced ^= line.starts_with("```");
        let heading = line.strip_prefix('#').filter(|_| !fenced)?.trim_start_matches('#').strip_prefix(' ')?;
        let kept = heading.to_lowercase();
        Some(kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_')).collect::<String>())
            .map(|kept| kept.replace(' ', "-"))
    })
}

/// A source that cites what is not in the repository sends its reader nowhere.
#[test]
fn nothing_cites_a_page_that_is_not_here() {
    // In two parts, so that this list does not find itself.
    let banned = [
        ("first", " design"),
        ("evaluation", " finding"),
        ("theory", ".md"),
        ("(definitions", ","),
        ("the definitions", " name"),
        ("kernel", ".md"),
        ("peers", ".md"),
    ]
    .map(|(one, other)| format!("{one}{other}"));
    let code = sources(workspace()).to_lowercase();
    for phrase in &banned {
        if let Some(at) = code.find(phrase.as_str()) {
            let line = code[..at].rfind('\n').map_or(0, |start| start + 1);
            panic!("a source cites \"{phrase}\": {}", code[line..].lines().next().unwrap_or_default());
        }
    }
    for document in documents() {
        let text = document.text.to_lowercase();
        for phrase in &banned {
            assert!(!text.contains(phrase.as_str()), "{} cites \"{phrase}\"", document.path.display());
        }
    }
}

/// A page that the index does not name is found by nobody.
#[test]
fn the_index_names_every_page() {
    let docs = workspace().join("docs");
    let index = fs::read_to_string(docs.join("README.md")).expect("the index");
    for path in files_below(&docs) {
        let name = path.strip_prefix(&docs).expect("a page of this folder").to_str().expect("a name in UTF-8");
        let is_page = path.extension().is_some_and(|extension| extension == "md" || extension == "toml");
        let is_named = name == "README.md" || index.contains(&format!("]({name})"));
        assert!(!is_page || is_named, "docs/README.md lacks {name}");
    }
    let readme = fs::read_to_string(workspace().join("README.md")).expect("the README");
    assert!(readme.contains("(docs/README.md)"), "README does not lead to the index");
}

#[test]
fn paths_of_this_repository_exist() {
    let roots = ["gateway/", "agent/", "proto/", "confine/", "tests/", "docs/", "scripts/", "packaging/"];
    let mut checked = 0;
    for document in documents() {
        for code in document.text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)) {
            let is_path = roots.iter().any(|root| code.starts_with(root)) && !code.contains([' ', '*', '<', '{']);
            if is_path {
                assert!(workspace().join(code).exists(), "{} names `{code}`", document.path.display());
                checked += 1;
            }
        }
    }
    assert!(checked > 30, "only {checked} paths found");
}

#[test]
fn commands_are_those_of_the_makefile() {
    let makefile = fs::read_to_string(workspace().join("Makefile")).expect("the Makefile");
    let mut checked = 0;
    for document in documents() {
        // Commands stand in code: between backquotes, or indented.
        let inline = document.text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        let blocks = document.text.lines().filter_map(|line| line.strip_prefix("    "));
        for target in inline.chain(blocks).filter_map(|code| code.strip_prefix("make ")) {
            let target = target.split_whitespace().next().unwrap_or_default();
            let there = makefile.lines().any(|line| line.starts_with(&format!("{target}:")));
            assert!(there, "{} names `make {target}`", document.path.display());
            checked += 1;
        }
    }
    assert!(checked >= 5, "only {checked} commands found");
}

#[test]
fn tests_that_the_threat_model_and_the_decisions_name_are_there() {
    let code = sources(workspace());
    let mut checked = 0;
    for document in documents() {
        let decides = document.path.parent().is_some_and(|folder| folder.ends_with("decisions"));
        if !decides && !document.path.ends_with("docs/explain/threat-model.md") {
            continue;
        }
        for name in document.text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)) {
            // Names of tests are sentences; the kernel's functions and our metrics are no tests.
            if name.matches('_').count() < 3
                || ["tcp_", "spand_"].iter().any(|prefix| name.starts_with(prefix))
                || !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            {
                continue;
            }
            let there = code.contains(&format!("fn {name}("));
            assert!(there, "{} names the test {name}, which is not there", document.path.display());
            checked += 1;
        }
    }
    assert!(checked > 60, "only {checked} names found");
}

/// A requirement that is met, or met in part, has a test by its whole name.
#[test]
fn every_requirement_of_rfc_9959_names_tests_that_are_there() {
    let code = sources(workspace());
    let page = fs::read_to_string(workspace().join("docs/explain/rfc9959.md")).expect("the page");
    let rows = page.lines().skip_while(|line| !line.starts_with("| section ")).skip(2);
    let mut checked = 0;
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [_, _, _, here, tests] = cells[..] else { panic!("a row has five cells: {row}") };
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty() || here.starts_with("not applicable"), "no test is named: {row}");
        for name in names {
            assert!(code.contains(&format!("fn {name}(")), "{name} is not there: {row}");
            checked += 1;
        }
    }
    assert!(checked > 40, "only {checked} names found");
}

/// All of the workspace's source.
fn sources(workspace: &Path) -> String {
    let mut text = String::new();
    let folders = ["gateway", "agent", "proto", "confine", "tests"].map(|folder| workspace.join(folder));
    for path in folders.iter().flat_map(|folder| files_below(folder)) {
        if path.extension().is_some_and(|extension| extension == "rs") {
            text += &fs::read_to_string(path).expect("a source");
        } else if path.extension().is_some_and(|extension| extension == "script") {
            // A part of a script is a test by the name of its heading.
            let script = fs::read_to_string(path).expect("a script");
            for heading in script.lines().filter_map(|line| line.strip_prefix("== ")) {
                text += "fn ";
                text += &heading.trim().replace(' ', "_").to_lowercase();
                text += "(";
            }
        }
    }
    text
}

/// Results and decisions are read where they are short; git has what was before, and says which commit did it.
#[test]
fn results_and_decisions_stay_short_and_name_no_commit() {
    let mut words = 0;
    for document in documents() {
        let place = document.path.display();
        // The page on the accuracy campaign is a method, not a result.
        let is_method = document.path.ends_with("lab-accuracy.md");
        let folder = document.path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        let folder = folder.filter(|_| !is_method);
        if matches!(folder, Some("results" | "decisions")) {
            words += document.text.split_whitespace().count();
        }
        let lines = document.text.lines().count();
        assert!(folder != Some("results") || lines <= 60, "{place} has {lines} lines, 60 at most");
        let is_commit = |word: &&str| {
            (7..=40).contains(&word.len())
                && word.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
                && word.contains(|c: char| c.is_ascii_digit())
                && word.contains(|c: char| c.is_ascii_lowercase())
        };
        let commit = document.text.split(|c: char| !c.is_alphanumeric()).find(is_commit);
        assert!(commit.is_none(), "{place} names a commit: {}", commit.unwrap_or_default());
    }
    assert!((1_000..=14_500).contains(&words), "{words} words of results and decisions, 14,500 at most");
}

/// The README repeats rounded figures of other pages. This test computes each of them from its page.
#[test]
fn figures_that_the_readme_repeats_are_those_of_the_results() {
    let page = |path: &str| fs::read_to_string(workspace().join(path)).expect("a page");
    let readme = page("README.md");
    let rows = |text: &str| -> Vec<Vec<String>> {
        let rows = text.lines().filter(|line| line.starts_with('|'));
        rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
    };
    let mut checked = 0;
    let benefit = page("docs/results/benefit.md");
    for row in rows(&benefit).iter().filter(|row| row.len() == 8 && row[1] == "55") {
        let whose = row[0].strip_prefix("a fixed ").map_or(row[0].clone(), |n| format!("a window of {n} everywhere"));
        let here = rows(&readme).into_iter().find(|row| row[0] == whose).unwrap_or_else(|| panic!("no row of {whose}"));
        for (from, to) in [(3, 1), (4, 2), (5, 3), (6, 4), (2, 5)] {
            let ratio = row[from].split(' ').next().expect("a ratio").parse::<f64>().expect("a number");
            let percent = (ratio - 1.0) * 100.0;
            let shown = here[to].strip_suffix(" %").and_then(|shown| shown.parse::<f64>().ok()).expect("percent");
            // The ratio is rounded as well.
            assert!((shown - percent).abs() <= 0.55, "{whose}: {} for {ratio}", here[to]);
            checked += 1;
        }
        assert_eq!(here[7], row[7], "{whose}");
    }
    assert_eq!(checked, 6 * 5, "figures of the table found");

    let crowds = rows(&page("docs/results/starts.md"));
    let of = |path: &str| -> (String, Vec<i32>) {
        let at = crowds.iter().position(|row| row[0].starts_with(path)).unwrap_or_else(|| panic!("no row of {path}"));
        let load = crowds[at][0].split(", ").last().and_then(|load| load.split(':').next()).expect("a load").to_owned();
        let changes = crowds[at + 1][1..5].iter().map(|cell| cell.split(' ').next().expect("a change"));
        (load, changes.map(|change| change.parse().expect("a number")).collect())
    };
    let ((load, narrow), (other_load, wide)) = (of("10 Mbit/s"), of("20 Mbit/s"));
    let [least, most] = [wide.iter().max(), wide.iter().min()].map(|change| -change.expect("four sizes"));
    let sentence = format!(
        "on 10 Mbit/s at {load} load 100 KB took {} % less time than CUBIC's, 1 MB {} % more; on 20 Mbit/s at {other_load} all sizes \
         {least} to {most} % less",
        -narrow[2], narrow[3]
    );
    assert!(readme.contains(&sentence), "README does not have: {sentence}");
    let harm = format!("on 10 Mbit/s 1 MB took {} % longer", narrow[3]);
    assert!(page("docs/results/harm.md").contains(&harm), "harm.md does not have: {harm}");
}

/// A large file stays in every clone for ever. Only recorded inputs of tests may be large.
#[test]
fn no_tracked_file_outside_the_recorded_inputs_is_larger_than_a_megabyte() {
    if !workspace().join(".git").exists() {
        eprintln!("skipped: this is an archive of the sources");
        return;
    }
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(workspace()).output().expect("git");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).expect("names in UTF-8");
    let mut checked = 0;
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        // A file that is deleted and not yet committed is on the list.
        let Ok(file) = fs::symlink_metadata(workspace().join(name)) else { continue };
        let recorded = ["tests/cases/", "tests/fixtures/"].iter().any(|folder| name.starts_with(folder));
        assert!(recorded || file.len() <= 1_000_000, "{name} has {} bytes, 1,000,000 at most", file.len());
        checked += 1;
    }
    assert!(checked > 500, "only {checked} files found");
}

#[test]
fn no_container_is_promised_before_there_is_one() {
    let there = workspace().join("Dockerfile").exists();
    for document in documents() {
        let words = document.text.to_lowercase();
        let promised = ["dockerfile", "docker run", "docker build"].iter().any(|word| words.contains(word));
        assert!(there || !promised, "{} names a container image", document.path.display());
    }
}

/// A block of TOML on a page is a configuration of the program that its first line names, else of either.
#[test]
fn configurations_on_pages_are_taken() {
    let gateway = |text: &str| spand_gateway::config::Config::parse(text, Path::new("/etc/spand/gateway.toml"));
    let agent = |text: &str| spand_agent::config::Config::parse(text, Path::new("/etc/spand/agent.toml"));
    let mut checked = 0;
    for document in documents() {
        let place = document.path.display();
        let blocks = document.text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        for block in blocks {
            let (gateway, agent) = (gateway(block).map(drop), agent(block).map(drop));
            let taken = match block.lines().next() {
                Some("# /etc/spand/gateway.toml") => gateway,
                Some("# /etc/spand/agent.toml") => agent,
                _ => gateway.or(agent),
            };
            taken.unwrap_or_else(|why| panic!("{place}: {why}\n{block}"));
            checked += 1;
        }
    }
    assert!(checked >= 9, "only {checked} configurations found");
}

struct Document {
    path: PathBuf,
    text: String,
}

/// Every document at the root and below `docs`.
fn documents() -> Vec<Document> {
    let mut documents = Vec::new();
    let root = fs::read_dir(workspace()).expect("the workspace").map(|entry| entry.expect("an entry of it").path());
    for path in root.chain(files_below(&workspace().join("docs"))) {
        if path.extension().is_some_and(|extension| extension == "md") {
            let text = fs::read_to_string(&path).expect("a document");
            documents.push(Document { path, text });
        }
    }
    assert!(documents.len() > 10, "only {} documents found", documents.len());
    documents
}

/// Every file in a folder and in those below it.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).expect("a folder of this workspace") {
            let path = entry.expect("an entry of it").path();
            if path.is_dir() {
                open.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests crate lies in the workspace")
}
