//! The dashboard in a real browser: every view, live, searched, narrow and dark, and with 10,000 networks.
//!
//! `SPAND_SCREENSHOTS=FOLDER` keeps a picture of each view. One test runs at a time: they share two processors with their browsers.

mod gateways;
mod overview;
mod people;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use spand_core::estimate::Compared;
use spand_core::event::Event;
use spand_core::networks::Withdrawal;
use spand_gateway::publisher::{Batch, Kind, Part};
use spand_proto::estimate::RuleKind;
use spand_proto::opening::Opening;
use spand_proto::units::Window;
use spand_tests::dashboard::browser::Browser;
use spand_tests::dashboard::stage::Stage;
use spand_tests::patience::PATIENCE;

const CAPTURES: [&str; 2] = ["cubic-four-flows", "bbr-ipv6"];
const VIEWS: [&str; 7] = ["overview", "traffic", "networks", "agents", "benefit", "events", "gateways"];

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A gateway and a browser that shows its first page; `None` where there is no browser.
fn open(networks: usize) -> Result<Option<(Stage, Browser)>> {
    let Some(browser) = Browser::start()? else { return Ok(None) };
    let stage = Stage::start(&CAPTURES, networks, any_port())?;
    browser.look(1_280, 900, false)?;
    browser.open(&stage.url())?;
    browser.wait("the live state", "document.querySelector('#state[data-level=good]')")?;
    Ok(Some((stage, browser)))
}

/// Goes to a view as a person does, and waits for its content.
fn show(browser: &Browser, view: &str) -> Result<()> {
    browser.click(&format!("#views a[href='#/{view}']"))?;
    let content = match view {
        "overview" => {
            "document.querySelectorAll('.forest circle').length >= 5 && document.querySelectorAll('canvas').length === 4 \
             && document.querySelectorAll('.tasks li').length > 0"
        }
        "traffic" => {
            "document.querySelector('.card .value').textContent.includes('/s') && document.querySelector('canvas')"
        }
        "networks" => "document.querySelectorAll('.list tbody th a').length > 10",
        "agents" => "document.querySelectorAll('tbody th').length === 4",
        "gateways" => "document.querySelectorAll('section[aria-label=\"Other gateways\"] tbody th').length === 3",
        "benefit" => "document.querySelectorAll('.forest circle').length >= 5",
        _ => "document.querySelectorAll('tbody time').length > 3",
    };
    browser.wait(view, content)
}

/// Pictures of the documentation.
const KEPT: [&str; 11] = [
    "overview-day",
    "traffic",
    "networks",
    "network",
    "agents",
    "benefit",
    "events",
    "gateways",
    "overview-phone-dark",
    "traffic-phone-dark",
    "networks-phone-dark",
];

/// Keeps a picture where that is asked for; it is never an empty page.
fn picture(browser: &Browser, name: &str) -> Result<()> {
    let png = browser.screenshot()?;
    ensure!(png.starts_with(b"\x89PNG") && png.len() > 8_000, "{name} is an empty picture of {} bytes", png.len());
    if let Some(folder) = std::env::var_os("SPAND_SCREENSHOTS").filter(|_| KEPT.contains(&name)) {
        std::fs::create_dir_all(&folder)?;
        std::fs::write(PathBuf::from(folder).join(format!("dashboard-{name}.png")), png)?;
    }
    Ok(())
}

fn silent(browser: &Browser) -> Result<()> {
    let complaints = browser.complaints()?;
    ensure!(complaints.is_empty(), "the console says:\n{}", complaints.join("\n"));
    Ok(())
}

#[test]
fn a_gateway_to_look_at_shows_no_fault_unless_asked_to() -> Result<()> {
    let _alone = alone();
    let stage = Stage::start(&CAPTURES, 50, any_port())?;
    let published = stage.published();
    let faults = || {
        let (entries, _, _) = published.log(0, 1_000);
        let of_a_fault = |kind| matches!(kind, Kind::Limit | Kind::Retreat | Kind::Part);
        let noted = entries.into_iter().filter(|entry| of_a_fault(entry.kind)).count();
        let dropped: u64 = published.captures().iter().map(|capture| capture.dropped_queue).sum();
        (noted, dropped, published.retreats())
    };
    let packets = || published.engine().counters.frames;
    let until = |what: &str, holds: &dyn Fn() -> bool| {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            ensure!(Instant::now() < deadline, "{what} did not come");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    };
    let before = packets();
    until("packets", &|| packets() > before + 200)?;
    assert_eq!(faults(), (0, 0, 0));
    stage.invent_faults()?;
    until("invented faults", &|| {
        let (noted, dropped, retreats) = faults();
        noted > 1 && dropped > 0 && retreats == 1
    })
}

