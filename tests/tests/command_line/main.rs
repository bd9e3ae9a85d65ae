//! The command lines of the programs: docs/reference/cli.md beside them, what wrong input comes to, what a machine that is too busy does,
//! and what the commands print that ask a running gateway.
//!
//! A program of its own: started under the name of one of the product's programs it is that program.

mod ask;
mod hostile;
mod page;
mod screen;
mod wrong;

use std::process::ExitCode;

use spand_tests::product::standing_in::{Case, run_all, stand_in};

const CASES: [Case; 19] = [
    ("the page has every command, option and default", || {
        page::the_page_has_every_command_option_and_default();
        Ok(())
    }),
    ("a value from a list stands on the page with all others", || {
        page::a_value_from_a_list_stands_on_the_page_with_all_others();
        Ok(())
    }),
    ("the page has every exit code", || {
        page::the_page_has_every_exit_code();
        Ok(())
    }),
    ("what a gateway is given wrongly", wrong::gateway),
    ("what an agent is given wrongly", wrong::agent),
    ("slips of the pen", wrong::slips),
    ("what pages show is what is printed", page::what_pages_show_is_what_is_printed),
    ("what the demo, the dashboard and the benefit are given wrongly", wrong::shows),
    ("a machine that is too busy", ask::is_named),
    ("asked: tables", ask::tables),
    ("asked: JSON as it came", ask::json),
    ("asked: again and again", ask::again),
    ("asked: what goes wrong", ask::faults),
    ("asked: passwords and TLS", ask::passwords),
    ("asked: what acts on a terminal", hostile::no_terminal),
    ("asked: answers without an end", hostile::no_end),
    ("asked: a password and another user's listener", hostile::no_password),
    ("asked: the first row of many networks", ask::first_row),
    ("asked: the whole screen", screen::top),
];

fn main() -> ExitCode {
    stand_in().unwrap_or_else(|| run_all("command_line", CASES))
}
