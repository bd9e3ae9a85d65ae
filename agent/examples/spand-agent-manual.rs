//! Writes the man pages and shell completions of `spand-agent` below a folder, as a package installs them:
//! `cargo run --release -p spand-agent --example spand-agent-manual -- FOLDER`.

use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::{Shell, generate_to};

fn main() -> io::Result<()> {
    let folder = std::env::args_os().nth(1).ok_or_else(|| io::Error::other("name a folder to write to"))?;
    let share = Path::new(&folder);
    let mut command = spand_agent::cli::Cli::command();
    let name = "spand-agent";
    for (shell, place) in [
        (Shell::Bash, "bash-completion/completions"),
        (Shell::Zsh, "zsh/vendor-completions"),
        (Shell::Fish, "fish/vendor_completions.d"),
    ] {
        let place = share.join(place);
        std::fs::create_dir_all(&place)?;
        let written = generate_to(shell, &mut command, name, &place)?;
        if shell == Shell::Bash {
            // Where bash looks a command's completion up by its name.
            std::fs::rename(written, place.join(name))?;
        }
    }
    let place = share.join("man/man1");
    std::fs::create_dir_all(&place)?;
    clap_mangen::generate_to(command, place)
}