#[test]
fn every_view_shows_what_the_gateway_knows_and_complains_of_nothing() -> Result<()> {
    let _alone = alone();
    let Some((stage, browser)) = open(300)? else { return Ok(()) };
    // Charts want some seconds to show.
    std::thread::sleep(Duration::from_secs(8));
    // The pictures of the documentation show a gateway without faults; its log shows what happens with some.
    let visit = |view: &str| {
        show(&browser, view)?;
        let heading = browser.run("return document.querySelector('h1').textContent")?;
        assert_eq!(heading.as_str().map(str::to_lowercase).as_deref(), Some(view));
        let current = browser.run("return document.querySelector('#views [aria-current=page]').hash")?;
        assert_eq!(current, format!("#/{view}"));
        silent(&browser)
    };
    for view in VIEWS {
        visit(view)?;
        let red = browser.run("return [...document.querySelectorAll('main .problem, main [data-level=bad], main .fault')].map((one) => one.innerText).filter(Boolean)")?;
        assert_eq!(red, serde_json::json!([]), "{view} has faults");
        picture(&browser, view)?;
    }
    stage.invent_faults()?;
    let withdrawn = |network: &str| {
        Ok::<_, anyhow::Error>(Event::Withdrawn { network: network.parse()?, reason: Withdrawal::TooFew })
    };
    let events = vec![withdrawn("100.64.12.0/24")?, withdrawn("100.64.201.0/24")?];
    stage.published().apply(Batch { events, ..Batch::new() });
    for view in ["overview", "traffic", "gateways", "events"] {
        visit(view)?;
    }
    picture(&browser, "events")?;
    browser.run("location.hash = '#/networks/198.51.100.0/24'")?;
    browser.wait(
        "the advice",
        "[...document.querySelectorAll('tbody th')].filter((cell) => /KB|MB/.test(cell.textContent)).length >= 6",
    )?;
    browser.wait(
        "samples",
        "document.querySelectorAll('canvas').length === 2 && document.body.textContent.includes('samples between')",
    )?;
    browser.wait("an announced start", "document.body.textContent.includes('SYN from outside')")?;
    let page = browser.run("return document.querySelector('main').textContent")?;
    let page = page.as_str().unwrap_or_default();
    for word in ["198.51.100.0/24", "loss", "SYN from outside", "advertised to 4 subscribed agents"] {
        assert!(page.contains(word), "the network's page lacks `{word}`: {page}");
    }
    let clipped = browser.run(
        "return [...document.querySelectorAll('tbody tr')].filter((row) => /KB|MB/.test(row.cells[0].textContent)).map((row) => row.cells[4].textContent)",
    )?;
    let clipped = clipped.as_array().context("the table of advice")?;
    assert!(
        !clipped.is_empty() && clipped.iter().all(|cell| cell == "nothing"),
        "no limit clips the whole share: {clipped:?}"
    );
    picture(&browser, "network")?;
    shows_openings(&stage, &browser)?;
    silent(&browser)
}

/// A network's page has a section of openings where a rule gives or is compared for one, and none elsewhere.
fn shows_openings(stage: &Stage, browser: &Browser) -> Result<()> {
    let page = "document.querySelector('main').innerText";
    let heading = "Openings by the senders under way";
    let without = browser.run(&format!("return {page}.includes('{heading}')"))?;
    assert_eq!(without, false, "nothing is compared there");
    let mut view = (*stage.published().network("198.51.100.0/24".parse()?).context("it is not published")?).clone();
    view.network = "192.0.2.0/24".parse()?;
    let estimate = view.estimate.as_mut().context("it has no estimate")?;
    estimate.network = view.network;
    let opening = |rule, bytes| -> Result<_> {
        let threshold = Window::from_bytes(bytes).context("no window")?;
        Ok(Opening { rule, threshold, losses: None })
    };
    estimate.opening = Some(opening(RuleKind::Liss, 9_000.0)?);
    let share = Some(estimate.share);
    view.compared = vec![
        Compared { rule: RuleKind::Averaged, share, opening: Some(opening(RuleKind::Averaged, 7_000.0)?) },
        Compared { rule: RuleKind::Cached, share, opening: None },
    ];
    stage.published().apply(Batch { events: vec![Event::Network(Box::new(view))], ..Batch::new() });
    browser.run("location.hash = '#/networks/192.0.2.0/24'")?;
    browser.wait(heading, &format!("{page}.includes('{heading}') && {page}.includes('averaged')"))?;
    let rows = browser.run(
        "return [...document.querySelectorAll('section[aria-label^=Openings] tbody tr')].map((row) => [...row.children]
          .map((cell) => [cell.textContent, cell.firstElementChild?.title ?? ''].map((text) => text.replaceAll('\\u00a0', ' '))))",
    )?;
    let place = |row: usize, place: usize| rows[row][place][0].as_str().unwrap_or_default();
    let hovered = |row: usize| rows[row][1][1].as_str().unwrap_or_default();
    assert!(place(0, 1).ends_with(" seg") && place(1, 1).ends_with(" seg"), "{rows}");
    assert_eq!([place(0, 0), hovered(0), place(0, 4)], ["liss", "9 KB", "in force"], "{rows}");
    assert_eq!([place(1, 0), hovered(1), place(1, 4)], ["averaged", "7 KB", "compared, not sent to hosts"], "{rows}");
    assert_eq!([place(2, 0), place(2, 1), place(2, 4)], ["cached", "–", "compared, not sent to hosts"], "{rows}");
    Ok(())
}

