//! How the program ends: 64 for a fault of the call or the configuration, 1 for one of the environment, each with one
//! sentence that names the thing and the way out.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sched::{CloneFlags, unshare};
use spand_capture::{LinkType, PcapWriter};
use spand_needs::{Need, needs};
use spand_proto::units::Timestamp;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_spand-gateway");
/// The user and group `nobody`.
const NOBODY: u32 = 65_534;

/// A folder that anyone may read, with a configuration in it.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("its rights");
        Self(folder)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, content).expect("a file");
        path
    }

    /// A configuration that listens on free ports, keeps nothing and logs nothing; `more` besides.
    fn runnable(&self, interface: &str, more: &str) -> PathBuf {
        let text = format!(
            "[capture]\ninterfaces = [\"{interface}\"]\n{more}\n\
             [api]\ngrpc_listen = \"127.0.0.1:0\"\nhttp_listen = \"127.0.0.1:0\"\n\
             [store]\nenabled = false\n[log]\nfilter = \"off\"\n"
        );
        self.file("gateway.toml", text)
    }
}

fn gateway(arguments: &[&str], path: &Path) -> Output {
    Command::new(PROGRAM).args(arguments).arg(path).output().expect("the program")
}

fn run(config: &Path) -> Output {
    gateway(&["run", "--config"], config)
}

/// Ended with `code` and one sentence on standard error that holds all of `parts`, the name and the way out.
fn failed(output: &Output, code: i32, parts: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "one sentence: {stderr}");
    assert!(stderr.starts_with("error: "), "{stderr}");
    for part in parts {
        assert!(stderr.contains(part), "{stderr:?} does not contain {part:?}");
    }
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

#[test]
fn a_wrong_configuration_ends_every_command_with_64() {
    let folder = Folder::new();
    for (text, parts) in [
        ("[capture]\ninterfaces = [\"lo\"]\nsnaplen = 3\n", ["line 3: unknown field `snaplen`", "snap_length_bytes"]),
        (
            "[traffic]\ninternal = [\"10.0.0.0/33\"]\n",
            ["line 2: traffic.internal: `10.0.0.0/33`", "such as 192.0.2.0/24"],
        ),
        ("[capture]\nbuffer_mib = 4096\n", ["capture.buffer_mib is 4096", "at most 2047"]),
    ] {
        let config = folder.file("gateway.toml", text);
        for output in [run(&config), gateway(&["check-config"], &config)] {
            failed(&output, 64, &[&["gateway.toml"], &parts[..]].concat());
        }
        let capture = folder.file("empty.pcap", capture_of(0));
        let config = config.to_str().unwrap();
        failed(&gateway(&["replay", "--config", config], &capture), 64, &parts);
    }
    let config = folder.file("gateway.toml", "");
    failed(&run(&config), 64, &["gateway.toml", "capture.interfaces names no interface", "add the one"]);
}

#[test]
fn a_wrong_prefix_list_ends_with_64_and_a_missing_one_with_1() {
    let folder = Folder::new();
    let capture = folder.file("empty.pcap", capture_of(0));
    let list = folder.file("routes.txt", "192.0.2.0/24\n192.0.2.1/99\n");
    let list = list.to_str().unwrap();
    let output = gateway(&["replay", "--prefix-list", list], &capture);
    failed(&output, 64, &["routes.txt, line 2: `192.0.2.1/99` is not a network", "such as 192.0.2.0/24"]);
    let output = gateway(&["replay", "--prefix-list", "/nowhere/routes.txt"], &capture);
    failed(&output, 1, &["/nowhere/routes.txt", "name another one"]);
    let config =
        folder.file("gateway.toml", "[capture]\ninterfaces = [\"lo\"]\n[traffic]\nprefix_list = \"gone.txt\"\n");
    failed(&gateway(&["check-config"], &config), 1, &["gone.txt", "traffic.prefix_list"]);
}

#[test]
fn check_config_refuses_a_filter_that_no_interface_takes_and_warns_of_names_that_are_missing() {
    let folder = Folder::new();
    let config = folder.file("gateway.toml", "[capture]\ninterfaces = [\"lo\"]\nfilter = \"tpc port 443\"\n");
    failed(&gateway(&["check-config"], &config), 64, &["capture.filter", "`tpc port 443`", "pcap-filter(7)"]);
    let config =
        folder.file("gateway.toml", "[capture]\ninterfaces = [\"lo\"]\n[names]\nasn_database = \"gone.mmdb\"\n");
    let output = gateway(&["check-config"], &config);
    let warning = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{warning}");
    assert!(
        warning.contains("warning: ") && warning.contains("gone.mmdb") && warning.contains("no names"),
        "{warning}"
    );
}

