//! Wrong input: a documented exit code, one sentence on standard error, and nothing in a form that Rust prints for its
//! programmers.

use std::cell::RefCell;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use spand_tests::product::standing_in::link_programs;
use tempfile::TempDir;

/// Nothing that is refused takes so long.
const LONGEST: Duration = Duration::from_secs(60);

/// What only `Debug`, a panic or a backtrace prints.
const OF_RUST: [&str; 17] = [
    "Err(",
    "Ok(",
    "Some(",
    "None,",
    "None)",
    "Error {",
    "Error(",
    "Environment(",
    "Usage(",
    "Os {",
    "kind: ",
    "\\\"",
    "\\n",
    "panicked at",
    "RUST_BACKTRACE",
    "stack backtrace",
    "Caused by",
];

/// Configurations of both programs that cannot be used, with what is in them.
const CONFIGURATIONS: [(&str, &[u8]); 10] = [
    ("garbage.toml", b"= what is this\n"),
    ("binary.toml", b"\x00\x01\xff\xfe[gateway]\n"),
    ("latin.toml", b"# caf\xe9\n"),
    ("open.toml", b"[api\n"),
    ("key.toml", b"[log]\nfilters = \"info\"\n"),
    ("section.toml", b"[logs]\nfilter = \"info\"\n"),
    ("type.toml", b"[log]\nfilter = 7\n"),
    ("table.toml", b"log = \"info\"\n"),
    ("twice.toml", b"[log]\n[log]\n"),
    ("value.toml", b"[log]\nformat = \"xml\"\n"),
];

/// Files that are no captures.
const CAPTURES: [(&str, &[u8]); 5] = [
    ("garbage.pcap", b"this is a text and no capture at all\n"),
    ("empty.pcap", b""),
    ("short.pcap", b"\xd4\xc3\xb2\xa1\x02\x00"),
    ("magic.pcap", b"\xd4\xc3\xb2\xa2\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x00\x00\x01\x00\x00\x00"),
    ("cut.pcap.gz", b"\x1f\x8b\x08\x00\x00\x00"),
];

/// Configurations of a gateway with a value that nothing can work with.
const GATEWAYS: [(&str, &str); 18] = [
    ("interface.toml", "[capture]\ninterfaces = [\"nothing0\"]\n"),
    ("none.toml", "[capture]\ninterfaces = []\n"),
    ("address.toml", "[api]\nhttp_listen = \"nowhere\"\n"),
    ("open-admin.toml", "[api]\nhttp_listen = \"0.0.0.0:7480\"\n"),
    ("rule.toml", "[estimate]\nrule = \"best\"\n"),
    ("prefix.toml", "[traffic]\ninternal = [\"10.0.0.0/99\"]\n"),
    ("server.toml", "[share]\nservers = [\"nowhere\"]\n"),
    ("secret.toml", "[share]\nservers = [\"tls://nats:4222\"]\ngateway = 1\n"),
    (
        "name.toml",
        "[share]\nservers = [\"tls://nats:4222\"]\ngateway = 1\nsecret = \"nothing\"\ncluster = \"a \\\" b\"\n",
    ),
    ("tls.toml", "[tls]\ncertificate = \"missing.pem\"\nkey = \"missing.key\"\n"),
    ("passwords.toml", "[admin]\npasswords = \"missing\"\n"),
    ("passwords-binary.toml", "[admin]\npasswords = \"binary.toml\"\n"),
    ("passwords-folder.toml", "[admin]\npasswords = \"folder\"\n"),
    ("prefixes.toml", "[traffic]\nprefix_list = \"missing\"\n"),
    ("prefixes-binary.toml", "[traffic]\nprefix_list = \"binary.toml\"\n"),
    ("tls-binary.toml", "[tls]\ncertificate = \"binary.toml\"\nkey = \"binary.toml\"\n"),
    ("secret-binary.toml", "[share]\nservers = [\"nats://nats:4222\"]\ngateway = 1\nsecret = \"binary.toml\"\n"),
    ("store.toml", "[capture]\ninterfaces = [\"lo\"]\n[store]\ndirectory = \"file/store\"\n"),
];