#[test]
fn news_are_shown_as_they_come() -> Result<()> {
    let _alone = alone();
    let Some((stage, browser)) = open(100)? else { return Ok(()) };
    show(&browser, "traffic")?;
    let packets = "document.querySelector('.card .note').textContent";
    let before = browser.run(&format!("window.before = {packets}; return window.before"))?;
    browser.wait("newer counts", &format!("{packets} !== window.before"))?;
    println!("counts went from {before} to {}", browser.run(&format!("return {packets}"))?);

    show(&browser, "events")?;
    let network = "100.64.9.0/24";
    let withdrawn = Event::Withdrawn { network: network.parse()?, reason: Withdrawal::TooFew };
    stage.published().apply(Batch { events: vec![withdrawn], ..Batch::new() });
    // Not the first row: what happens in the same second may stand above it.
    let rows = "[...document.querySelectorAll('tbody tr')]";
    let row = |text: &str| format!("{rows}.some((row) => row.textContent.includes('{text}'))");
    browser.wait("the withdrawal", &row(&format!("too few samples left{network}")))?;
    browser.click("fieldset label:nth-of-type(1) input")?;
    browser.wait("no withdrawal", &format!("!document.querySelector('tbody').textContent.includes('{network}')"))?;

    stage.published().readiness().not_ready(Part::Capture, "interface mirror0 is down");
    browser.wait(
        "the header's word",
        "document.querySelector('#state[data-level=bad]')?.textContent.includes('mirror0 is down')",
    )?;
    stage.published().readiness().ready(Part::Capture);
    browser.wait("the header's word", "document.querySelector('#state[data-level=good]')")?;
    silent(&browser)
}

#[test]
fn an_answer_that_is_late_does_not_hide_what_came_meanwhile() -> Result<()> {
    let _alone = alone();
    let Some((stage, browser)) = open(100)? else { return Ok(()) };
    // The log is asked for, and its answer reaches the page three seconds later.
    browser.run(
        "window.answers = 0; const ask = window.fetch; window.fetch = async (...given) => { const answer = await ask(...given); \
         await new Promise((later) => setTimeout(later, 3000)); window.answers += 1; return answer; }; location.hash = '#/events'",
    )?;
    std::thread::sleep(Duration::from_secs(1));
    let network = "100.64.9.0/24";
    let withdrawn = Event::Withdrawn { network: network.parse()?, reason: Withdrawal::TooFew };
    stage.published().apply(Batch { events: vec![withdrawn], ..Batch::new() });
    let shown = format!("document.querySelector('tbody').textContent.includes('{network}')");
    browser.wait("the late answer", "window.answers > 0 && document.querySelectorAll('tbody time').length > 3")?;
    // The answer is shown a moment after it came.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(browser.run(&format!("return {shown}"))?, true, "the withdrawal was shown before the answer came");
    silent(&browser)
}

#[test]
fn a_gateway_that_comes_back_is_live_again() -> Result<()> {
    let _alone = alone();
    let Some((stage, browser)) = open(100)? else { return Ok(()) };
    show(&browser, "networks")?;
    let address = stage.address();
    drop(stage);
    browser.wait("the loss", "document.querySelector('#state').textContent.startsWith('Not connected')")?;
    let shown = browser.run("return document.querySelectorAll('.list tbody th a').length")?;
    assert!(shown.as_u64() > Some(10), "what was shown stays: {shown}");
    let _stage = Stage::start(&CAPTURES, 40, address)?;
    browser.wait("the return", "document.querySelector('#state[data-level=good]')")?;
    browser.wait("its networks", "document.querySelector('.found').textContent === '42 networks'")
}

