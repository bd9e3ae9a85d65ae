//!
//! A program of its own: started under the name of one of the product's programs it is that program.

mod busy;
mod page;

use std::process::ExitCode;

use spand_tests::product::standing_in::{Case, run_all, stand_in};

const CASES: [Case; 4] = [
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
    ("a machine that is too busy", busy::is_named),
];

fn main() -> ExitCode {
    stand_in().unwrap_or_else(|| run_all("command_line", CASES))
}
