//! `top`: the networks of a running gateway on the whole screen, again and again, in an order that keys change.
//!
//! A thread of its own asks, so that no key waits for an answer. The screen is the caller's again however the command ends.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::Paragraph;
use ratatui::{DefaultTerminal, Frame};
use serde_json::Value;
use spand_proto::operator::{Failure, printable};

use super::Which;
use super::document::{Printed, summary};
use super::gateway::{Gateway, encoded};
use crate::api::sorts;
use crate::replay::Width;

/// How long a key may wait for the screen.
const LOOK: Duration = Duration::from_millis(100);
/// Lines beside the rows: two above the table, two of its heading, one below.
const AROUND: u16 = 5;
/// Rows that the interface gives at most.
const MOST_ROWS: u16 = 1_000;
const KEYS: &str = "q quit  ↑↓ choose  Enter network  ←→ page  s sort  r reverse  e estimate  / search";

/// Shows the networks until a key ends it.
pub(super) fn run(gateway: Gateway, which: &Which, every: Duration) -> Result<(), Failure> {
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return Err(Failure::Usage("top needs a terminal: `networks --watch` prints to whatever there is".to_owned()));
    }
    let mut view = View::new(which);
    // A fault is a sentence, and not a screen that is gone in a moment.
    let first = answer(&gateway, &view.question(1))?;
    view.take(Ok(first));
    let (ask, asked) = sync_channel(1);
    let (give, answers) = sync_channel(1);
    thread::spawn(move || answer_all(&gateway, &asked, &give));
    let mut terminal =
        ratatui::try_init().map_err(|error| Failure::Environment(format!("cannot use the terminal: {error}")))?;
    let ended = show(&mut terminal, &mut view, (&ask, &answers), every);
    ratatui::restore();
    ended.map_err(|error| Failure::Environment(format!("the terminal fails: {error}")))
}

/// What is asked for at once.
type Question = [String; 3];
/// The documents that answer it.
type Answer = [Value; 3];

fn answer_all(gateway: &Gateway, asked: &Receiver<Question>, give: &SyncSender<Result<Answer, String>>) {
    while let Ok(question) = asked.recv() {
        let answer = answer(gateway, &question).map_err(|failure| failure.to_string());
        if give.send(answer).is_err() {
            return;
        }
    }
}

fn answer(gateway: &Gateway, question: &Question) -> Result<Answer, Failure> {
    let mut answers = [const { Value::Null }; 3];
    for (answer, path) in answers.iter_mut().zip(question) {
        (_, *answer) = gateway.document(path)?;
    }
    Ok(answers)
}

fn show(
    terminal: &mut DefaultTerminal,
    view: &mut View,
    (ask, answers): (&SyncSender<Question>, &Receiver<Result<Answer, String>>),
    every: Duration,
) -> io::Result<()> {
    let mut due = Instant::now();
    loop {
        terminal.draw(|frame| view.draw(frame))?;
        if Instant::now() >= due {
            let rows = terminal.size()?.height.saturating_sub(AROUND).clamp(1, MOST_ROWS);
            match ask.try_send(view.question(rows)) {
                Ok(()) => due = Instant::now() + every,
                // The answer before is still on its way.
                Err(TrySendError::Full(_)) => {}
                Err(TrySendError::Disconnected(_)) => return Ok(()),
            }
        }
        if event::poll(LOOK.min(due.saturating_duration_since(Instant::now())).max(Duration::from_millis(1)))?
            && let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            match view.key(key) {
                After::End => return Ok(()),
                After::AskAgain => due = Instant::now(),
                After::Nothing => {}
            }
        }
        while let Ok(answer) = answers.try_recv() {
            view.take(answer);
        }
    }
}

/// What a key leads to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum After {
    Nothing,
    AskAgain,
    End,
}

/// What is shown, and what is asked for.
#[derive(Debug)]
struct View {
    which: Which,
    offset: u64,
    rows: u64,
    chosen: usize,
    /// The network that is shown by itself.
    one: Option<String>,
    /// What is being typed after `/`.
    typing: Option<String>,
    answer: Answer,
    fault: Option<String>,
}

impl View {
    fn new(which: &Which) -> Self {
        let mut which = which.clone();
        if which.sort.is_none() {
            // The most traffic first.
            which.sort = sorts().find(|sort| *sort == "traffic").map(str::to_owned);
            which.order.get_or_insert_with(|| "desc".to_owned());
        }
        let answer = [const { Value::Null }; 3];
        Self { which, offset: 0, rows: 1, chosen: 0, one: None, typing: None, answer, fault: None }
    }

