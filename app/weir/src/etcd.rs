//! Finds the cluster that a command is about, and connects to its etcd.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use weir_config::{ConfigFile, MembershipSettings};
use weir_controller::operate::Operator;
use weir_etcd::{Cause, EtcdCluster, EtcdOptions, Key, Password, Store, TlsFiles, User};

/// Number of tries to connect to a member that answers.
const MEMBER_TRIES: usize = 4;
/// Pause after a try: longer than the connection itself pauses then.
const MEMBER_PAUSE: Duration = Duration::from_millis(500);

/// For every command that reads or writes the keys of a cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct EtcdArgs {
    /// A node's file, which tells all that follows.
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
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
    /// Whether the command line says which cluster or etcd is meant.
    pub(crate) fn is_given(&self) -> bool {
        self.config.is_some() || self.cluster.is_some() || !self.etcd.is_empty()
    }

    /// Starts the connection; does not wait for etcd.
    ///
    /// # Errors
    /// When an argument is missing or wrong.
    pub(crate) fn connect(&self) -> anyhow::Result<EtcdCluster> {
        self.connect_to(None)
    }

    /// As [`connect`](Self::connect); `known` is the name of the cluster, if it is known from
    /// elsewhere than the arguments.
    fn connect_to(&self, known: Option<&str>) -> anyhow::Result<EtcdCluster> {
        let file = self.config.as_deref().map(membership).transpose()?;
        let name = self.name(known, file.as_ref())?;
        let endpoints = self.endpoints(file.as_ref())?;
        let mut options = EtcdOptions::new(name.parse()?, endpoints, random()? as u64);
        options.tls = match &self.etcd_ca {
            Some(ca) => {
                let client = self.etcd_cert.clone().zip(self.etcd_key.clone());
                Some(TlsFiles { ca: ca.clone(), client, server_name: None })
            }
            None => file.as_ref().and_then(|file| file.tls.clone()).map(|files| TlsFiles {
                ca: files.ca,
                client: files.client,
                server_name: files.server_name,
            }),
        };
        options.user = self.user(file.as_ref())?;
        EtcdCluster::start(options, || ()).map_err(|errors| {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            anyhow::anyhow!("{}", errors.join("; "))
        })
    }

    fn name(
        &self,
        known: Option<&str>,
        file: Option<&MembershipSettings>,
    ) -> anyhow::Result<String> {
        let given = self.cluster.clone().or_else(|| file.map(|file| file.name.clone()));
        let given = given.or_else(|| from_environment("WEIR_CLUSTER"));
        match (known, given) {
            (Some(known), Some(given)) if known != given => {
                bail!("the file is of cluster {known}, but cluster {given} is asked for")
            }
            (Some(known), _) => Ok(known.to_owned()),
            (None, given) => given.context("which cluster? --cluster NAME or $WEIR_CLUSTER"),
        }
    }

    fn endpoints(&self, file: Option<&MembershipSettings>) -> anyhow::Result<Vec<String>> {
        match file {
            _ if !self.etcd.is_empty() => Ok(self.etcd.clone()),
            Some(file) => Ok(file.etcd.clone()),
            None => {
                let members = from_environment("WEIR_ETCD");
                let members = members.context("which etcd? --etcd URL,... or $WEIR_ETCD")?;
                Ok(members.split(',').map(str::to_owned).collect())
            }
        }
    }

    fn user(&self, file: Option<&MembershipSettings>) -> anyhow::Result<Option<User>> {
        if let Some(name) = self.etcd_user.clone() {
            let password = from_environment("WEIR_ETCD_PASSWORD");
            let password = password.context("the user of etcd needs $WEIR_ETCD_PASSWORD")?;
            return Ok(Some(User { name, password: Password::Given(password) }));
        }
        let Some(user) = file.and_then(|file| file.user.clone()) else { return Ok(None) };
        Ok(Some(User { name: user.name, password: Password::File(user.password_file) }))
    }

    /// Connects to the cluster and runs `ask` on it.
    ///
    /// # Errors
    /// Those of the connection and of `ask`.
    pub(crate) fn operate<T, E>(
        &self,
        ask: impl AsyncFnOnce(Operator) -> Result<T, E>,
    ) -> anyhow::Result<T>
    where
        anyhow::Error: From<E>,
    {
        self.operate_on(None, ask)
    }

    /// As [`operate`](Self::operate), on the cluster of this name if it is known from elsewhere
    /// than the arguments.
    ///
    /// # Errors
    /// When the arguments name another cluster; those of the connection and of `ask`.
    pub(crate) fn operate_on<T, E>(
        &self,
        known: Option<&str>,
        ask: impl AsyncFnOnce(Operator) -> Result<T, E>,
    ) -> anyhow::Result<T>
    where
        anyhow::Error: From<E>,
    {
        let cluster = self.connect_to(known)?;
        let operator = Operator::new(cluster.store(), &who());
        cluster.handle().block_on(async {
            find_member(&cluster.store()).await;
            Ok(ask(operator).await?)
        })
    }
}

/// Looks for a member of etcd that answers. A member that is down or slow is no reason to give up:
/// each try uses the next one. If no member answers, the command itself reports it.
async fn find_member(store: &Store) {
    for _ in 1..MEMBER_TRIES {
        match store.get(&Key::Meta).await {
            Err(error) if matches!(error.cause, Cause::Unreachable | Cause::Timeout) => {
                sleep(MEMBER_PAUSE);
            }
            _ => return,
        }
    }
}

fn from_environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|it| !it.is_empty())
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// Returns the cluster settings in the file of a node.
fn membership(path: &Path) -> anyhow::Result<MembershipSettings> {
    let name = path.display().to_string();
    match weir_config::parse_file(&read(path)?, &name) {
        Ok((ConfigFile::Member(member), _)) => Ok(member.cluster),
        Ok(_) => bail!("{name} is not the file of a cluster's node: it has no [cluster] with etcd"),
        Err(errors) => bail!("{name} is not valid: {}; see `weir check {name}`", errors[0]),
    }
}

/// Returns the author that commands and events show: the person behind sudo, at this machine.
pub(crate) fn who() -> String {
    let names = ["SUDO_USER", "USER", "LOGNAME"].iter();
    let name = names.filter_map(|name| std::env::var(name).ok()).find(|name| !name.is_empty());
    format!("{}@{}", name.unwrap_or_else(|| "somebody".into()), machine())
}

/// Returns the name of this machine.
pub(crate) fn machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "unknown".into() } else { name.trim().to_owned() }
}

/// Returns 128 bits that no other process has.
///
/// # Errors
/// When the system gives none.
pub(crate) fn random() -> anyhow::Result<u128> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes))?;
    Ok(u128::from_ne_bytes(bytes))
}

/// Returns the milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
