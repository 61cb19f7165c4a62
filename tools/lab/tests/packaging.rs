//! packaging/systemd and the configurations in docs/topology.md, as shipped.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use weir_lab::bird::packaged;
use weir_lab::process::{Finished, run};
use weir_lab::{Lab, Namespace, WeirConfig, veth, wait_for, weir};
use weir_routes::dump;

const DEADLINE: Duration = Duration::from_secs(60);
const STEERING_NODE: &str = env!("CARGO_BIN_EXE_steering_node");
/// User and group id without any rights.
const USER: &str = "65534";

/// A directory that is removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A leftover lies in the system's directory for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns a unit that runs the programs under test, with its files in `folder` instead of
/// /etc/weir.
fn unit(name: &str, folder: &Path) -> String {
    let (commands, node) = (weir::binary().unwrap(), weir::node_binary().unwrap());
    let text = packaged(&format!("systemd/{name}")).unwrap();
    text.replace("/usr/bin/weir-node ", &format!("{} ", node.display()))
        .replace("/usr/bin/weir ", &format!("{} ", commands.display()))
        .replace("/etc/weir", &folder.display().to_string())
}

/// Returns all values of a key, in file order.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    let lines = unit.lines().filter_map(|line| line.split_once('='));
    lines.filter(|(name, _)| *name == key).flat_map(|(_, it)| it.split_whitespace()).collect()
}

fn finished(program: &str, arguments: &[&str]) -> Finished {
    run(Command::new(program).args(arguments), DEADLINE).unwrap()
}

fn is_there(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|path| path.join(program).is_file())
}

/// Returns the libraries that a program is linked to, by ldd.
fn libraries(program: &Path) -> String {
    let linked = finished("ldd", &[&program.display().to_string()]);
    assert!(linked.status.success(), "{}: {}", program.display(), linked.stderr);
    linked.stdout
}

/// Commands and controller run on machines that have neither DPDK nor libpcap.
#[test]
fn weir_is_linked_to_no_library_of_the_data_path_and_weir_node_is() {
    let commands = libraries(&weir::binary().unwrap());
    for library in ["librte_", "libpcap", "libnuma", "libbpf", "libxdp"] {
        assert!(!commands.contains(library), "{library}:\n{commands}");
    }
    let node = libraries(&weir::node_binary().unwrap());
    assert!(node.contains("librte_"), "{node}");
}

#[test]
fn systemd_takes_the_units() {
    if !is_there("systemd-analyze") {
        println!("no systemd here: only what stands in the units is tested");
        return;
    }
    let folder = Folder::new("units");
    let node = folder.write("weir@edge1.service", &unit("weir@.service", &folder.0));
    let drop_in = packaged("systemd/weir-af_xdp.conf").unwrap();
    folder.write("weir@.service.d/af_xdp.conf", &drop_in);
    let controller = unit("weir-controller.service", &folder.0);
    let controller = folder.write("weir-controller.service", &controller);
    let arguments = ["verify", "--man=no", "--recursive-errors=no", &node, &controller];
    let verified = finished("systemd-analyze", &arguments);
    assert!(verified.status.success() && verified.stderr.is_empty(), "{}", verified.stderr);
}

#[test]
fn node_unit_runs_a_file_of_etc_and_does_not_retry_hopeless_starts() {
    let folder = Folder::new("node-unit");
    let unit = unit("weir@.service", &folder.0).replace("%i", "edge1");
    let command = values(&unit, "ExecStart");
    let absent = finished(command[0], &command[1..]);
    assert_eq!(absent.status.code(), Some(10), "{}", absent.stderr);
    assert!(absent.stderr.contains("edge1.toml"), "{}", absent.stderr);

    let never = values(&unit, "RestartPreventExitStatus");
    assert!(never.contains(&"10"), "{never:?}");
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    let guide = fs::read_to_string(guide).unwrap();
    for code in never {
        assert!(guide.contains(&format!("\n| {code} | ")), "exit code {code} is not documented");
    }
}

#[test]
fn the_controller_unit_and_its_environment_fit_the_command() {
    let folder = Folder::new("controller-unit");
    let unit = unit("weir-controller.service", &folder.0);
    let environment = packaged("systemd/controller.env").unwrap();
    let environment = environment.replace("/etc/weir", &folder.0.display().to_string());
    let settings = || environment.lines().filter_map(|line| line.split_once('='));
    let options = settings().find(|(name, _)| *name == "WEIR_CONTROLLER_OPTIONS").unwrap().1;
    let command = values(&unit, "ExecStart").join(" ");
    let command = command.replace("$WEIR_CONTROLLER_OPTIONS", options);
    let words: Vec<_> = command.split_whitespace().collect();
    let mut controller = Command::new(words[0]);
    controller.args(&words[1..]).envs(settings());
    // The command accepts all arguments, up to the first file that does not exist.
    let refused = run(&mut controller, DEADLINE).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("etcd-ca.pem cannot be read"), "{}", refused.stderr);
}

/// Returns a command line that switches to an ordinary user with these capabilities and no others.
fn without_root(capabilities: &[&str]) -> Vec<String> {
    let names = capabilities.iter().filter_map(|name| name.strip_prefix("CAP_"));
    let kept: String = names.map(|name| format!(",+{}", name.to_lowercase())).collect();
    let user = ["--reuid", USER, "--regid", USER, "--clear-groups", "--no-new-privs"];
    let sets = ["bounding-set", "inh-caps", "ambient-caps"];
    let sets = sets.iter().map(|set| format!("--{set}=-all{kept}"));
    user.iter().map(|&word| word.to_owned()).chain(sets).collect()
}