    fn question(&mut self, rows: u16) -> Question {
        self.rows = rows.into();
        let list = match &self.one {
            Some(prefix) => format!("/v1/networks/{}", encoded(prefix)),
            None => self.which.path(vec![("limit", rows.to_string()), ("offset", self.offset.to_string())]),
        };
        ["/v1/traffic".to_owned(), "/v1/benefit".to_owned(), list]
    }

    fn take(&mut self, answer: Result<Answer, String>) {
        match answer {
            Ok(answer) => (self.answer, self.fault) = (answer, None),
            // What was seen last stays, and why it is not newer stands below.
            Err(fault) => self.fault = Some(fault),
        }
        self.chosen = self.chosen.min(self.prefixes().count().saturating_sub(1));
    }

    fn prefixes(&self) -> impl Iterator<Item = &str> {
        let [.., list] = &self.answer;
        list["networks"].as_array().into_iter().flatten().filter_map(|network| network["prefix"].as_str())
    }

    fn key(&mut self, key: KeyEvent) -> After {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return After::End;
        }
        if let Some(typed) = &mut self.typing {
            match key.code {
                KeyCode::Char(letter) => typed.push(letter),
                KeyCode::Backspace => drop(typed.pop()),
                KeyCode::Esc => self.typing = None,
                KeyCode::Enter => {
                    self.which.search = self.typing.take().filter(|text| !text.is_empty());
                    return self.first_page();
                }
                _ => {}
            }
            return After::Nothing;
        }
        let last = self.prefixes().count().saturating_sub(1);
        match key.code {
            KeyCode::Char('q') => return After::End,
            KeyCode::Esc | KeyCode::Backspace if self.one.take().is_some() => return After::AskAgain,
            KeyCode::Up | KeyCode::Char('k') => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.chosen = (self.chosen + 1).min(last),
            KeyCode::Home => return self.first_page(),
            KeyCode::Left | KeyCode::PageUp => return self.page(self.offset.saturating_sub(self.rows)),
            KeyCode::Right | KeyCode::PageDown => {
                let [.., list] = &self.answer;
                return list["next_offset"].as_u64().map_or(After::Nothing, |next| self.page(next));
            }
            KeyCode::Enter if self.one.is_none() => {
                let chosen = self.prefixes().nth(self.chosen).map(str::to_owned);
                self.one = chosen;
                return After::AskAgain;
            }
            KeyCode::Char('s') => {
                let mut after = sorts().skip_while(|sort| Some(*sort) != self.which.sort.as_deref()).skip(1);
                self.which.sort = after.next().or_else(|| sorts().next()).map(str::to_owned);
                return self.first_page();
            }
            KeyCode::Char('r') => {
                let descends = self.which.order.as_deref() == Some("desc");
                self.which.order = Some(if descends { "asc" } else { "desc" }.to_owned());
                return self.first_page();
            }
            KeyCode::Char('e') => {
                self.which.estimate = match self.which.estimate.as_deref() {
                    None => Some("yes".to_owned()),
                    Some("yes") => Some("no".to_owned()),
                    Some(_) => None,
                };
                return self.first_page();
            }
            KeyCode::Char('/') => self.typing = Some(String::new()),
            _ => {}
        }
        After::Nothing
    }

    fn first_page(&mut self) -> After {
        self.page(0)
    }

    fn page(&mut self, offset: u64) -> After {
        (self.offset, self.chosen, self.one) = (offset, 0, None);
        After::AskAgain
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let [head, order, table, foot] =
            Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
                .areas(frame.area());
        let [status, benefit, list] = &self.answer;
        frame.render_widget(Paragraph::new(summary(status, benefit)), head);
        frame.render_widget(Paragraph::new(self.order(list)), order);
        let width = Width::at_most(table.width);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let text: Text<'_> = if list["networks"].is_array() {
            let lines = Printed::Networks.lines(list, width);
            let heading = lines.len().saturating_sub(self.prefixes().count());
            let line = |(place, line): (usize, String)| {
                let style = match place.checked_sub(heading) {
                    None => bold,
                    Some(row) if row == self.chosen => Style::new().add_modifier(Modifier::REVERSED),
                    Some(_) => Style::new(),
                };
                Line::styled(line, style)
            };
            lines.into_iter().enumerate().map(line).collect()
        } else {
            Printed::Network.lines(list, width).into_iter().map(Line::raw).collect()
        };
        frame.render_widget(Paragraph::new(text), table);
        let (foot_text, style) = match (&self.fault, &self.typing) {
            (_, Some(typed)) => (format!("search: {typed}▏"), bold),
            (Some(fault), None) => (fault.clone(), bold),
            (None, None) => (KEYS.to_owned(), Style::new()),
        };
        frame.render_widget(Paragraph::new(foot_text).style(style), foot);
    }

    /// Which networks are shown, in what order.
    fn order(&self, list: &Value) -> String {
        if let Some(prefix) = &self.one {
            return format!("{}; Esc leads back", printable(prefix));
        }
        let Which { sort, order, within, search, estimate } = &self.which;
        let mut text = format!(
            "by {}, {}",
            sort.as_deref().unwrap_or("prefix"),
            if order.as_deref() == Some("desc") { "largest first" } else { "smallest first" }
        );
        let within = within.map(|within| format!(", inside {within}"));
        let search = search.as_deref().map(|search| format!(", found by \"{}\"", printable(search)));
        let estimate = estimate
            .as_deref()
            .map(|which| if which == "yes" { ", with an estimate" } else { ", without an estimate" });
        text.extend([within, search, estimate.map(str::to_owned)].into_iter().flatten());
        let shown = self.prefixes().count() as u64;
        let total = list["total"].as_u64().unwrap_or_default();
        let first = if shown == 0 { 0 } else { self.offset + 1 };
        format!("{text}: {first} to {} of {total}", self.offset + shown)
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::*;

    fn view() -> View {
        let mut view = View::new(&Which::default());
        let network = |prefix: &str| json!({ "prefix": prefix, "wc_segments": 20, "samples": 3 });
        let networks = ["192.0.2.0/24", "198.51.100.0/24"].map(network);
        let list = json!({ "networks": networks, "total": 700, "next_offset": 2 });
        view.take(Ok([json!({ "ready": true, "networks": 700 }), json!({}), list]));
        view
    }

    fn press(view: &mut View, code: KeyCode) -> After {
        view.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn screen(view: &View, width: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, 12)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..12).map(line).collect()
    }

    #[test]
    fn the_screen_has_the_gateway_the_order_the_networks_and_the_keys() {
        let view = view();
        for width in [40, 80, 200] {
            let lines = screen(&view, width);
            let has = |text: &str| lines.iter().any(|line| line.contains(text));
            assert!(has("700 networks") && has("192.0.2.0/24") && has("1 to 2 of 700") && has("q quit"), "{lines:#?}");
        }
    }

    #[test]
    fn keys_choose_what_is_asked_for() {
        let mut view = view();
        let [.., list] = view.question(20);
        assert!(list.starts_with("/v1/networks?limit=20&offset=0"), "{list}");
        assert_eq!(press(&mut view, KeyCode::Right), After::AskAgain);
        assert!(view.question(20)[2].contains("offset=2"));
        assert_eq!(press(&mut view, KeyCode::Char('r')), After::AskAgain);
        press(&mut view, KeyCode::Char('/'));
        for letter in "q1".chars() {
            assert_eq!(press(&mut view, KeyCode::Char(letter)), After::Nothing, "a letter is typed, and no key");
        }
        press(&mut view, KeyCode::Enter);
        let [.., list] = view.question(20);
        assert!(list.contains("offset=0") && list.contains("search=q1"), "{list}");
        press(&mut view, KeyCode::Down);
        press(&mut view, KeyCode::Enter);
        assert_eq!(view.question(20)[2], "/v1/networks/198.51.100.0%2F24");
        assert_eq!(press(&mut view, KeyCode::Esc), After::AskAgain);
        assert!(view.question(20)[2].starts_with("/v1/networks?"));
        assert_eq!(press(&mut view, KeyCode::Char('q')), After::End);
    }

    #[test]
    fn a_gateway_that_is_away_leaves_what_was_seen_and_why() {
        let mut view = view();
        view.take(Err("nobody answers at http://127.0.0.1:7480".to_owned()));
        let lines = screen(&view, 80);
        assert!(lines.iter().any(|line| line.contains("192.0.2.0/24")), "{lines:#?}");
        assert!(lines[11].contains("nobody answers"), "{lines:#?}");
    }
}
