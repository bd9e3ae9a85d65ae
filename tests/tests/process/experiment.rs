//! The experiment of `/v1/benefit` over restarts of a whole gateway.

use std::net::IpAddr;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use spand_proto::report::{Arm, ConnectionReport, PushCount, Report, Transport};
use spand_proto::units::{Bytes, Micros, Segments, Timestamp};
use spand_proto::v1::ReportRequest;
use spand_proto::v1::spand_client::SpandClient;
use spand_tests::lab::namespace::Namespace;
use spand_tests::networks::fill_store;
use spand_tests::product::{Api, Daemon};

use super::Case;
use super::stage::{Folder, metric, wait, wait_ready};

pub(super) const CASES: &[Case] = &[("the experiment outlives a gateway, killed or stopped", outlives)];

const REMOTE: [u8; 4] = [203, 0, 113, 1];
const STORE: &str = "state/store";
const CONFIG: &str = "[capture]\ninterfaces = [\"lo\"]\n\n[traffic]\ninternal = [\"198.51.100.0/24\"]\n\n[api]\ngrpc_listen = \"127.0.0.1:7400\"\n\n[store]\ndirectory = \
                      \"state/store\"\n";

/// One gateway after the other.
struct Site {
    namespace: Namespace,
    api: Api,
    folder: Folder,
}

impl Site {
    fn build() -> Result<Self> {
        let namespace = Namespace::create("gateway")?;
        let folder = Folder::new()?;
        // Transfers to a network that is not known are not taken.
        fill_store(&folder.path(STORE), &[IpAddr::from(REMOTE)])?;
        let api = Api { namespace: namespace.clone(), address: "127.0.0.1:7480".parse()? };
        Ok(Self { namespace, api, folder })
    }

    fn start(&self) -> Result<Daemon> {
        let mut gateway = self.folder.start("spand-gateway", CONFIG, &self.namespace)?;
        wait_ready(&mut gateway, &self.api, true)?;
        Ok(gateway)
    }

    /// Reports a batch, and gives how many of its transfers were taken.
    fn report(&self, batch: u64) -> Result<u32> {
        let request = ReportRequest::from(&batch_of(batch)?);
        self.namespace.enter(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut client = SpandClient::connect("http://127.0.0.1:7400").await?;
                Ok(client.report(request).await?.into_inner().accepted)
            })
        })
    }

    fn benefit(&self) -> Result<Value> {
        self.api.json("/v1/benefit")
    }

    /// Waits until this gateway saved the experiment.
    fn wait_saved(&self, gateway: &mut Daemon) -> Result<()> {
        let saved = || metric(&self.api, "spand_store_experiment_saved_total");
        wait(gateway, "the experiment is saved", || Ok((saved()? > 0.5).then_some(())))
    }

    fn reset(&self) -> Result<Output> {
        let config = self.folder.path("spand-gateway.toml");
        let mut command = Command::new(self.folder.path("spand-gateway"));
        Ok(command.arg("reset-experiment").arg("--config").arg(config).output()?)
    }
}

/// A batch of forty transfers, twenty of each arm.
fn batch_of(batch: u64) -> Result<Report> {
    let one = |n: u64| ConnectionReport {
        host: ([198, 51, 100, 1], 443).into(),
        remote: (REMOTE, 50_000).into(),
        ended_ago: Micros(0),
        duration: Some(Micros(100_000 + 7 * n * n + batch)),
        end_window: Some(Bytes(28_960 + n)),
        mss: Some(Bytes(1_448)),
        srtt: None,
        rtt_min: None,
        acknowledged: Bytes(100_000 + n),
        retransmitted: Segments(0),
        first_flight_loss: None,
        first_flight: None,
        limited_by: None,
        arm: Some(if n.is_multiple_of(2) { Arm::Advised } else { Arm::Control }),
        advised: None,
        refusal: None,
        paused: false,
        transport: Transport::Tcp,
        loss_window: None,
        congestion_events: 0,
        ended_in_slow_start: None,
        careful_resume: None,
    };
    Ok(Report {
        host_name: "web-1".to_owned().try_into()?,
        batch,
        agent_started: Timestamp(1),
        connections: (0..40).map(one).collect(),
        pushes: PushCount::default(),
        pause: None,
    })
}

fn transfers(document: &Value) -> u64 {
    let classes = document["classes"].as_array().into_iter().flatten();
    let of = |arm: &Value| arm["transfers"].as_u64().unwrap_or_default();
    classes.map(|class| of(&class["advised"]) + of(&class["control"])).sum()
}

fn outlives() -> Result<()> {
    let site = Site::build()?;
    let mut gateway = site.start()?;
    ensure!(site.report(1)? == 40, "the first batch is not taken");
    let first = site.benefit()?;
    ensure!(transfers(&first) == 40 && first["hosts"] == 1, "{first:#}");
    site.wait_saved(&mut gateway)?;
    kill(Pid::from_raw(i32::try_from(gateway.pid())?), Signal::SIGKILL)?;
    gateway.stop();

    let mut gateway = site.start()?;
    ensure!(site.benefit()? == first, "after a kill: {:#}, before it: {first:#}", site.benefit()?);
    ensure!(site.report(1)? == 0 && site.benefit()? == first, "a batch is counted again: {:#}", site.benefit()?);
    ensure!(metric(&site.api, "spand_report_batches_repeated_total")? > 0.5, "and not counted as repeated");
    ensure!(site.report(2)? == 40, "the second batch is not taken");
    site.wait_saved(&mut gateway)?;
    // Saved a moment ago: this one waits for the stop.
    ensure!(site.report(3)? == 40, "the third batch is not taken");
    let third = site.benefit()?;
    ensure!(transfers(&third) == 120 && third["since"] == first["since"], "{third:#}");
    let log = gateway.log();
    ensure!(log.contains("the experiment (/v1/benefit) continues") && log.contains("transfers=40"), "{log}");
    let end = gateway.stop();
    ensure!(end.contains("exit status: 0"), "{end}");

    let gateway = site.start()?;
    ensure!(site.benefit()? == third, "after a stop: {:#}, before it: {third:#}", site.benefit()?);
    ensure!(site.report(3)? == 0 && site.benefit()? == third, "a batch is counted again: {:#}", site.benefit()?);
    let refused = site.reset()?;
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.status.code() == Some(1) && stderr.contains("stop the gateway first"), "{refused:?}");
    gateway.stop();

    let reset = site.reset()?;
    let stdout = String::from_utf8_lossy(&reset.stdout).into_owned();
    let since = third["since"].as_str().context("it says no time")?;
    ensure!(reset.status.success(), "{reset:?}");
    ensure!(stdout.contains(&format!("removed the experiment since {since}, of 120 transfers and 1 host")), "{stdout}");
    let gateway = site.start()?;
    let restarted = site.benefit()?;
    ensure!(
        transfers(&restarted) == 0 && restarted["hosts"] == 0 && restarted["since"] != third["since"],
        "{restarted:#}"
    );
    // The network is known as before, and the batch is of no experiment any more.
    ensure!(site.report(1)? == 40 && transfers(&site.benefit()?) == 40, "the estimates went, too:\n{}", gateway.log());
    Ok(())
}