/// Opens the lab's directory to all users and copies the program there: its own directory may be
/// accessible to root only.
fn open_to_all(lab: &Lab, program: &Path) -> Result<PathBuf> {
    fs::set_permissions(lab.directory(), Permissions::from_mode(0o777))?;
    let copy = lab.directory().join("program");
    fs::copy(program, &copy)?;
    Ok(copy)
}

fn checked(lab: &Lab, result: Result<()>) {
    if let Err(error) = result {
        panic!("{error:#}\n{}", lab.logs());
    }
}

#[test]
fn a_node_on_kernel_interfaces_needs_the_capabilities_of_its_unit_and_no_root() {
    let lab = Lab::open().unwrap();
    checked(&lab, (|| node_without_root(&lab, &lab.namespace("weir")?, &lab.namespace("net")?))());
}

fn node_without_root(lab: &Lab, inside: &Namespace, outside: &Namespace) -> Result<()> {
    for (port, network) in [("acc0", "10.1.0.2/24"), ("net0", "10.2.0.2/24")] {
        veth::connect((inside, port), (outside, port))?;
        outside.ip(&format!("addr add {network} dev {port}"))?;
    }
    let program = open_to_all(lab, &weir::node_binary()?)?;
    let config = lab.directory().join("weir.toml");
    fs::write(&config, WeirConfig::default().render(lab.directory()))?;
    let (node, drop_in) =
        (packaged("systemd/weir@.service")?, packaged("systemd/weir-af_xdp.conf")?);
    let capabilities =
        [values(&node, "AmbientCapabilities"), values(&drop_in, "AmbientCapabilities")].concat();
    let mut command = inside.command("setpriv");
    command.args(without_root(&capabilities)).arg(program);
    command.args(["run", "--config"]).arg(&config);
    let process = lab.start("node", &mut command)?;
    process.wait_line("ready", DEADLINE)?;
    outside.run(DEADLINE, "ping", &["-c", "1", "-W", "5", "10.1.0.1"])?.success()?;
    process.signal(Signal::SIGTERM)?;
    let status = process.wait(DEADLINE)?;
    ensure!(status.success(), "{status}");
    Ok(())
}

#[test]
fn the_guard_of_the_routes_needs_cap_net_admin_alone() {
    let lab = Lab::open().unwrap();
    checked(&lab, guard_without_root(&lab));
}

fn guard_without_root(lab: &Lab) -> Result<()> {
    let namespace = lab.namespace("node")?;
    let program = open_to_all(lab, Path::new(STEERING_NODE))?;
    let unit = packaged("systemd/weir@.service")?;
    ensure!(values(&unit, "AmbientCapabilities").contains(&"CAP_NET_ADMIN"), "{unit}");
    let orders = lab.directory().join("orders");
    let mut command = namespace.command("setpriv");
    command.args(without_root(&["CAP_NET_ADMIN"])).arg(program);
    command.arg("node").arg(&orders).args(["1", "1000"]);
    let process = lab.start("node", &mut command)?;
    process.wait_words("guard ", DEADLINE)?;
    let order = "set 0 access,10.100.0.1/32,10.9.0.11,100";
    wait_for("socket for orders", DEADLINE, || orders.exists().then_some(()))?;
    UnixDatagram::unbound()?.send_to(order.as_bytes(), &orders)?;
    process.wait_line(&format!("done: {order}"), DEADLINE)?;
    let routes = namespace.enter(|| Ok(dump(4242)?))?;
    ensure!(routes.len() == 1, "{routes:?}");
    Ok(())
}

/// Returns the blocks of the guide that are marked with this word.
fn blocks(mark: &str) -> String {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/topology.md");
    let guide = fs::read_to_string(guide).unwrap();
    let begin = format!("```{mark}\n");
    let rests = guide.split(&begin).skip(1);
    let blocks: Vec<_> = rests.filter_map(|rest| rest.split("```").next()).collect();
    assert!(!blocks.is_empty(), "no block of {mark} in docs/topology.md");
    blocks.join("\n")
}

#[test]
fn bird_and_frr_accept_shipped_files_and_additions_of_the_guide() {
    let folder = Folder::new("guide");
    // weir.conf includes it.
    folder.write("weir6.conf", &packaged("bird/weir6.conf").unwrap());
    let birds = [
        ("bird/weir.conf", "bird"),
        ("switch/bird-access.conf", "bird-switch"),
        ("switch/bird-internet.conf", "bird-switch"),
    ];
    for (file, mark) in birds {
        let text = packaged(file).unwrap() + &blocks(mark);
        let parsed = finished("bird", &["-p", "-c", &folder.write("bird.conf", &text)]);
        assert!(parsed.status.success(), "{mark}: {}", parsed.stderr);
    }
    for side in ["access", "internet"] {
        let text = packaged(&format!("switch/frr-{side}.conf")).unwrap() + &blocks("frr");
        let parsed = finished("vtysh", &["-C", "-f", &folder.write("frr.conf", &text)]);
        assert!(parsed.status.success(), "frr: {}{}", parsed.stdout, parsed.stderr);
    }
}
