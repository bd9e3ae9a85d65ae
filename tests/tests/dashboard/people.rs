//! For whom it has to be readable: on a phone, in the dark, by key, read aloud.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;
use spand_tests::dashboard::browser::Browser;
use spand_tests::dashboard::stage::Stage;

use super::{CAPTURES, VIEWS, alone, any_port, open, picture, show, silent};

#[test]
fn every_view_fits_a_phone_and_the_dark() -> Result<()> {
    let _alone = alone();
    let Some((_stage, browser)) = open(300)? else { return Ok(()) };
    std::thread::sleep(Duration::from_secs(3));
    let bright = "getComputedStyle(document.body).backgroundColor";
    let light = browser.run(&format!("return {bright}"))?;
    browser.look(360, 740, true)?;
    assert_ne!(browser.run(&format!("return {bright}"))?, light, "the dark has its own colours");
    for view in VIEWS {
        show(&browser, view)?;
        let wide = browser.run("return document.documentElement.scrollWidth")?;
        assert_eq!(wide, 360, "{view} is wider than the phone");
        picture(&browser, &format!("{view}-phone-dark"))?;
    }
    browser.run("location.hash = '#/networks/198.51.100.0/24'")?;
    browser.wait("samples", "document.body.textContent.includes('samples between')")?;
    assert_eq!(browser.run("return document.documentElement.scrollWidth")?, 360, "the network is wider than the phone");
    browser.look(1_280, 900, true)?;
    picture(&browser, "network-dark")?;
    for (scheme, dark) in [("light", false), ("dark", true)] {
        browser.look(1_280, 900, dark)?;
        let low = browser.run(CONTRAST)?;
        assert_eq!(low, serde_json::json!([]), "too little contrast in the {scheme}");
    }
    silent(&browser)
}

#[test]
fn agents_and_benefit_are_whole_at_every_width_and_agents_beyond_a_page_are_found() -> Result<()> {
    let _alone = alone();
    let Some((stage, browser)) = open(300)? else { return Ok(()) };
    for view in ["benefit", "agents"] {
        show(&browser, view)?;
        for width in [390, 1_200, 1_366, 1_600, 1_920] {
            browser.look(width, 900, false)?;
            let cut = browser.run(
                "const frames = [...document.querySelectorAll('.scroll')];
                 const page = document.documentElement;
                 return [page.scrollWidth > page.clientWidth, frames.length, frames.filter((frame) => frame.scrollWidth > frame.clientWidth).map((frame) => [frame.scrollWidth, frame.clientWidth])]",
            )?;
            assert_eq!(cut, serde_json::json!([false, 1, []]), "{view} at {width} pixels is cut");
        }
    }
    browser.look(1_280, 900, false)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let _entered = runtime.enter();
    let crowd = (0..=u8::MAX).map(|n| stage.published().subscribe(&[IpAddr::from([10, 9, 0, n])]));
    let _crowd = crowd.collect::<Result<Vec<_>, _>>()?;
    let rows = |count: usize, words: &str| {
        format!(
            "document.querySelectorAll('tbody tr').length === {count} && document.querySelector('main').textContent.includes('{words}')"
        )
    };
    browser.wait("the first page", &rows(100, "260 subscribed, 1 to 100 shown"))?;
    for (button, count, words) in [(4, 100, "101 to 200"), (4, 60, "201 to 260"), (3, 100, "101 to 200")] {
        browser.click(&format!(".tools button:nth-child({button})"))?;
        browser.wait(words, &rows(count, words))?;
    }
    browser.press("/")?;
    browser.press("10.9.0.25")?;
    browser.wait("those of the search", &rows(7, "7 found"))?;
    silent(&browser)
}