/// Command lines of the gateway.
const WRONG_TO_THE_GATEWAY: [&str; 53] = [
    "",
    "nonsense",
    "replay",
    "replay --nonsense file",
    "replay --format xml file",
    "replay --at yesterday file",
    "replay --every soon file",
    "replay --internal 10.0.0.0/99 file",
    "replay --internal nowhere file",
    "replay --min-samples 0 file",
    "replay --min-samples many file",
    "replay --min-connections -1 file",
    "replay --rule best file",
    "replay --compare liss,best file",
    "replay --mss 0 file",
    "replay --mss 99999999999 file",
    "replay --tunnels warp file",
    "replay --tunnels vxlan:99999 file",
    "replay --sort size file",
    "replay --prefix-list garbage.pcap file",
    "run nonsense",
    "run --config",
    "password",
    "password a:b",
    "cert",
    "cert nonsense",
    "cert init --days 0",
    "cert init --days many",
    "cert issue",
    "cert issue host --days 40000",
    "cert issue host --server",
    "cert revoke",
    "check-config type.toml value.toml",
    "doctor --seconds 0",
    "doctor --seconds ten",
    "check-config none.toml",
    "check-config address.toml",
    "check-config open-admin.toml",
    "check-config rule.toml",
    "check-config prefix.toml",
    "check-config server.toml",
    "check-config secret.toml",
    "check-config name.toml",
    "check-config tls.toml",
    "check-config passwords.toml",
    "check-config passwords-binary.toml",
    "check-config passwords-folder.toml",
    "check-config prefixes.toml",
    "check-config prefixes-binary.toml",
    "check-config tls-binary.toml",
    "check-config secret-binary.toml",
    "run --config none.toml",
    "run --config tls.toml",
];

pub(super) fn gateway() -> Result<()> {
    let place = Place::new()?;
    for (file, text) in GATEWAYS {
        place.write(file, text.as_bytes())?;
    }
    place.refuses("spand-gateway", 64, &WRONG_TO_THE_GATEWAY)?;
    place.refuses(
        "spand-gateway",
        1,
        &[
            "check-config missing.toml",
            "check-config folder",
            "run --config missing.toml",
            "run --config folder",
            "run --config interface.toml",
            "run --config store.toml",
            "replay --config missing.toml file",
            "replay --prefix-list missing.txt file",
            "replay --prefix-list folder file",
            "replay missing.pcap",
            "replay folder",
            "replay missing.pcap folder garbage.pcap",
            "cert init --dir file",
            "cert issue host --dir missing",
            "cert issue host --dir folder",
            "cert revoke missing.pem --dir folder",
            "cert revoke garbage.pcap --dir missing",
        ],
    )?;
    for (file, _) in CONFIGURATIONS {
        place.refuse("spand-gateway", 64, &["check-config", file])?;
        place.refuse("spand-gateway", 64, &["run", "--config", file])?;
        place.refuse("spand-gateway", 64, &["replay", "--config", file, "file"])?;
        place.refuse("spand-gateway", 2, &["doctor", "--seconds", "1", "--config", file])?;
    }
    for (file, _) in CAPTURES {
        place.refuse("spand-gateway", 1, &["replay", file])?;
        place.refuse("spand-gateway", 1, &["replay", "--format", "json", file])?;
    }
    place.refuse("spand-gateway", 1, &["replay", "-"])?;
    place.judge()
}

