//! Configurations of both programs and prefix lists, of any text and of any options: refused in one line, or in force and the
//! same when printed and read again.

#![no_main]

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use libfuzzer_sys::fuzz_target;
use spand_core::engine::Engine;
use spand_fuzz::{Options, Scratch};
use spand_gateway::config::{EngineOptions, MAX_PREFIXES, PrefixListError, load_prefix_list};
use spand_proto::operator::{ConfigError, Failure};

struct Files {
    config: Scratch,
    prefixes: Scratch,
    gateway: Options,
    agent: Options,
}

thread_local!(static FILES: RefCell<Files> = RefCell::new(Files {
    config: Scratch::new(),
    prefixes: Scratch::new(),
    gateway: Options::of(include_str!("../../docs/reference/gateway.example.toml")),
    agent: Options::of(include_str!("../../docs/reference/agent.example.toml")),
}));

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = data.split_first() else { return };
    FILES.with_borrow_mut(|files| match kind % 6 {
        0 => gateway(&files.config.holding(bytes), files),
        1 => agent(&files.config.holding(bytes)),
        2 => prefixes(&files.prefixes.holding(bytes)),
        3 => {
            let text = files.gateway.text(bytes);
            gateway(&files.config.holding(text.as_bytes()), files);
        }
        4 => {
            let text = files.agent.text(bytes);
            agent(&files.config.holding(text.as_bytes()));
        }
        _ => {
            // A path that nothing is at.
            let missing = PathBuf::from(format!("/proc/self/fd/none{}", bytes.len()));
            let error = load_prefix_list(&missing).map(drop).expect_err("there is no such file");
            one_line(&Failure::from(error).to_string());
            one_line(&spand_gateway::config::Config::load(&missing).expect_err("nor such a configuration").to_string());
            one_line(&spand_agent::config::Config::load(&missing).expect_err("nor such a configuration").to_string());
        }
    });
});

fn prefixes(path: &Path) {
    match load_prefix_list(path) {
        Ok(prefixes) => assert!(prefixes.len() <= MAX_PREFIXES && prefixes.is_sorted()),
        Err(error) => refused(error),
    }
}

fn refused(error: PrefixListError) {
    one_line(&error.to_string());
    one_line(&Failure::from(error).to_string());
}

fn gateway(path: &Path, files: &mut Files) {
    use spand_gateway::config::Config;
    let mut config = match Config::load(path) {
        Ok(config) => config,
        Err(error) => return unusable(&error),
    };
    let printed = toml::to_string(&config).expect("what is in force can be printed");
    assert_eq!(Config::parse(&printed, Path::new("printed")).ok().as_ref(), Some(&config));
    if let Err(sentence) = config.check_runnable() {
        one_line(&sentence);
    }
    config.publisher();
    config.api();
    // No file of this machine is read.
    if let Some(list) = &mut config.traffic.prefix_list {
        *list = files.prefixes.holding(b"198.51.100.0/24\n2001:db8::/32 via 192.0.2.1\n");
    }
    let engine = config.engine(EngineOptions::default()).expect("the list can be read");
    Engine::new(engine);
}

fn agent(path: &Path) {
    use spand_agent::config::Config;
    let mut config = match Config::load(path) {
        Ok(config) => config,
        Err(error) => return unusable(&error),
    };
    // Printed with its new names, it has none left to warn of.
    config.renamed.clear();
    let printed = toml::to_string(&config).expect("what is in force can be printed");
    assert_eq!(Config::parse(&printed, Path::new("printed")).ok().as_ref(), Some(&config));
    config.policy();
    assert_ne!(config.control_socket(), config.ledger_file());
}

fn unusable(error: &ConfigError) {
    one_line(&error.to_string());
}

fn one_line(sentence: &str) {
    assert!(!sentence.is_empty() && !sentence.chars().any(char::is_control), "{sentence:?}");
}
