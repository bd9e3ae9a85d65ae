//! 10,000 networks: how soon they are there, and what an update costs.

use std::time::Duration;

use anyhow::Result;
use spand_tests::dashboard::browser::Browser;
use spand_tests::dashboard::stage::Stage;

use super::{CAPTURES, alone, any_port, silent};

/// Updates that are timed, about.
const UPDATES: u32 = 10;

/// Notes tasks over 50 ms, and for each answer with rows the time from its text to the paint that follows.
const WATCH: &str = "
    window.long = [];
    new PerformanceObserver((list) => window.long.push(...list.getEntries().map((task) => task.duration))).observe({ type: 'longtask' });
    window.took = [];
    const ask = window.fetch;
    window.fetch = async (...given) => {
      const response = await ask(...given);
      if (!String(given[0]).startsWith('/v1/networks?')) return response;
      const text = await response.text();
      const began = performance.now();
      requestAnimationFrame(() => {
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = () => window.took.push(performance.now() - began);
        port2.postMessage(null);
      });
      return new Response(text, response);
    };";

#[test]
fn ten_thousand_networks_are_there_at_once_and_stay_smooth() -> Result<()> {
    let _alone = alone();
    let Some(browser) = Browser::start()? else { return Ok(()) };
    let stage = Stage::start(&CAPTURES, 10_000, any_port())?;
    browser.look(1_280, 900, false)?;
    let url = format!("{}#/networks", stage.url());
    let mut first = Vec::new();
    for _ in 0..5 {
        browser.open("about:blank")?;
        browser.open(&url)?;
        browser.wait("10,002 networks", "document.querySelector('.found')?.textContent === '10,002 networks'")?;
        browser.wait("a painted page", "performance.getEntriesByType('paint').length > 0")?;
        let painted = browser.run("return performance.getEntriesByName('first-contentful-paint')[0].startTime")?;
        let rows = browser.run("return performance.getEntriesByName('shown')[0].startTime")?;
        first.push((painted.as_f64().unwrap_or(f64::MAX), rows.as_f64().unwrap_or(f64::MAX)));
    }
    println!("first paint and first rows, ms after the address was entered: {first:.0?}");
    let rows = browser.run("return document.querySelectorAll('.list tbody tr').length")?;
    assert!(rows.as_u64() < Some(80), "{rows} rows for 10,000 networks");

    // What the page's thread does for an update: from the rows' arrival to their being painted, and all that it does meanwhile.
    browser.run(WATCH)?;
    browser.devtools("Performance.enable", &serde_json::json!({ "timeDomain": "threadTicks" }))?;
    stage.set_drift(500);
    let before = browser.spent()?;
    std::thread::sleep(Duration::from_secs(2) * UPDATES);
    let after = browser.spent()?;
    let took = browser.run("return window.took.sort((a, b) => a - b)")?;
    let took: Vec<f64> = took.as_array().into_iter().flatten().filter_map(serde_json::Value::as_f64).collect();
    let (median, most) =
        (took.get(took.len() / 2).copied().unwrap_or(f64::MAX), took.last().copied().unwrap_or(f64::MAX));
    let long = browser.run("return window.long")?;
    println!(
        "{} updates, from rows to paint by the clock: median {median:.1} ms, most {most:.1} ms; tasks over 50 ms: {long}",
        took.len()
    );
    for part in ["TaskDuration", "ScriptDuration", "RecalcStyleDuration", "LayoutDuration"] {
        let spent = (after[part] - before[part]) * 1_000.0 / took.len().max(1) as f64;
        println!("  the page's thread, processor time an update with all that ran meanwhile: {part} {spent:.1} ms");
    }
    assert!(took.len() > 3, "only {} updates", took.len());

    // Through the whole list, and the row in sight is the one that belongs there.
    for part in [0.5, 1.0, 0.25] {
        browser
            .run(&format!("const f = document.querySelector('.list-frame'); f.scrollTop = f.scrollHeight * {part}"))?;
        browser.wait(
            "rows at that place",
            "((f) => { const box = f.getBoundingClientRect(); const row = document.elementFromPoint(box.left + 40, box.top + box.height / 2)?.closest('tr');
               return row && !row.classList.contains('gap') && row.querySelector('a')?.textContent && Math.abs(Number(row.getAttribute('aria-rowindex')) - f.scrollTop / 36 - box.height / 72) < 6; })(document.querySelector('.list-frame'))",
        )?;
    }
    let slow = browser.run("return window.long.length")?;
    println!("tasks over 50 ms after scrolling through: {slow}");
    let (painted, shown) = first.iter().fold((0.0, 0.0), |(a, b): (f64, f64), (c, d)| (a.max(*c), b.max(*d)));
    // Bounds for a machine that does something else beside this; the figures above are what counts.
    assert!(painted < 5_000.0 && shown < 5_000.0, "first paint after {painted:.0} ms, first rows after {shown:.0} ms");
    assert!(median < 250.0, "{median:.0} ms for an update");
    silent(&browser)
}