pub(super) fn agent() -> Result<()> {
    let place = Place::new()?;
    for (file, text) in [
        ("url.toml", "[gateway]\nurl = \"nowhere\"\n"),
        ("scheme.toml", "[gateway]\nurl = \"ftp://gateway:7400\"\n"),
        ("mode.toml", "mode = \"bold\"\n"),
        ("prefix.toml", "[destinations]\ninclude = [\"10.0.0.0/99\"]\n"),
        ("tls.toml", "[gateway]\nurl = \"https://127.0.0.1:1\"\n[tls]\nca = \"missing.pem\"\n"),
        ("tls-binary.toml", "[gateway]\nurl = \"https://127.0.0.1:1\"\n[tls]\nca = \"binary.toml\"\n"),
        (
            "state.toml",
            "apply = \"dry_run\"\nstate_dir = \"file/state\"\n[gateway]\nurl = \"http://127.0.0.1:1\"\nplain_text = true\n",
        ),
        (
            "cgroup.toml",
            "apply = \"bpf\"\nstate_dir = \"state\"\n[gateway]\nurl = \"http://127.0.0.1:1\"\nplain_text = true\n[bpf]\ncgroup = \"/nothing\"\n",
        ),
        ("plain.toml", "state_dir = \"state\"\n[gateway]\nurl = \"http://127.0.0.1:1\"\nplain_text = true\n"),
    ] {
        place.write(file, text.as_bytes())?;
    }
    place.refuses(
        "spand-agent",
        64,
        &[
            "",
            "nonsense",
            "status --nonsense",
            "query",
            "query 198.51.100.1 --bytes many",
            "query 198.51.100.1 --mss 0",
            "query 198.51.100.1 --gateway nowhere",
            "query 198.51.100.1 --gateway ftp://gateway",
            "query 198.51.100.1 --handshake-ms soon",
            "explain",
            "pause --for ever",
            "pause --for 0s",
            "pause --for 9999days",
            "check-config url.toml",
            "check-config scheme.toml",
            "check-config mode.toml",
            "check-config prefix.toml",
            "check-config tls.toml",
            "check-config tls-binary.toml",
            "run --config url.toml",
            "run --config mode.toml",
            "run --config cgroup.toml",
        ],
    )?;
    place.refuses(
        "spand-agent",
        1,
        &[
            "check-config missing.toml",
            "check-config folder",
            "run --config missing.toml",
            "run --config folder",
            "run --config state.toml",
            "status --socket missing.sock",
            "status --socket file",
            "status --socket folder",
            "metrics --socket missing.sock",
            "explain 198.51.100.1 --socket missing.sock",
            "explain name.invalid --socket missing.sock",
            "pause --socket missing.sock",
            "resume --socket missing.sock",
            "query 198.51.100.1 --config plain.toml",
            "query name.invalid --config plain.toml",
        ],
    )?;
    for (file, _) in CONFIGURATIONS {
        place.refuse("spand-agent", 64, &["check-config", file])?;
        place.refuse("spand-agent", 64, &["run", "--config", file])?;
        place.refuse("spand-agent", 2, &["doctor", "--config", file])?;
        // They do without it, and there is no agent.
        place.refuse("spand-agent", 1, &["status", "--config", file, "--socket", "missing.sock"])?;
    }
    for answer in ["", "garbage\n", "\x00\n", "{\"status\": 7}\n", "{\"error\": \"it is tired\"}\n"] {
        let socket = place.folder.path().join("agent.sock");
        _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket)?;
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                _ = stream.read(&mut [0; 4_096]).and_then(|_| stream.write_all(answer.as_bytes()));
            }
        });
        let asks = ["status", "metrics", "explain 198.51.100.1", "pause", "resume"];
        place.refuses(
            "spand-agent",
            1,
            &asks.map(|ask| format!("{ask} --socket agent.sock")).each_ref().map(String::as_str),
        )?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}", listener.local_addr()?);
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                _ = stream.read(&mut [0; 4_096]).and_then(|_| stream.write_all(answer.as_bytes()));
            }
        });
        place.refuse("spand-agent", 1, &["query", "198.51.100.1", "--config", "plain.toml", "--gateway", &url])?;
    }
    place.judge()
}

pub(super) fn shows() -> Result<()> {
    let place = Place::new()?;
    let (demo, dashboard, benefit) =
        (env!("CARGO_BIN_EXE_demo"), env!("CARGO_BIN_EXE_dashboard"), env!("CARGO_BIN_EXE_benefit"));
    place.refuses(demo, 64, &["--nonsense", "nonsense", "--way ftp", "--out"])?;
    place.refuses(
        demo,
        1,
        &["--out file", "--out file/folder", "--gateway missing", "--gateway file", "--gateway folder"],
    )?;
    place.refuses(dashboard, 64, &["--nonsense", "--listen nowhere", "--networks many"])?;
    place.refuses(dashboard, 1, &["--listen 192.0.2.1:7480"])?;
    place.refuses(benefit, 64, &["--nonsense", "--seed many", "--way ftp", "--start best", "--keep folder"])?;
    place.refuses(
        benefit,
        1,
        &[
            "--one nothing",
            "--scenarios nothing",
            "--report --out missing",
            "--start buffer --way route",
            "--one quick --agent-config missing.toml",
            "--one quick --keep file",
            "--one quick --gateway missing",
        ],
    )?;
    place.judge()
}