#[test]
fn a_wrong_call_ends_with_64() {
    for arguments in [
        &["fly"][..],
        &[],
        &["replay"],
        &["replay", "--every", "10us", "x.pcap"],
        &["replay", "--at", "yesterday", "x.pcap"],
        &["replay", "--internal", "10.0.0.0/33", "x.pcap"],
        &["replay", "--rule", "median", "x.pcap"],
        &["replay", "--compare", "liss,median", "x.pcap"],
        &["replay", "--mss", "0", "x.pcap"],
        &["replay", "--min-samples", "0", "x.pcap"],
        &["replay", "--min-connections", "0", "x.pcap"],
        &["replay", "--sort", "size", "x.pcap"],
    ] {
        let output = Command::new(PROGRAM).args(arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {stderr}");
        assert!(!stderr.is_empty(), "{arguments:?} says nothing");
    }
    let two_tables = ["replay", "--flows", "--format", "csv", "--every", "10s"];
    failed(&gateway(&two_tables, Path::new("x.pcap")), 64, &["--flows with --at or --every", "--format json"]);
    let twice = ["replay", "--rule", "probe", "--compare", "liss,iss,liss"];
    failed(&gateway(&twice, Path::new("x.pcap")), 64, &["--compare names `liss`", "twice"]);
    let in_force = ["replay", "--rule", "probe", "--compare", "liss,probe"];
    failed(&gateway(&in_force, Path::new("x.pcap")), 64, &["--compare names `probe`", "the rule in force"]);
    for asked in ["--help", "--version"] {
        assert_eq!(Command::new(PROGRAM).arg(asked).output().unwrap().status.code(), Some(0), "{asked}");
    }
}

#[test]
fn a_configuration_that_is_not_there_ends_with_1() {
    let missing = Path::new("/nowhere/gateway.toml");
    for output in [run(missing), gateway(&["check-config"], missing)] {
        failed(&output, 1, &["cannot read the configuration /nowhere/gateway.toml", "name another one"]);
    }
}

#[test]
fn a_port_in_use_ends_with_1() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = Folder::new();
    for key in ["grpc_listen", "http_listen"] {
        let config = folder.runnable("lo", "");
        let text = fs::read_to_string(&config).unwrap();
        let config = folder
            .file("taken.toml", text.replace(&format!("{key} = \"127.0.0.1:0\""), &format!("{key} = \"{address}\"")));
        failed(&run(&config), 1, &[key, &address, "another"]);
    }
}

#[test]
fn a_store_that_cannot_be_used_ends_with_1() {
    let folder = Folder::new();
    let text = fs::read_to_string(folder.runnable("lo", "")).unwrap();
    let store = "enabled = true\ndirectory = \"gateway.toml/state\"";
    let config = folder.file("gateway.toml", text.replace("enabled = false", store));
    failed(&run(&config), 1, &["gateway.toml/state", "store.directory"]);
}

#[test]
fn certificates_are_made_once_and_a_failure_is_one_sentence() {
    let folder = Folder::new();
    let dir = folder.0.path().join("ca");
    let cert = |arguments: &[&str]| {
        let all = [&["cert"], arguments, &["--dir", dir.to_str().unwrap()]].concat();
        Command::new(PROGRAM).args(all).output().expect("the program")
    };
    failed(&cert(&["issue", "web-1"]), 1, &["there is no ", "ca.key", "cert init --dir"]);
    for arguments in [&["init"][..], &["issue", "web-1"], &["revoke", dir.join("web-1.pem").to_str().unwrap()]] {
        let output = cert(arguments);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
    let key = fs::metadata(dir.join("web-1.key")).unwrap();
    assert_eq!(key.permissions().mode() & 0o7777, 0o600);
    failed(&cert(&["init"]), 1, &["ca.key is there already", "another folder"]);
    failed(&cert(&["issue", "web-1"]), 1, &["web-1.key is there already"]);
    failed(&cert(&["issue", "gateway", "--server"]), 64, &["--address", "gateway.url"]);
    failed(&cert(&["issue", "web-2", "--days", "4000"]), 64, &["before the certificate would", "at most --days 36"]);
    for arguments in [&["issue", "../web-3"][..], &["issue", "web-3", "--days", "0"], &["revoke"], &[]] {
        assert_eq!(cert(arguments).status.code(), Some(64), "{arguments:?}");
    }
    if !needs(Need::Root) {
        return;
    }
    let others =
        Command::new(PROGRAM).args(["cert", "issue", "web-3", "--dir"]).arg(&dir).uid(NOBODY).output().unwrap();
    failed(&others, 1, &["cannot read", "ca.key", "Permission denied", "as root"]);
}

#[test]
fn an_interface_that_cannot_be_read_ends_with_1() {
    if !needs(Need::Root) {
        return;
    }
    let folder = Folder::new();
    // A namespace of its own has one interface, and that is down.
    let run_alone = |config: PathBuf| {
        let alone = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            run(&config)
        });
        alone.join().unwrap()
    };
    failed(&run(&folder.runnable("mirror7", "")), 1, &["no interface mirror7", "there are", "lo"]);
    failed(&run_alone(folder.runnable("lo", "")), 1, &["interface lo is down", "`ip link set lo up`"]);
    let filter = folder.runnable("lo", "filter = \"tpc\"");
    failed(&run(&filter), 64, &["filter `tpc`", "lo", "pcap-filter(7)"]);
}