#[test]
fn networks_are_found_sorted_and_opened_by_hand_and_by_key() -> Result<()> {
    let _alone = alone();
    let Some((stage, browser)) = open(600)? else { return Ok(()) };
    // From any view, `/` goes to the search.
    browser.press("/")?;
    browser.wait("the search", "document.activeElement.id === 'search'")?;
    let first = "document.querySelector('.list tbody th a').textContent";
    for (search, found, prefix) in [
        ("100.64.37.200", "1 network", "100.64.37.0/24"),
        ("65.20.", "1 network", "100.65.20.0/24"),
        ("2001:DB8", "1 network", "2001:db8"),
        ("100.65.0.0/16", "256 networks", "100.65."),
        ("zebra", "0 networks", ""),
    ] {
        browser.run("document.activeElement.value = ''")?;
        browser.press(search)?;
        browser.wait(search, &format!("document.querySelector('.found').textContent === '{found}'"))?;
        if !prefix.is_empty() {
            browser.wait(search, &format!("{first}.startsWith('{prefix}')"))?;
        }
    }
    browser.run("const s = document.activeElement; s.value = ''; s.dispatchEvent(new Event('input'))")?;
    browser.wait("all", "document.querySelector('.found').textContent === '602 networks'")?;
    shows_names(&stage, &browser)?;
    // It stands sorted by the share, the most first; another column begins with its most, and a second click turns it.
    for (sort, column, ordered) in [("wc", 2, "a <= b"), ("rtt", 5, "a >= b"), ("rtt", 5, "a <= b")] {
        browser.click(&format!("[data-sort={sort}] button"))?;
        let rows = "[...document.querySelectorAll('.list tbody tr:not(.gap)')].slice(0, 20)";
        let values = format!("{rows}.map((row) => parseFloat(row.children[{column}].textContent))");
        browser.wait(
            &format!("{sort} in order, {ordered}"),
            &format!("((v) => v.every((b, i) => i === 0 || ((a) => {ordered})(v[i - 1])))({values})"),
        )?;
    }
    sorts_by_choice(&browser)?;
    // By key: into the list, one down, and open it.
    let two_down = || {
        browser.run("document.querySelector('.list tbody th a').focus()")?;
        browser.press("\u{e015}\u{e015}")?;
        browser.run("return [...document.querySelectorAll('.list tbody th a')].indexOf(document.activeElement)")
    };
    // The order that was chosen last may be drawn between the keys.
    let places = (0..3).map(|_| two_down()).collect::<Result<Vec<_>>>()?;
    assert_eq!(places.last().and_then(serde_json::Value::as_i64), Some(2), "two arrows down: {places:?}");
    let prefix = browser.run("return document.activeElement.textContent")?;
    browser.press("\u{e007}")?;
    browser.wait("its page", &format!("document.querySelector('h1').textContent === {prefix}"))?;
    browser.wait("the advice", "document.querySelectorAll('tbody th').length > 5")?;
    assert_eq!(browser.run("return document.activeElement.tagName")?, "H1", "who follows a link reads on there");
    browser.press("6")?;
    browser.wait("the sixth view", "document.querySelector('h1').textContent === 'Events'")?;
    silent(&browser)
}

/// By key, in the field that every screen has.
fn sorts_by_choice(browser: &Browser) -> Result<()> {
    let column = "[...document.querySelectorAll('.list tbody tr:not(.gap)')].slice(0, 20).map((row) => row.children)";
    let size = "(text) => { const [, value, unit] = text.match(/([\\d.,]+)\\s*([a-zA-Z/]*)/);
         return Number(value.replaceAll(',', '')) * ({ ms: 1e-3, min: 60, h: 3600, 'kbit/s': 1e3, 'Mbit/s': 1e6, 'Gbit/s': 1e9 }[unit] ?? 1); }";
    for (key, chosen, value) in [
        ("tr", "traffic", "size(row[8].textContent) + size(row[9].textContent)"),
        ("ti", "saving", "size(row[10].textContent)"),
    ] {
        browser.run("document.querySelector('#by').focus()")?;
        browser.press(key)?;
        browser.wait(chosen, &format!("document.querySelector('#by').value === '{chosen}'"))?;
        // Values are rounded to three digits.
        browser.wait(
            &format!("the order of {chosen}"),
            &format!("((size) => {column}.map((row) => {value}).every((b, i, all) => all[0] > 0 && (i === 0 || all[i - 1] >= b * 0.98)))({size})"),
        )?;
        // Longer than the browser waits for more of a word.
        std::thread::sleep(Duration::from_millis(1_200));
    }
    browser.click("[data-sort=rtt] button")?;
    browser.wait("the field follows a heading", "document.querySelector('#by').value === 'rtt'")
}