/// Configurations with a slip of the pen, and what the sentence about each names.
const SLIPS: [(&str, &str, &str, &str); 13] = [
    ("spand-gateway", "[estimate]\nmin_samples = three\n", "line 2: min_samples: `three`", "a number, true, false"),
    ("spand-gateway", "[log]\nfilter = \"info\"\n\n[log]\n", "line 4: `[log]` stands here twice", "first in line 1"),
    ("spand-gateway", "[log]\nfilter = \"info\"\nfilter = \"warn\"\n", "`filter` stands here twice", "first in line 2"),
    (
        "spand-gateway",
        "[estimate]\nrule = \"robst\"\n",
        "estimate.rule: unknown value `robst`",
        "did you mean `robust`?",
    ),
    ("spand-gateway", "[log]\nfilter = \"loud\"\n", "log.filter `loud` is no level", "info"),
    ("spand-gateway", "[api]\nhttp_listen = \"7480\"\n", "api.http_listen: `7480`", "127.0.0.1:7400"),
    ("spand-agent", "addresses = [\"192.0.2.0/24\"]\n", "addresses: `192.0.2.0/24` is no IP address", "192.0.2.7"),
    (
        "spand-agent",
        "[metrics]\nlisten = \"7481\"\n",
        "metrics.listen: `7481` is no address with a port",
        "127.0.0.1:7481",
    ),
    ("spand-agent", "[bpf]\nbbr = true\n", "bpf.bbr: `true` is no text in quotes", "expected `window` or `full`"),
    ("spand-agent", "mode = \"carefull\"\n", "mode: unknown value `carefull`", "did you mean `careful`?"),
    ("spand-agent", "mode = careful\n", "line 1: mode: `careful` is no value", "\"careful\""),
    ("spand-agent", "apply = \"ebpf\"\n", "apply: unknown value `ebpf`", "did you mean `bpf`?"),
    ("spand-agent", "apply = \"xdp\"\n", "apply: unknown value `xdp`", "expected one of `dry_run`"),
];

/// Command lines with a slip of the pen, the exit code, and what the sentence about each names.
const SLIPS_OF_LINES: [(&str, i32, &str); 11] = [
    ("spand-gateway check-config .", 1, "name the file in it"),
    ("spand-agent check-config folder", 1, "name the file in it"),
    ("spand-gateway status --watch soon", 64, "such as 5 or 5s"),
    ("spand-gateway status --watch 2h", 64, "1 to 3600 whole seconds"),
    ("spand-gateway network --watch 192.0.2.0/24", 64, "write the prefix before --watch"),
    ("spand-gateway replay --min-samples 0 file", 64, "a whole number, at least 1"),
    ("spand-gateway replay --min-connections few file", 64, "a whole number, at least 1"),
    ("spand-gateway completions csh", 64, "bash"),
    ("spand-agent query 198.51.100.1 --bytes 100x", 64, "such as 100k"),
    ("spand-agent explain 198.51.100.1 --bytes 0", 64, "such as 100k"),
    ("spand-agent help nonsense", 64, "nonsense"),
];

/// Each slip gets one sentence that names the thing and the way out; what people expect to work does.
pub(super) fn slips() -> Result<()> {
    let place = Place::new()?;
    for (program, text, names, way_out) in SLIPS {
        place.write("slip.toml", text.as_bytes())?;
        place.names(program, 64, &["check-config", "slip.toml"], &[names, way_out])?;
    }
    for (line, code, way_out) in SLIPS_OF_LINES {
        let mut words = line.split_whitespace();
        let program = words.next().unwrap_or_default();
        place.names(program, code, &words.collect::<Vec<_>>(), &[way_out])?;
    }
    // A server of the other protocol: the gateway's socket for agents is HTTP/2, and its port for people HTTP/1.
    let listener = UnixListener::bind(place.folder.path().join("gateway.sock"))?;
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            _ = stream.write_all(b"\x00\x00\x18\x04\x00\x00\x00\x00\x00\xff\xff\n");
        }
    });
    let way_out = ["gateway.sock is not the control socket of an agent", "--socket"];
    place.names("spand-agent", 1, &["status", "--socket", "gateway.sock"], &way_out)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            _ = stream.read(&mut [0; 4_096]);
            _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    place.write("plain.toml", b"state_dir = \"state\"\n")?;
    let query = ["query", "198.51.100.1", "--config", "plain.toml", "--gateway", &url];
    place.names("spand-agent", 1, &query, &[&url, "api.grpc_listen"])?;
    place.write("list", b"192.0.2.0/24\n")?;
    place.write("list.toml", b"[capture]\ninterfaces = [\"lo\"]\n[traffic]\nprefix_list = \"list\"\n")?;
    place.write("none.toml", b"[capture]\ninterfaces = [\"lo\"]\n")?;
    for (line, prints) in [
        ("spand-gateway help", "Usage: spand-gateway"),
        ("spand-gateway help cert issue", "Usage: spand-gateway cert issue"),
        ("spand-agent help query", "such as 100k"),
        ("spand-gateway completions bash", "spand-gateway"),
        ("spand-agent completions zsh", "#compdef spand-agent"),
        ("spand-gateway check-config list.toml", "(traffic.prefix_list) has 1 prefix."),
        ("spand-gateway check-config none.toml", "networks are /24 and /48"),
    ] {
        let mut words = line.split_whitespace();
        let program = place.folder.path().join(words.next().unwrap_or_default());
        let output = run(&program, &words.collect::<Vec<_>>(), place.folder.path())?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success() && text.contains(prints), "{line}: no `{prints}` in {text}");
    }
    place.judge()
}