#[test]
fn a_missing_privilege_ends_with_1() {
    let folder = Folder::new();
    // The build folder may be closed to others. Copied by another process: a child that a test beside this one starts would
    // inherit a descriptor that still writes, and a program that is being written cannot be run.
    let program = folder.0.path().join("spand-gateway");
    assert!(Command::new("cp").arg(PROGRAM).arg(&program).status().unwrap().success());
    let mut command = Command::new(program);
    command.args(["run", "--config"]).arg(folder.runnable("lo", ""));
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    failed(
        &command.output().unwrap(),
        1,
        &["capturing on lo", "CAP_NET_RAW", "run as root or with AmbientCapabilities="],
    );
}

/// A capture of this many frames that are not TCP.
fn capture_of(packets: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = PcapWriter::new(&mut bytes, LinkType::ETHERNET, 65_535).expect("a header");
    for second in 1..=packets {
        writer.write(Timestamp(second * 1_000_000_000), 60, &[0; 60]).expect("a packet");
    }
    bytes
}

#[test]
fn a_replay_says_which_file_gave_nothing_and_prints_the_others() {
    let folder = Folder::new();
    let sound = folder.file("sound.pcap", capture_of(3));
    let replay = |more: &[&str]| gateway(&[&["replay", "--format", "json"], more].concat(), &sound);
    let text = folder.file("text.pcap", "no capture");
    let output = replay(&["/nowhere/a.pcap", text.to_str().unwrap()]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let lines: Vec<_> = stderr.lines().collect();
    assert_eq!(lines.len(), 3, "{stderr}");
    assert!(lines[0].contains("/nowhere/a.pcap") && lines[1].contains("text.pcap"), "{stderr}");
    assert_eq!(lines[2], "error: 2 of 3 files gave no packet; the lines above say why");
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed["counters"]["frames"], 3);

    // Damage is a warning: what stands before it counts.
    let whole = capture_of(5);
    let cut = folder.file("cut.pcap", &whole[..whole.len() - 7]);
    let output = replay(&[cut.to_str().unwrap()]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.starts_with("warning: ") && stderr.contains("cut.pcap") && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn a_single_file_that_gives_nothing_is_one_sentence_and_no_table() {
    let folder = Folder::new();
    let text = folder.file("text.pcap", "no capture");
    for file in ["/nowhere/a.pcap", text.to_str().unwrap()] {
        let output = gateway(&["replay"], Path::new(file));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(file) && stderr.lines().count() == 1, "{stderr}");
    }
    // An empty but sound capture has no time either.
    let output = gateway(&["replay"], &folder.file("empty.pcap", capture_of(0)));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    assert!(printed.contains("empty.pcap") && printed.contains("none") && !printed.contains("1970"), "{printed}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let folder = Folder::new();
    let capture = folder.file("sound.pcap", capture_of(3));
    let config = folder.runnable("lo", "");
    for (arguments, path) in [(&["replay", "--format", "json"][..], &capture), (&["check-config"], &config)] {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(PROGRAM);
        let output = command.args(arguments).arg(path).stdout(Stdio::from(writer)).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), stderr.as_ref()), (Some(0), ""), "{arguments:?}");
    }
}
