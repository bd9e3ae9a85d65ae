//! Chromium, driven by its own driver (the protocol of the W3C, and commands of the developers' tools that it passes on).
//!
//! Both are Debian's packages `chromium` and `chromium-driver`. A test that does not find them checks nothing and says so on
//! standard error, unless it is required (`tests/needs`).

use spand_needs::{Need, lacks};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::patience::PATIENCE;
use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// Time between two looks at a page.
const LOOK: Duration = Duration::from_millis(20);

/// A browser with one page; ends when dropped.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    runtime: Runtime,
    /// Where commands of the session go.
    session: String,
    profile: tempfile::TempDir,
}

impl Browser {
    /// Starts one; `None` after a line on standard error where there is none.
    pub fn start() -> Result<Option<Self>> {
        let profile = tempfile::tempdir()?;
        let started = Command::new("chromedriver")
            .args(["--port=0", "--log-level=SEVERE"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut driver = match started {
            Ok(driver) => driver,
            Err(error) => {
                lacks(Need::Program("chromedriver"), format_args!("{error}; `make browser` installs it"));
                return Ok(None);
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let port = port(&mut driver);
        let base = format!("http://127.0.0.1:{}/session", port.as_deref().unwrap_or("0"));
        let mut browser = Self { driver, runtime, session: base, profile };
        port?;
        let folder = browser.profile.path().display().to_string();
        let arguments = [
            "--headless=new".to_owned(),
            // Everything here is our own page, and CI runs as root, where the sandbox cannot be set up.
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--disable-background-networking".to_owned(),
            "--no-first-run".to_owned(),
            "--force-color-profile=srgb".to_owned(),
            "--window-size=1280,900".to_owned(),
            format!("--user-data-dir={folder}"),
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let answer = browser.send("POST", "", &wanted)?;
        let id = answer["sessionId"].as_str().context("the driver gave no session")?;
        browser.session = format!("{}/{id}", browser.session);
        Ok(Some(browser))
    }

    /// Opens a page and waits until it is loaded.
    pub fn open(&self, url: &str) -> Result<()> {
        self.send("POST", "/url", &json!({ "url": url })).map(drop)
    }

    /// What a script returns.
    pub fn run(&self, script: &str) -> Result<Value> {
        self.send("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
            .with_context(|| format!("in the page: {script}"))
    }

    /// Waits until an expression is true in the page.
    pub fn wait(&self, what: &str, expression: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if self.run(&format!("return Boolean({expression})"))? == json!(true) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let page = self.run("return document.body.innerText.slice(0, 2000)")?;
                bail!("{what} did not come within {PATIENCE:?} ({expression}); the page says:\n{page}");
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Presses keys as a person would, one after the other, wherever the focus is. Named ones have code points of the protocol.
    pub fn press(&self, keys: &str) -> Result<()> {
        let actions: Vec<_> = keys
            .chars()
            .flat_map(|key| [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })])
            .collect();
        let keyboard = json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": actions }] });
        self.send("POST", "/actions", &keyboard).map(drop)
    }

    /// Clicks the element that a selector finds, in its middle.
    pub fn click(&self, selector: &str) -> Result<()> {
        let wanted = json!({ "using": "css selector", "value": selector });
        let found = self.send("POST", "/element", &wanted).with_context(|| format!("no {selector}"))?;
        let id = found.as_object().and_then(|found| found.values().next()).and_then(Value::as_str);
        let id = id.context("an element without an id")?;
        self.send("POST", &format!("/element/{id}/click"), &json!({})).map(drop)
    }

    /// A command of the developers' tools.
    pub fn devtools(&self, command: &str, parameters: &Value) -> Result<Value> {
        self.send("POST", "/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// Makes the page so large, in pixels of the style; `dark` is what the person prefers.
    pub fn look(&self, width: u32, height: u32, dark: bool) -> Result<()> {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.devtools("Emulation.setDeviceMetricsOverride", &size)?;
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", &media).map(drop)
    }

    /// What the page has spent, by name (`Performance.getMetrics`); durations in seconds.
    pub fn spent(&self) -> Result<BTreeMap<String, f64>> {
        let metrics = self.devtools("Performance.getMetrics", &json!({}))?;
        let metrics = metrics["metrics"].as_array().context("no metrics")?;
        let one = |metric: &Value| Some((metric["name"].as_str()?.to_owned(), metric["value"].as_f64()?));
        Ok(metrics.iter().filter_map(one).collect())
    }

    /// A picture of what is in sight, as PNG.
    pub fn screenshot(&self) -> Result<Vec<u8>> {
        let picture = self.send("GET", "/screenshot", &Value::Null)?;
        Ok(BASE64_STANDARD.decode(picture.as_str().context("no picture")?)?)
    }

    /// What the console logged since the last call: warnings and errors.
    pub fn complaints(&self) -> Result<Vec<String>> {
        let log = self.send("POST", "/se/log", &json!({ "type": "browser" }))?;
        let log = log.as_array().context("no log")?;
        let loud = log.iter().filter(|line| line["level"] != "INFO" && line["level"] != "DEBUG");
        Ok(loud.map(|line| line["message"].as_str().unwrap_or_default().to_owned()).collect())
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let url = format!("{}{path}", self.session);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer: Value = self.runtime.block_on(async {
            let exchange = async {
                let client = Client::builder(TokioExecutor::new()).build_http::<String>();
                let request = hyper::Request::builder().method(method).uri(&url).body(body)?;
                let bytes = client.request(request).await?.into_body().collect().await?.to_bytes();
                anyhow::Ok(serde_json::from_slice(&bytes)?)
            };
            tokio::time::timeout(PATIENCE, exchange).await.context("the browser does not answer")?
        })?;
        let value = answer.get("value").cloned().unwrap_or_default();
        if let Some(error) = value.get("error").and_then(Value::as_str) {
            bail!("{path}: {error}: {}", value["message"].as_str().unwrap_or_default());
        }
        Ok(value)
    }
}

/// The port that the driver says it took.
fn port(driver: &mut Child) -> Result<String> {
    let out = driver.stdout.take().context("no output of the driver")?;
    let mut lines = BufReader::new(out).lines();
    while let Some(line) = lines.next().transpose()? {
        if let Some((_, port)) = line.split_once("started successfully on port ") {
            return Ok(port.trim_end_matches('.').to_owned());
        }
    }
    bail!("the driver ended without a word")
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser; the driver itself has to be ended after it.
        drop(self.send("DELETE", "", &Value::Null));
        drop(self.driver.kill());
        drop(self.driver.wait());
    }
}