/// A folder with links to both programs and files of many kinds, and what was wrong so far.
struct Place {
    folder: TempDir,
    faults: RefCell<Vec<String>>,
}

impl Place {
    fn new() -> Result<Self> {
        let place = Self { folder: tempfile::tempdir()?, faults: RefCell::default() };
        link_programs(place.folder.path())?;
        for (file, bytes) in CONFIGURATIONS.iter().chain(&CAPTURES) {
            place.write(file, bytes)?;
        }
        place.write("file", b"")?;
        fs::create_dir(place.folder.path().join("folder"))?;
        Ok(place)
    }

    fn write(&self, file: &str, bytes: &[u8]) -> Result<()> {
        fs::write(self.folder.path().join(file), bytes).with_context(|| format!("cannot write {file}"))
    }

    /// Each line is a command line.
    fn refuses(&self, program: &str, code: i32, lines: &[&str]) -> Result<()> {
        lines.iter().try_for_each(|line| self.refuse(program, code, &line.split_whitespace().collect::<Vec<_>>()))
    }

    /// The same, with all of these words.
    fn names(&self, program: &str, code: i32, arguments: &[&str], words: &[&str]) -> Result<()> {
        self.refuse(program, code, arguments)?;
        let output = run(&self.folder.path().join(program), arguments, self.folder.path())?;
        let err = String::from_utf8_lossy(&output.stderr);
        let lacking = words.iter().filter(|word| !err.contains(**word));
        let lacking = lacking.map(|word| format!("{program} {} printed no `{word}`:\n{err}", arguments.join(" ")));
        self.faults.borrow_mut().extend(lacking);
        Ok(())
    }

    fn refuse(&self, program: &str, code: i32, arguments: &[&str]) -> Result<()> {
        let program = self.folder.path().join(program);
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let output = run(&program, arguments, self.folder.path())?;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let fault = |what: &str| format!("{name} {} {what} ({}):\n{out}{err}", arguments.join(" "), output.status);
        let mut faults = self.faults.borrow_mut();
        if output.status.code() != Some(code) {
            faults.push(fault(&format!("did not end with {code}")));
        }
        // Without any command the help is the answer, and a doctor's findings are on standard output.
        let sentences = err.lines().filter(|line| line.starts_with("error: ")).count();
        if sentences != 1 && code != 2 && !err.contains("\n\nUsage: ") {
            faults.push(fault(&format!("printed {sentences} sentences")));
        }
        for text in [&out, &err] {
            let of_rust = OF_RUST.iter().find(|of_rust| text.contains(**of_rust)).copied();
            faults.extend(of_rust.or_else(|| path_of_type(text)).map(|of_rust| fault(&format!("printed `{of_rust}`"))));
        }
        Ok(())
    }

    /// Fails where something was wrong.
    fn judge(self) -> Result<()> {
        let faults = self.faults.into_inner();
        ensure!(faults.is_empty(), "{}", faults.join("\n"));
        Ok(())
    }
}

/// `std::io::Error`, and not the address `2001:db8::1`.
fn path_of_type(text: &str) -> Option<&str> {
    let is_name =
        |part: &str| part.chars().all(|c| c.is_alphanumeric() || c == '_') && part.contains(|c: char| c > 'f');
    let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    words.into_iter().find(|word| word.contains("::") && word.split("::").any(is_name))
}

fn run(program: &Path, arguments: &[&str], folder: &Path) -> Result<Output> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).env("RUST_BACKTRACE", "1");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let begin = Instant::now();
    while child.try_wait()?.is_none() {
        if begin.elapsed() > LONGEST {
            child.kill()?;
            bail!("{} {} went on: {:?}", program.display(), arguments.join(" "), child.wait_with_output()?);
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(child.wait_with_output()?)
}