/// A column of names, where networks have some and there is room for it: found by a part, cut to its width, whole at the pointer; and on
/// the network's own page.
fn shows_names(stage: &Stage, browser: &Browser) -> Result<()> {
    let listed = |prefix: &str| {
        let alone = "document.querySelector('.found')?.textContent === '1 network' && document.querySelector('.list tbody th a')";
        browser.wait(prefix, &format!("{alone}?.textContent === '{prefix}'"))
    };
    let look_for = |text: &str, prefix: &str| {
        browser.run("document.querySelector('#search').focus(); document.activeElement.value = ''")?;
        browser.press(text)?;
        listed(prefix)
    };
    look_for("northern", "100.64.3.0/24")?;
    let cell = "[document.querySelector('.list thead th:nth-child(2)'), document.querySelector('.list tbody tr:not(.gap) td')]";
    let seen = format!(
        "const [head, cell] = {cell}; const frame = document.querySelector('.list-frame');
         return [head.textContent, cell.textContent, cell.title, cell.scrollWidth > cell.clientWidth && cell.clientWidth > 100,
                 frame.scrollWidth <= frame.clientWidth]",
    );
    let name = "Branch office of the northern district, second floor";
    let whole = format!("{name}, AS64502 Example Three");
    assert_eq!(browser.run(&seen)?, serde_json::json!(["Name", name, whole, true, true]));
    let link = "document.querySelector('.list tbody th a')";
    let prefix = browser.run(&format!(
        "const cell = {link}.parentElement; return [cell.textContent, cell.scrollWidth <= cell.clientWidth]"
    ))?;
    assert_eq!(prefix, serde_json::json!(["100.64.3.0/24", true]), "the network is not cut");
    for (width, columns) in [(390, 4), (1_200, 10), (1_366, 11), (1_600, 13), (1_920, 15)] {
        browser.look(width, 900, false)?;
        // Names are cut on purpose.
        let cells = browser.run(
            "const cells = [...document.querySelector('.list tbody tr:not(.gap)').children].filter((cell) => cell.offsetWidth > 0);
             return [cells.length, cells.filter((cell) => !cell.classList.contains('called') && cell.scrollWidth > cell.clientWidth).map((cell) => cell.textContent)]",
        )?;
        assert_eq!(cells, serde_json::json!([columns, []]), "columns, and those that are cut, at {width} pixels");
    }
    browser.look(360, 740, false)?;
    let shown = browser.run(&format!("return {cell}.map((one) => one.offsetWidth)"))?;
    assert_eq!(shown, serde_json::json!([0, 0]), "no room for names on a phone");
    let width = browser.run("return document.documentElement.scrollWidth")?;
    assert_eq!(width, 360, "the list is wider than the phone");
    browser.look(1_280, 900, false)?;
    browser.run(&format!("{link}.click()"))?;
    browser
        .wait("the name on its page", &format!("document.querySelector('main strong').textContent === '{whole}'"))?;
    browser.run("history.back()")?;
    listed("100.64.3.0/24")?;
    // Made-up networks have traffic, and a list in which no network has a name has no such column.
    let row = "[...document.querySelector('.list tbody tr:not(.gap)').children].map((cell) => cell.offsetWidth > 0 ? cell.textContent : null)";
    let shown = browser.run(&format!("return {row}"))?;
    assert!([8, 9, 10].iter().all(|&place: &usize| shown[place].is_string() && shown[place] != "–"), "{shown}");
    let mut view = (*stage.published().network("100.64.3.0/24".parse()?).context("it is not published")?).clone();
    view.network = "203.0.113.0/24".parse()?;
    stage.published().apply(Batch { events: vec![Event::Network(Box::new(view))], ..Batch::new() });
    look_for("203.0.113.", "203.0.113.0/24")?;
    browser.click("#views a[href='#/events']")?;
    browser.click("#views a[href='#/networks']")?;
    listed("203.0.113.0/24")?;
    let shown = browser.run(&format!("return {row}"))?;
    assert_eq!([&shown[0], &shown[1]], [&"203.0.113.0/24".into(), &serde_json::Value::Null], "{shown}");
    browser.run("const s = document.querySelector('#search'); s.value = ''; s.dispatchEvent(new Event('input'))")?;
    browser.wait("all", "document.querySelector('.found').textContent === '603 networks'")
}
