//! Configurations of both programs and prefix lists, of any text: refused in one line, or in force and the same when
//! printed and read again.

#![no_main]

use std::cell::RefCell;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use spand_core::engine::Engine;
use spand_fuzz::Scratch;
use spand_gateway::config::{EngineOptions, MAX_PREFIXES, load_prefix_list};

thread_local!(static FILE: RefCell<Scratch> = RefCell::new(Scratch::new()));

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = data.split_first() else { return };
    match (kind % 3, std::str::from_utf8(bytes)) {
        (0, Ok(text)) => gateway(text),
        (1, Ok(text)) => agent(text),
        (2, _) => FILE.with_borrow_mut(|file| match load_prefix_list(&file.holding(bytes)) {
            Ok(prefixes) => assert!(prefixes.len() <= MAX_PREFIXES && prefixes.is_sorted()),
            Err(error) => one_line(&error.to_string()),
        }),
        _ => {}
    }
});

fn gateway(text: &str) {
    let mut config = match spand_gateway::config::Config::parse(text, Path::new("gateway.toml")) {
        Ok(config) => config,
        Err(error) => return one_line(&error.to_string()),
    };
    let printed = toml::to_string(&config).expect("what is in force can be printed");
    assert_eq!(spand_gateway::config::Config::parse(&printed, Path::new("printed")).ok().as_ref(), Some(&config));
    if let Err(sentence) = config.check_runnable() {
        one_line(&sentence);
    }
    config.publisher();
    config.api();
    // No file of this machine is read.
    config.traffic.prefix_list = None;
    let engine = config.engine(EngineOptions::default()).expect("no list to be read");
    Engine::new(engine);
}

fn agent(text: &str) {
    let config = match spand_agent::config::Config::parse(text, Path::new("agent.toml")) {
        Ok(config) => config,
        Err(error) => return one_line(&error.to_string()),
    };
    let printed = toml::to_string(&config).expect("what is in force can be printed");
    assert_eq!(spand_agent::config::Config::parse(&printed, Path::new("printed")).ok().as_ref(), Some(&config));
    config.policy();
}

fn one_line(sentence: &str) {
    assert!(!sentence.is_empty() && !sentence.chars().any(char::is_control), "{sentence:?}");
}
