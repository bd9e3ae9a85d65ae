//! `top` in a pseudo-terminal, against a gateway with many networks.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::pty::{Winsize, openpty};
use spand_tests::dashboard::stage::Stage;
use spand_tests::patience::PATIENCE;

use super::ask::{Asked, MANY, any_port};

const SIZE: Winsize = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
/// What a program sends that uses the whole screen, and when it gives that back.
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

/// A program at a terminal, all that it has sent, and the screen that this makes.
struct Screen {
    child: Child,
    keys: File,
    output: Receiver<Vec<u8>>,
    sent: String,
    shown: vt100::Parser,
}

impl Screen {
    /// In a session of its own, whose terminal this is.
    fn start(program: &Command) -> Result<Self> {
        let pty = openpty(Some(&SIZE), None)?;
        let terminal = || -> Result<Stdio> { Ok(pty.slave.try_clone()?.into()) };
        let mut session = Command::new("setsid");
        session.args(["--ctty", "--wait"]).arg(program.get_program()).args(program.get_args());
        let child = session.stdin(terminal()?).stdout(terminal()?).stderr(terminal()?).spawn()?;
        let keys = File::from(pty.master);
        let mut reader = keys.try_clone()?;
        let (send, output) = mpsc::channel();
        thread::spawn(move || {
            let mut bytes = [0; 4_096];
            // An error is the end: nobody has the terminal any more.
            while let Ok(length @ 1..) = reader.read(&mut bytes) {
                if send.send(bytes[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        let shown = vt100::Parser::new(SIZE.ws_row, SIZE.ws_col, 0);
        Ok(Self { child, keys, output, sent: String::new(), shown })
    }

    /// Takes what is sent until something is so.
    fn wait(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Result<()> {
        let begun = Instant::now();
        while !done(self) {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            let seen = |screen: &Self| screen.shown.screen().contents();
            let bytes = self.output.recv_timeout(left).with_context(|| format!("no {what:?} in\n{}", seen(self)))?;
            self.shown.process(&bytes);
            self.sent.push_str(&String::from_utf8_lossy(&bytes));
        }
        Ok(())
    }

    fn shows(&mut self, text: &str) -> Result<()> {
        self.wait(text, |screen| screen.shown.screen().contents().contains(text))
    }

    fn sends(&mut self, text: &str) -> Result<()> {
        self.wait(text, |screen| screen.sent.contains(text))
    }

    fn press(&mut self, keys: &str) -> Result<()> {
        Ok(self.keys.write_all(keys.as_bytes())?)
    }
}

pub(super) fn top() -> Result<()> {
    let stage = Stage::start(&[], MANY, any_port())?;
    let asked = Asked::new(stage.address())?;
    let begun = Instant::now();
    let mut screen = Screen::start(&asked.command("top --sort prefix --order asc --every 1"))?;
    screen.sends(ENTER)?;
    screen.shows("/24")?;
    println!("command_line: top: {MANY} networks, first rows after {:?}", begun.elapsed());
    screen.shows("by prefix, smallest first: 1 to 25 of 10")?;
    screen.press("/no such network\r")?;
    screen.shows("0 to 0 of 0")?;
    screen.press("/\r")?;
    screen.shows("1 to 25 of ")?;
    screen.press("\r")?;
    screen.shows("Esc leads back")?;
    screen.press("q")?;
    screen.sends(LEAVE)?;
    ensure!(screen.child.wait()?.success(), "it ends with a fault");

    let mut screen = Screen::start(&asked.command("top --every 1"))?;
    screen.shows("/24")?;
    drop(stage);
    screen.shows("nobody answers")?;
    screen.press("\x03")?;
    screen.sends(LEAVE)?;
    ensure!(screen.child.wait()?.success(), "it ends with a fault");
    asked.fails("top", 64, &["needs a terminal", "networks --watch"])?;
    let mut screen = Screen::start(&asked.command("top"))?;
    screen.shows("error: nobody answers")?;
    ensure!(screen.child.wait()?.code() == Some(1) && !screen.sent.contains(ENTER), "{}", screen.sent);
    Ok(())
}

// A program that does not end would be waited for.
impl Drop for Screen {
    fn drop(&mut self) {
        _ = self.child.kill();
        thread::sleep(Duration::from_millis(1));
        _ = self.child.wait();
    }
}
