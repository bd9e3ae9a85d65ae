//! Man pages and shell completions of a program, from its command line: a part of an example of each program, so that neither
//! program carries what writes man pages.

use std::io;
use std::path::Path;

use clap_complete::{Shell, generate_to};

/// Writes those of `name` below the folder that the first argument names, where a package puts them below `/usr/share`.
pub(crate) fn write(name: &str, mut command: clap::Command) -> io::Result<()> {
    let folder = std::env::args_os().nth(1).ok_or_else(|| io::Error::other("name a folder to write to"))?;
    let share = Path::new(&folder);
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
