//! Files that the process may have open at a time: each connection is one.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::config::Config;

/// Raises the limit as far as the system lets it be raised: what most services start with, 1,024, is for programs that use
/// `select`. Gives the limit in force.
pub(crate) fn allow_many() -> u64 {
    // Where nothing is known of a limit, opening one file too many says so.
    let Ok((now, most)) = getrlimit(Resource::RLIMIT_NOFILE) else { return u64::MAX };
    setrlimit(Resource::RLIMIT_NOFILE, most, most).map_or(now, |()| most)
}

/// A warning, where the limit of open files is below what the configured connections need.
pub(crate) fn too_few(config: &Config, limit: u64) -> Option<String> {
    let needed = config.files();
    (limit < needed).then(|| {
        format!(
            "{limit} files may be open at a time, and with api.grpc_connections reached it would be up to {needed}: raise \
             LimitNOFILE= of the service (`ulimit -Hn`), or lower that, else connections fail before \
             their limit"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_the_highest_there_is() {
        let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, most - 1, most).unwrap();
        assert_eq!(allow_many(), most);
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (most, most));
    }

    #[test]
    fn a_limit_below_the_connections_is_one_line() {
        let config = Config::default();
        assert!(config.files() > 2_256, "the default limits of connections and what is open beside them");
        let warning = too_few(&config, 1_024).unwrap();
        assert!(
            warning.starts_with("1024 files may be open")
                && warning.contains("LimitNOFILE=")
                && !warning.contains('\n')
        );
        assert_eq!(too_few(&config, config.files()), None);
    }
}