/// Pairs of colours of the style, as text and what it stands on, whose contrast is under 4.5 to 1 (WCAG 2.2, 1.4.3).
const CONTRAST: &str = "
    const style = getComputedStyle(document.documentElement);
    const light = (name) => {
      const [r, g, b] = style.getPropertyValue(name).trim().match(/[0-9a-f]{2}/g).map((two) => {
        const part = parseInt(two, 16) / 255;
        return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
      });
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const low = [];
    for (const text of ['--ink', '--quiet', '--accent', '--second', '--good', '--warn', '--bad']) {
      for (const back of ['--back', '--paper', '--wash']) {
        const [least, most] = [light(text), light(back)].sort((a, b) => a - b);
        const contrast = (most + 0.05) / (least + 0.05);
        if (contrast < 4.5) low.push(`${text} on ${back}: ${contrast.toFixed(2)}`);
      }
    }
    return low;";

/// What a reader of the screen needs and the page lacks.
const UNREADABLE: &str = "
    const faults = [];
    const all = (selector) => [...document.querySelectorAll(selector)];
    for (const landmark of ['header', 'nav[aria-label]', 'main', 'footer']) if (all(landmark).length !== 1) faults.push(`${landmark}: ${all(landmark).length}`);
    if (all('h1').length !== 1) faults.push(`h1: ${all('h1').length}`);
    for (const table of all('main table:not(.u-legend)')) {
      if (!table.caption?.textContent) faults.push('a table without a caption');
      for (const head of table.tHead?.rows[0]?.cells ?? []) if (head.scope !== 'col' || !head.textContent) faults.push(`head: ${head.outerHTML}`);
    }
    for (const input of all('input, select')) if (!input.labels?.length) faults.push(`no label: ${input.outerHTML}`);
    for (const image of all('[role=img]')) if ((image.getAttribute('aria-label') ?? '').length < 20) faults.push(`no text: ${image.outerHTML.slice(0, 80)}`);
    for (const canvas of all('canvas')) if (!canvas.closest('[role=img]')) faults.push('a canvas without a text');
    for (const one of all('a, button')) if (!one.textContent.trim()) faults.push(`no name: ${one.outerHTML}`);
    if (all('[role=status], [aria-live]').length === 0) faults.push('nothing tells of the state');
    const ids = all('[id]').map(({ id }) => id);
    if (new Set(ids).size !== ids.length) faults.push(`ids: ${ids}`);
    return faults;";

#[test]
fn every_view_is_read_aloud_and_walked_by_key() -> Result<()> {
    let _alone = alone();
    let Some((_stage, browser)) = open(300)? else { return Ok(()) };
    // The first key leads to the way past the head, and every stop is seen.
    browser.press("\u{e004}")?;
    assert_eq!(browser.run("return document.activeElement.id")?, "skip");
    browser.press("\u{e007}")?;
    assert_eq!(browser.run("return document.activeElement.id")?, "main");
    std::thread::sleep(Duration::from_secs(3));
    for view in VIEWS {
        show(&browser, view)?;
        assert_eq!(browser.run(UNREADABLE)?, serde_json::json!([]), "{view}");
        let mut stops = Vec::new();
        for _ in 0..4 {
            browser.press("\u{e004}")?;
            let stop = browser.run(
                "const at = document.activeElement; const { outlineStyle, outlineWidth } = getComputedStyle(at);
                 return [at.tagName + (at.id ? '#' + at.id : ''), outlineStyle === 'solid' && parseFloat(outlineWidth) >= 2]",
            )?;
            assert!(stop[1] == true || stop[0] == "BODY", "{view}: the focus is not seen at {stop}");
            stops.push(stop[0].clone());
        }
        println!("{view}: {stops:?}");
    }
    browser.run("location.hash = '#/networks/198.51.100.0/24'")?;
    browser.wait("samples", "document.body.textContent.includes('samples between')")?;
    assert_eq!(browser.run(UNREADABLE)?, serde_json::json!([]), "a network");
    silent(&browser)
}

// 10,000 networks: how soon they are there, and what an update costs.

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
