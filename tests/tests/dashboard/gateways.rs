//! Other gateways that share: who they are, what is wrong with them, and that what they send is shown as text.

use std::time::Instant;

use anyhow::Result;
use serde_json::{Value, json};
use spand_cells::GatewayId;
use spand_proto::units::Micros;
use spand_share::ShareView;
use spand_share::exchange::{LinkState, Topic};
use spand_tests::dashboard::browser::Browser;

use super::{alone, open, picture, show, silent};

const MEMBERS: &str = "section[aria-label=\"Other gateways\"]";
const COMPARED: &str = "section[aria-label=\"Connections compared\"]";
const MAIN: &str = "document.querySelector('main').innerText.replaceAll('\\u00a0', ' ')";

/// The text of each cell, by row, with plain spaces.
fn rows(browser: &Browser, section: &str) -> Result<Vec<Vec<String>>> {
    let cells = "[...row.children].map((cell) => cell.textContent.replaceAll('\\u00a0', ' '))";
    let rows =
        browser.run(&format!("return [...document.querySelectorAll('{section} tbody tr')].map((row) => {cells})"))?;
    Ok(serde_json::from_value(rows)?)
}

/// Value, note and level of a card.
fn card(browser: &Browser, name: &str) -> Result<Value> {
    browser.run(&format!(
        "const one = [...document.querySelectorAll('.card')].find((card) => card.querySelector('dt').textContent === '{name}');
         return [...one.querySelectorAll('dd')].map((dd) => dd.textContent.replaceAll('\\u00a0', ' ')).concat(one.dataset.level ?? '')"
    ))
}

fn shows(browser: &Browser, text: &str) -> Result<()> {
    browser.wait(text, &format!("{MAIN}.includes({})", json!(text)))
}

#[test]
fn the_link_and_the_members_are_shown_and_faults_only_where_there_are_any() -> Result<()> {
    let _alone = alone();
    let Some((stage, browser)) = open(100)? else { return Ok(()) };
    browser.press("7")?;
    show(&browser, "gateways")?;
    let members = rows(&browser, MEMBERS)?;
    let column = |place: usize| members.iter().map(|row| row[place].as_str()).collect::<Vec<_>>();
    assert_eq!(column(0), ["2", "3", "4"]);
    assert_eq!(column(1), ["edge-b", "edge-c", "edge-d"]);
    assert_eq!(column(2), ["0.1.0"; 3]);
    assert_eq!(column(3), ["none", "7", "none"]);
    assert!(column(4).iter().all(|heard| heard.ends_with("s ago")), "{members:?}");
    assert_eq!(column(5), ["1.25 ms ahead", "3.4 ms behind", "0.21 ms behind"]);
    assert!(members[0][6].starts_with("5,"), "{members:?}");
    assert_eq!(column(8), ["count"; 3]);
    assert_eq!(card(&browser, "Link")?[0], "up");
    assert_eq!(card(&browser, "Link")?[2], "good");
    assert!(card(&browser, "Link")?[1].as_str().unwrap_or_default().starts_with("since "));
    let own = card(&browser, "This gateway")?;
    assert_eq!(own[0], "number 1");
    assert_eq!(own[1], "cluster main, site main, mirror group 7; 4 agents");
    let found: Vec<_> = rows(&browser, COMPARED)?.into_iter().map(|row| [row[2].clone(), row[3].clone()]).collect();
    let expected = [
        ["9 (1 %)", "no packets doubled"],
        ["–", "same packets, as one mirror group"],
        ["2 (0.222 %)", "no packets doubled"],
    ];
    assert_eq!(found, expected);
    let faults =
        "document.querySelectorAll('main .fault, main .doubt, main [data-level=bad], main [data-level=warn]').length";
    assert_eq!(browser.run(&format!("return {faults}"))?, 0, "faults where none were made up");
    let problem = "[...document.querySelectorAll('main .problem')].map((one) => one.textContent).join('')";
    assert_eq!(browser.run(&format!("return {problem}"))?, "");

    stage.invent_faults()?;
    shows(&browser, "Cells of gateway 3 (edge-c) do not count.")?;
    let members = rows(&browser, MEMBERS)?;
    assert_eq!(members[1][8], "refused: its buckets have another length; set estimate.bucket_s alike on all gateways");
    assert_eq!([members[1][5].as_str(), members[2][5].as_str()], ["3.4 s behind", "2.6 s ahead"]);
    assert!(members[2][8].starts_with("count; its clock is off: synchronise"), "{members:?}");
    let compared = rows(&browser, COMPARED)?;
    assert_eq!(compared[2][2], "870 (96.7 %)");
    assert!(
        compared[2][3]
            .starts_with("Undeclared duplicate: round trips and losses of connections that gateway 4 (edge-d)"),
        "{compared:?}"
    );
    assert!(compared[2][3].contains("share.mirror_group"), "{compared:?}");
    assert_eq!(card(&browser, "Other gateways")?[2], "warn");
    silent(&browser)
}

