//! Which cluster a command is about, and how its etcd is reached.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use weir_cluster::{Cluster, Options, TlsFiles, User};
use weir_controller::operate::Operator;

/// For every command that reads or writes the keys of a cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct EtcdArgs {
    /// Name of the cluster; without it, $WEIR_CLUSTER.
    #[arg(long, value_name = "NAME", global = true)]
    cluster: Option<String>,
    /// Members of etcd, separated by commas; without it, $WEIR_ETCD.
    #[arg(long, value_name = "URL", value_delimiter = ',', global = true)]
    etcd: Vec<String>,
    /// Authorities that etcd's certificate is checked against, PEM.
    #[arg(long, value_name = "FILE", global = true)]
    etcd_ca: Option<PathBuf>,
    /// Our certificate, PEM.
    #[arg(long, value_name = "FILE", global = true, requires_all = ["etcd_ca", "etcd_key"])]
    etcd_cert: Option<PathBuf>,
    /// The key of our certificate, PEM.
    #[arg(long, value_name = "FILE", global = true, requires = "etcd_cert")]
    etcd_key: Option<PathBuf>,
    /// User of etcd; its password is $WEIR_ETCD_PASSWORD.
    #[arg(long, value_name = "NAME", global = true)]
    etcd_user: Option<String>,
}

impl EtcdArgs {
    /// Starts the connection; does not wait for etcd.
    ///
    /// # Errors
    /// When something is missing or wrong.
    pub(crate) fn connect(&self) -> anyhow::Result<Cluster> {
        let from_environment = |name: &str| std::env::var(name).ok().filter(|it| !it.is_empty());
        let name = self.cluster.clone().or_else(|| from_environment("WEIR_CLUSTER"));
        let name = name.context("which cluster? --cluster NAME or $WEIR_CLUSTER")?;
        let mut endpoints = self.etcd.clone();
        if endpoints.is_empty() {
            let members = from_environment("WEIR_ETCD");
            let members = members.context("which etcd? --etcd URL,... or $WEIR_ETCD")?;
            endpoints = members.split(',').map(str::to_owned).collect();
        }
        let mut options = Options::new(name.parse()?, endpoints, random()? as u64);
        options.tls = self.etcd_ca.as_ref().map(|ca| TlsFiles {
            ca: ca.clone(),
            client: self.etcd_cert.clone().zip(self.etcd_key.clone()),
            server_name: None,
        });
        if let Some(name) = self.etcd_user.clone() {
            let password = from_environment("WEIR_ETCD_PASSWORD");
            let password = password.context("the user of etcd needs $WEIR_ETCD_PASSWORD")?;
            options.user = Some(User { name, password });
        }
        Cluster::start(options, || ()).map_err(|errors| {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            anyhow::anyhow!("{}", errors.join("; "))
        })
    }

    /// Runs what an operator asks for.
    ///
    /// # Errors
    /// Of the connection and of `ask`.
    pub(crate) fn operate<T, E>(
        &self,
        ask: impl AsyncFnOnce(Operator) -> Result<T, E>,
    ) -> anyhow::Result<T>
    where
        anyhow::Error: From<E>,
    {
        let cluster = self.connect()?;
        let operator = Operator::new(cluster.store(), &who());
        Ok(cluster.handle().block_on(ask(operator))?)
    }
}

/// Who orders and events show: the person behind sudo, at this machine.
pub(crate) fn who() -> String {
    let names = ["SUDO_USER", "USER", "LOGNAME"].iter();
    let name = names.filter_map(|name| std::env::var(name).ok()).find(|name| !name.is_empty());
    format!("{}@{}", name.unwrap_or_else(|| "somebody".into()), machine())
}

/// Name of this machine.
pub(crate) fn machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "unknown".into() } else { name.trim().to_owned() }
}

/// 128 bits that no other process has.
///
/// # Errors
/// When the system gives none.
pub(crate) fn random() -> anyhow::Result<u128> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes))?;
    Ok(u128::from_ne_bytes(bytes))
}

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