#[test]
fn the_lag_and_a_link_that_is_down_are_shown_as_they_change() -> Result<()> {
    let _alone = alone();
    let Some((stage, browser)) = open(50)? else { return Ok(()) };
    show(&browser, "gateways")?;
    assert_eq!(card(&browser, "Lag of closed cells")?[0], "450 ms");
    assert_eq!(card(&browser, "Lag of open cells")?[0], "120 ms");
    stage.change_others(|view| {
        view.lag = [(Topic::Closed, Micros::from_secs(12))].into();
        (view.link, view.since) = (LinkState::Down("no server answers".to_owned()), Some(Instant::now()));
    });
    shows(&browser, "no server answers. See that a server of share.servers runs")?;
    assert_eq!(card(&browser, "Lag of closed cells")?[0], "12 s");
    assert_eq!(card(&browser, "Lag of open cells")?, json!(["–", "none came yet", ""]));
    let link = card(&browser, "Link")?;
    assert_eq!([&link[0], &link[2]], ["down", "bad"]);
    let note = link[1].as_str().unwrap_or_default();
    assert!(note.starts_with("since ") && note.ends_with(": no server answers"), "{link}");
    stage.change_others(|view| view.link = LinkState::Degraded("the stream elects a leader".to_owned()));
    shows(&browser, "Nothing is kept for gateways that are away since ")?;
    let link = card(&browser, "Link")?;
    assert_eq!([&link[0], &link[2]], ["degraded", "warn"]);
    stage.change_others(|view| {
        view.members.clear();
        (view.link, view.since) = (LinkState::Connecting, None);
    });
    shows(&browser, "No other gateway can be heard while nothing gets through")?;
    assert_eq!(browser.run("return document.querySelectorAll('main table').length")?, 0, "no empty tables");
    assert_eq!(
        card(&browser, "Link")?,
        json!(["connecting", "not connected with the servers of share.servers", "warn"])
    );
    stage.change_others(|view| view.link = LinkState::Up);
    shows(&browser, "No other gateway is heard: start another one with the same share.cluster")?;
    picture(&browser, "gateways-none")?;
    silent(&browser)
}

#[test]
fn what_another_gateway_calls_itself_is_text() -> Result<()> {
    let _alone = alone();
    let Some((stage, browser)) = open(50)? else { return Ok(()) };
    let name =
        format!("</td><img src=x onerror=\"window.broken=1\"><script>window.broken=1</script>{}", "n".repeat(160));
    let version = "<b>9</b>";
    stage.change_others(|view| {
        for known in view.members.iter_mut().filter(|known| known.member.gateway == GatewayId(2)) {
            (known.member.name, known.member.version) = (name.clone(), version.to_owned());
        }
    });
    // It is named in the sentence, too.
    stage.compare_with(GatewayId(2), [900, 870]);
    show(&browser, "gateways")?;
    let members = rows(&browser, MEMBERS)?;
    assert_eq!([&members[0][1], &members[0][2]], [&name, version]);
    let compared = rows(&browser, COMPARED)?;
    assert_eq!(compared[0][0], format!("2 ({name})"));
    assert_eq!(compared[0][3].matches(&name).count(), 1, "{compared:?}");
    assert_eq!(browser.run("return document.querySelectorAll('main img, main b, main script').length")?, 0);
    assert_eq!(browser.run("return window.broken ?? null")?, Value::Null);
    browser.look(360, 740, false)?;
    assert_eq!(browser.run("return document.documentElement.scrollWidth")?, 360, "a long name widens the page");
    silent(&browser)
}

#[test]
fn without_sharing_one_line_says_so_and_a_request_that_fails_another() -> Result<()> {
    let _alone = alone();
    let Some((stage, browser)) = open(50)? else { return Ok(()) };
    stage.change_others(|view| *view = ShareView::default());
    browser.click("#views a[href='#/gateways']")?;
    shows(&browser, "This gateway shares with no others")?;
    assert_eq!(browser.run("return document.querySelectorAll('main table, main .card, main section').length")?, 0);
    assert_eq!(browser.run("return document.querySelectorAll('main .view > *').length")?, 1);
    picture(&browser, "gateways-alone")?;
    silent(&browser)?;
    browser.run(
        "const ask = window.fetch; window.fetch = (path, ...more) => ask(path === '/v1/share' ? '/v1/share?wrong=1' : path, ...more)",
    )?;
    browser
        .wait("the gateway's sentence", "document.querySelector('main > .problem').textContent.includes('wrong')")?;
    let complaints = browser.complaints()?;
    assert!(complaints.iter().all(|line| line.contains("400")), "{complaints:?}");
    Ok(())
}
