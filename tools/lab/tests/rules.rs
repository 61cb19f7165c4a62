//! Rules, port forwards and addresses out of service, with kernel TCP stacks on both ends, while
//! settings change under traffic.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weir_lab::services::{SERVER, SERVER_ALTERNATE};
use weir_lab::{Access, Echo, Namespace, OneNode, Options, WeirConfig, exchange, wait_for};

const DEADLINE: Duration = Duration::from_secs(10);

const RULES: &str = r#"
[[set]]
name = "blocked"
file = "SET"

[[group]]
name = "business"
subscribers = ["10.200.0.2/32"]

[[rule]]
name = "mail-of-business"
groups = "business"
protocol = "tcp"
remote_port = 25
action = "accept"

[[rule]]
name = "no-smtp"
protocol = "tcp"
remote_port = 25
action = "reject"

[[rule]]
name = "court-orders"
from = "any"
remote = "@blocked"
action = "drop"

[[rule]]
name = "no-ping-of-the-third"
subscribers = "10.200.0.3"
protocol = "icmp"
action = "reject"
"#;

/// A node whose file the test changes.
struct Reloaded<'n> {
    net: &'n OneNode,
    /// The file of the start.
    start: String,
}

impl<'n> Reloaded<'n> {
    fn new(net: &'n OneNode) -> Result<Self> {
        Ok(Self { net, start: fs::read_to_string(net.weir.config_path())? })
    }

    /// Puts a file with further lines in force.
    fn reload(&self, lines: &str) -> Result<()> {
        fs::write(self.net.weir.config_path(), format!("{}{lines}", self.start))?;
        self.net.weir.cli(&["reload", "--force"])?.success().map(drop)
    }

    /// Returns how often a rule has decided.
    fn hits(&self, rule: &str) -> Result<u64> {
        let counts: serde_json::Value = serde_json::from_str(
            &self.net.weir.cli(&["rules", "hits", "--json"])?.success()?.stdout,
        )?;
        let counts = counts.as_array().context("a list")?;
        let count = counts.iter().find(|it| it["rule"] == rule).context("no such rule")?;
        count["hits_total"].as_u64().context("a number")
    }
}

fn at(address: Ipv4Addr, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(address, port)
}

/// Calls a public endpoint from the internet.
fn call(net: &OneNode, public: &str) -> Result<TcpStream> {
    let public: SocketAddr = public.parse()?;
    net.internet.enter(|| {
        let stream = TcpStream::connect_timeout(&public, Duration::from_secs(3))?;
        stream.set_read_timeout(Some(DEADLINE))?;
        Ok(stream)
    })
}

#[test]
fn rules_decide_on_real_connections_and_live_ones_go_on_when_they_come() {
    OneNode::test(&Options::default(), |net| {
        let node = Reloaded::new(net)?;
        let echo = Echo::udp(&net.internet, at(SERVER_ALTERNATE, 7000))?;
        let mail = Echo::tcp(&net.internet, at(SERVER, 25))?;
        let live = net.homes[0].udp(0)?;
        ensure!(exchange::udp(&live, echo.local(), b"before")?);
        let mut open = net.homes[0].tcp(0, mail.local())?;
        let set = net.lab.directory().join("blocked.txt");
        fs::write(&set, format!("# by court order\n{SERVER_ALTERNATE}\n"))?;
        let rules = RULES.replace("SET", &set.to_string_lossy());
        node.reload(&rules)?;
        ensure!(exchange::udp(&live, echo.local(), b"live flows go on")?);
        exchange::tcp(&mut open, b"so do live connections")?;

        ensure!(!exchange::udp(&net.homes[0].udp(0)?, echo.local(), b"new ones do not begin")?);
        let began = Instant::now();
        let refused = net.homes[0].tcp(0, mail.local()).err().context("it is refused")?;
        let kind = refused.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        ensure!(kind == Some(ErrorKind::ConnectionRefused), "{refused:#}");
        ensure!(began.elapsed() < Duration::from_secs(3), "a reset comes at once");
        exchange::tcp(&mut net.homes[1].tcp(0, mail.local())?, b"its group may")?;
        let pinged = net.homes[2].namespace.run(
            DEADLINE,
            "ping",
            &["-c", "1", "-W", "2", &SERVER.to_string()],
        )?;
        ensure!(pinged.stdout.contains("Packet filtered"), "type 3 code 13: {}", pinged.stdout);
        ensure!(node.hits("no-smtp")? == 1 && node.hits("mail-of-business")? == 1);
        ensure!(node.hits("court-orders")? >= 4, "each transmission of the datagram");
        ensure!(net.weir.drops("rule-reject")? >= 2);
        let series = "weir_rule_hits_total{rule=\"no-smtp\",action=\"reject\"} 1";
        wait_for("the rule's metric", DEADLINE, || {
            net.weir.metrics().ok()?.contains(series).then_some(())
        })?;

        let smtp = format!("{SERVER}:25");
        let asked = ["rules", "test", "home", "10.200.0.1", "tcp", "40000", &smtp];
        let told = net.weir.cli(&asked)?.stdout;
        ensure!(told.starts_with("reject: rule no-smtp ("), "{told}");
        ensure!(net.weir.cli(&["rules", "show"])?.stdout.contains("court-orders"));

        let next = net.lab.directory().join("next.toml");
        let dropped =
            format!("[[rule]]\nname = \"no-web\"\nremote = \"{SERVER}\"\naction = \"drop\"\n");
        fs::write(&next, format!("{}{dropped}", node.start))?;
        let told = net.weir.cli(&["rules", "diff", "--json", &next.to_string_lossy()])?.stdout;
        let told: serde_json::Value = serde_json::from_str(&told)?;
        let decisions = told["decisions"].as_array().context("a list")?;
        let stopped = decisions.iter().filter(|it| it["new"]["rule"] == "no-web");
        let stopped: u64 = stopped.filter_map(|it| it["live"].as_u64()).sum();
        ensure!(stopped >= 1 && told["live"].as_u64() > Some(stopped), "{told}");

        // The file of the set alone changes.
        fs::write(&set, "192.0.2.0/24\n")?;
        node.reload(&rules)?;
        ensure!(exchange::udp(&net.homes[0].udp(0)?, echo.local(), b"not blocked any more")?);
        fs::write(&set, "192.0.2.0/33\n")?;
        let broken = net.weir.cli(&["reload"])?;
        ensure!(
            !broken.status.success() && broken.stdout.contains("blocked.txt:1:1"),
            "{broken:?}"
        );
        ensure!(exchange::udp(&net.homes[0].udp(0)?, echo.local(), b"the former rules go on")?);
        Ok(())
    });
}

#[test]
fn forwards_reach_servers_of_homes_and_own_addresses_serve_both_ways() {
    OneNode::test(&Options::default(), |net| {
        let node = Reloaded::new(net)?;
        let home = &net.homes[1];
        let web = Echo::tcp(&home.namespace, at(home.inside, 8000))?;
        let phone = net.homes[2].udp(5060)?;
        ensure!(call(net, "203.0.113.5:8080").is_err(), "nothing is forwarded");
        node.reload(&format!(
            "[public]\nstatic = [\n\"{} tcp {}:8000 203.0.113.5:8080\",\n\"{} all {} 203.0.113.6\",\n]\n",
            home.outer, home.inside, net.homes[2].outer, net.homes[2].inside
        ))?;
        let mut calls = Vec::new();
        for n in 0..3_u8 {
            let mut stream = call(net, "203.0.113.5:8080")?;
            exchange::tcp(&mut stream, &[n; 3000])?;
            calls.push(stream);
        }
        ensure!(web.peers().len() == 3, "the callers' own addresses are seen");
        let mut own =
            net.homes[0].tcp(0, SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 5), 8080))?;
        exchange::tcp(&mut own, b"a home reaches it by its public address")?;

        // An address of its own: the home calls from it, and is called on it.
        let server = Echo::udp(&net.internet, at(SERVER, 7000))?;
        ensure!(exchange::udp(&phone, server.local(), b"out")?);
        ensure!(server.peers() == ["203.0.113.6:5060".parse::<SocketAddr>()?]);
        let caller: UdpSocket = net.internet.enter(|| Ok(UdpSocket::bind((SERVER, 9000))?))?;
        caller.set_read_timeout(Some(DEADLINE))?;
        caller.send_to(b"ring", "203.0.113.6:5060")?;
        let mut buffer = [0; 16];
        phone.set_read_timeout(Some(DEADLINE))?;
        let (length, from) = phone.recv_from(&mut buffer)?;
        ensure!(&buffer[..length] == b"ring" && from == SocketAddr::from((SERVER, 9000)));
        Ok(())
    });
}

#[test]
fn drained_and_quarantined_addresses_leave_homes_served() {
    OneNode::test(&Options::default(), |net| {
        let node = Reloaded::new(net)?;
        let echo = Echo::udp(&net.internet, at(SERVER, 7000))?;
        let home = &net.homes[0];
        let live = home.udp(4000)?;
        ensure!(exchange::udp(&live, echo.local(), b"before")?);
        let first = *echo.peers().last().context("a sender")?;
        node.reload(&format!("[public]\ndrain = [\"{}/32\"]\n", first.ip()))?;
        ensure!(exchange::udp(&live, echo.local(), b"live flows go on")?);
        ensure!(echo.peers() == [first]);
        // What is out of service is noted in the turns that follow.
        wait_for("a flow from another address", DEADLINE, || {
            let socket = home.udp(0).ok()?;
            exchange::udp(&socket, echo.local(), b"new").ok().filter(|is_there| *is_there)?;
            let peers = echo.peers();
            peers.last().filter(|peer| peer.ip() != first.ip()).map(drop)
        })?;
        node.reload(&format!("[public]\nquarantine = [\"{}/32\"]\n", first.ip()))?;
        wait_for("the flows of the address to end", DEADLINE, || {
            let args = ["--public", &first.ip().to_string()];
            net.weir.sessions(&args).ok().filter(|sessions| sessions.is_empty()).map(drop)
        })?;
        ensure!(exchange::udp(&live, echo.local(), b"its next packet opens it elsewhere")?);
        node.reload("")?;
        ensure!(exchange::udp(&home.udp(0)?, echo.local(), b"after")?);
        Ok(())
    });
}

#[test]
fn rule_with_rematch_ends_a_live_connection_and_a_group_has_its_own_limits() {
    const RULES: &str = "[[group]]\nname = \"few\"\nsubscribers = \"10.200.0.1\"\n\
        limits = { flows = 16 }\n\
        [[rule]]\nname = \"no-smtp\"\ngroups = \"few\"\nprotocol = \"tcp\"\nremote_port = 25\n\
        action = \"reject\"\nrematch = true\nlog = true\n";
    OneNode::test(&Options::default(), |net| {
        let node = Reloaded::new(net)?;
        let echo = Echo::udp(&net.internet, at(SERVER, 7000))?;
        let mail = Echo::tcp(&net.internet, at(SERVER, 25))?;
        let mut ended = net.homes[0].tcp(0, mail.local())?;
        let mut other = net.homes[1].tcp(0, mail.local())?;
        exchange::tcp(&mut ended, b"before")?;
        let next = net.lab.directory().join("next.toml");
        fs::write(&next, format!("{}{RULES}", node.start))?;
        let told = net.weir.cli(&["rules", "diff", &next.to_string_lossy()])?.stdout;
        ensure!(told.contains("decided otherwise: 1, that will end: 1"), "{told}");
        node.reload(RULES)?;
        ensure!(node.hits("no-smtp")? <= 1);
        let series = "weir_flow_rematched_total{worker=\"0\"} 1";
        wait_for("the end of the flow", DEADLINE, || {
            net.weir.metrics().ok()?.contains(series).then_some(())
        })?;
        let remote = format!("remote=\"{SERVER}:25\"");
        wait_for("its line in the log", DEADLINE, || {
            let log = net.weir.process().log();
            let line = log.lines().find(|line| line.contains("rule-log"))?;
            (line.contains("no-smtp") && line.contains(&remote)).then_some(())
        })?;
        ended.set_read_timeout(Some(Duration::from_secs(1)))?;
        ensure!(exchange::tcp(&mut ended, b"nobody hears it").is_err());
        exchange::tcp(&mut other, b"that of a home in no group goes on")?;

        for home in &net.homes[..2] {
            for _ in 0..40 {
                home.udp(0)?.send_to(b"a flow", echo.local())?;
            }
        }
        let held = |home: &str| -> Result<(u64, u64)> {
            let told = net.weir.cli(&["subscriber", "show", "--json", home])?.success()?.stdout;
            let told: serde_json::Value = serde_json::from_str(&told)?;
            let number = |key: &str| told[0][key].as_u64().context("a number");
            Ok((number("flows")?, number("refused_total")?))
        };
        wait_for("all packets", DEADLINE, || {
            (held("10.200.0.1").ok()? == (16, 24) && held("10.200.0.2").ok()?.0 > 40).then_some(())
        })?;
        ensure!(held("10.200.0.2")?.1 == 0);
        let top = net.weir.cli(&["subscriber", "top", "--by", "refused", "-n", "1"])?.stdout;
        ensure!(top.contains("10.200.0.1 "), "{top}");
        ensure!(net.weir.cli(&["rules", "show"])?.stdout.contains("flows 16"));
        Ok(())
    });
}

/// Counts packets in `namespace` by port and codepoint, also those behind a tunnel's end.
fn count_marks(net: &OneNode, namespace: &Namespace) -> Result<()> {
    let script = net.lab.directory().join("marks.nft");
    fs::write(
        &script,
        "table ip marks {\n counter marked { }\n counter other { }\n chain input {\n\
         type filter hook input priority 0;\n\
         udp sport 5060 ip dscp ef counter name marked\n\
         udp dport 5060 ip dscp ef counter name marked\n\
         udp sport 7000 ip dscp != 0 counter name other\n\
         udp dport 7000 ip dscp != 0 counter name other\n }\n}\n",
    )?;
    namespace.run(DEADLINE, "nft", &["-f", &script.to_string_lossy()])?.success().map(drop)
}

/// Returns the packets that a counter has seen.
fn counted(namespace: &Namespace, counter: &str) -> Result<u64> {
    let args = ["-j", "list", "counter", "ip", "marks", counter];
    let listed: serde_json::Value =
        serde_json::from_str(&namespace.run(DEADLINE, "nft", &args)?.success()?.stdout)?;
    let entries = listed["nftables"].as_array().context("a list")?;
    let packets = entries.iter().find_map(|entry| entry["counter"]["packets"].as_u64());
    packets.context("a counter")
}

#[test]
fn class_marks_real_packets_both_ways_and_gives_its_flows_a_timer() {
    const RULES: &str = "[[class]]\nid = 1\nname = \"voice\"\ndscp = \"ef\"\n\
        timeouts = { udp_sec = 130, udp_stream_sec = 140 }\n\
        [[rule]]\nname = \"phones\"\nprotocol = \"udp\"\nremote_port = 5060\n\
        action = \"accept\"\nclass = \"voice\"\n";
    OneNode::test(&Options::default(), |net| {
        let node = Reloaded::new(net)?;
        let (phone, other) = (
            Echo::udp(&net.internet, at(SERVER, 5060))?,
            Echo::udp(&net.internet, at(SERVER, 7000))?,
        );
        let home = &net.homes[0];
        count_marks(net, &net.internet)?;
        count_marks(net, &home.namespace)?;
        let live = home.udp(0)?;
        ensure!(exchange::udp(&live, phone.local(), b"before the rule")?);
        node.reload(RULES)?;
        ensure!(exchange::udp(&live, phone.local(), b"keeps what it began with")?);
        for namespace in [&net.internet, &home.namespace] {
            ensure!(counted(namespace, "marked")? == 0);
        }
        let socket = home.udp(0)?;
        for _ in 0..5 {
            ensure!(exchange::udp(&socket, phone.local(), b"voice")?);
            ensure!(exchange::udp(&socket, other.local(), b"other")?);
        }
        for namespace in [&net.internet, &home.namespace] {
            let packets = (counted(namespace, "marked")?, counted(namespace, "other")?);
            ensure!(packets == (5, 0), "{packets:?}");
        }
        let to_phone = net.weir.sessions(&["--remote", &phone.local().to_string()])?;
        let of_class = to_phone.iter().filter(|it| it["class"] == 1 && it["timeout_sec"] == 140);
        ensure!(to_phone.len() == 2 && of_class.count() == 1, "{to_phone:?}");
        let asked = ["rules", "test", "home", "10.200.0.1", "udp", "40000", "198.51.100.1:5060"];
        let told = net.weir.cli(&asked)?.stdout;
        ensure!(told.contains("class of the flow: voice"), "{told}");
        ensure!(net.weir.cli(&["rules", "show"])?.stdout.contains("accept in class voice"));
        Ok(())
    });
}

#[test]
fn c6_servers_that_a_rule_names_see_the_homes_own_addresses_and_reach_them() {
    let rule = format!(
        "[[rule]]\nname = \"own-servers\"\nfrom = \"any\"\nremote = \"{SERVER_ALTERNATE}\"\naction = \"bypass\"\n"
    );
    let config =
        WeirConfig { access: Access::Plain, subscribers: "100.64.0.0/24", ..WeirConfig::default() };
    let inside = |number| (Ipv4Addr::new(100, 64, 0, number), 32);
    OneNode::test(&Options { config, inside, ..Options::default() }, |net| {
        let node = Reloaded::new(net)?;
        let home = &net.homes[0];
        // The operator's own network leads to the homes through the node.
        net.core.ip(&format!("route add {}/32 via 10.2.0.1", home.inside))?;
        let named = Echo::udp(&net.internet, at(SERVER_ALTERNATE, 7000))?;
        let other = Echo::udp(&net.internet, at(SERVER, 7000))?;
        node.reload(&rule)?;
        let socket = home.udp(5000)?;
        for _ in 0..3 {
            ensure!(exchange::udp(&socket, named.local(), b"as it is")?);
            ensure!(exchange::udp(&socket, other.local(), b"translated")?);
        }
        ensure!(named.peers() == [SocketAddr::from((home.inside, 5000))], "{:?}", named.peers());
        ensure!(other.peers().iter().all(|peer| peer.ip() != home.inside));

        let web = Echo::tcp(&net.internet, at(SERVER_ALTERNATE, 80))?;
        let mut stream = home.tcp(0, web.local())?;
        exchange::tcp(&mut stream, &[7; 100_000])?;
        ensure!(web.peers().iter().all(|peer| peer.ip() == home.inside), "{:?}", web.peers());
        let pinged = ["-c", "1", "-W", "2", &SERVER_ALTERNATE.to_string()];
        home.run(DEADLINE, "ping", &pinged)?;

        let (from, to) = (SERVER_ALTERNATE.to_string(), home.inside.to_string());
        let called = ["-c", "1", "-W", "2", "-I", &from, &to];
        net.internet.run(DEADLINE, "ping", &called)?.success()?;
        let sessions = net.weir.sessions(&["--remote", &SERVER_ALTERNATE.to_string()])?;
        ensure!(sessions.is_empty(), "{sessions:?}");
        ensure!(node.hits("own-servers")? > 10);
        Ok(())
    });
}

#[test]
fn redirected_clients_see_the_server_that_they_asked_and_errors_reach_them() {
    const ASKED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
    let rules = format!(
        "[[rule]]\nname = \"dns-to-us\"\nprotocol = \"udp\"\nremote_port = 53\n\
         action = \"redirect\"\nto = \"{SERVER}:7000\"\n\
         [[rule]]\nname = \"walled-garden\"\nremote = \"192.0.2.0/24\"\n\
         action = \"redirect\"\nto = \"{SERVER}\"\n"
    );
    OneNode::test(&Options::default(), |net| {
        let node = Reloaded::new(net)?;
        let (dns, web) = (
            Echo::udp(&net.internet, at(SERVER, 7000))?,
            Echo::tcp(&net.internet, at(SERVER, 80))?,
        );
        node.reload(&rules)?;
        let home = &net.homes[0];
        let socket = home.udp(4000)?;
        // One socket asks two servers, and each answers with its own address.
        for asked in [at(ASKED, 53), at(SERVER_ALTERNATE, 53), at(ASKED, 53)] {
            ensure!(exchange::udp(&socket, asked, b"question")?, "{asked} answers");
        }
        let senders = dns.peers();
        ensure!(senders.len() >= 2 && senders[0] != senders[1], "{senders:?}");
        let mut page = home.tcp(0, at(ASKED, 80))?;
        ensure!(page.peer_addr()? == at(ASKED, 80).into());
        exchange::tcp(&mut page, &[7; 100_000])?;
        ensure!(exchange::tcp(&mut home.tcp(0, web.local())?, b"and directly").is_ok());
        let pinged = home.run(DEADLINE, "ping", &["-c", "2", "-W", "2", &ASKED.to_string()])?;
        ensure!(pinged.stdout.contains("2 received"), "{}", pinged.stdout);

        // No server has this port: the error quotes what the home has sent, or its kernel drops it.
        let closed = home.udp(0)?;
        closed.connect(at(ASKED, 9))?;
        closed.set_read_timeout(Some(DEADLINE))?;
        closed.send(b"x")?;
        let error = closed.recv(&mut [0; 8]).err().context("nobody answers")?;
        ensure!(error.kind() == ErrorKind::ConnectionRefused, "{error}");

        let listed = net.weir.sessions(&["--remote", &at(ASKED, 80).to_string()])?;
        ensure!(listed.len() == 1 && listed[0]["remote"] == web.local().to_string(), "{listed:?}");
        ensure!(listed[0]["asked"] == at(ASKED, 80).to_string());
        let asked = ["rules", "test", "home", "10.200.0.1", "udp", "40000", "192.0.2.80:53"];
        let told = net.weir.cli(&asked)?.stdout;
        ensure!(told.starts_with("redirect: rule dns-to-us"), "{told}");
        node.reload("")?;
        exchange::tcp(&mut page, b"a live connection goes on")?;
        Ok(())
    });
}

#[test]
fn flows_of_a_source_pool_leave_from_its_addresses_and_others_do_not() {
    const MAIL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
    let rules = format!(
        "[[source_pool]]\nname = \"mail\"\npublic = [\"{MAIL}/32\"]\n\
         [[rule]]\nname = \"mail\"\nprotocol = \"tcp\"\nremote_port = 25\n\
         action = \"accept\"\nsource_pool = \"mail\"\n"
    );
    OneNode::test(&Options::default(), |net| {
        let node = Reloaded::new(net)?;
        let (mail, web) =
            (Echo::tcp(&net.internet, at(SERVER, 25))?, Echo::tcp(&net.internet, at(SERVER, 80))?);
        let mut live = net.homes[0].tcp(0, mail.local())?;
        exchange::tcp(&mut live, b"before the pool")?;
        let before = mail.peers().len();
        node.reload(&rules)?;
        exchange::tcp(&mut live, b"keeps its address")?;
        for home in &net.homes {
            exchange::tcp(&mut home.tcp(0, mail.local())?, b"mail")?;
            exchange::tcp(&mut home.tcp(0, web.local())?, b"web")?;
        }
        ensure!(mail.peers()[before..].iter().all(|peer| peer.ip() == MAIL), "{:?}", mail.peers());
        ensure!(web.peers().iter().all(|peer| peer.ip() != MAIL), "{:?}", web.peers());
        let told = net.weir.cli(&["rules", "show"])?.stdout;
        ensure!(told.contains("mail"), "{told}");
        let homes = net.homes.len() as u64;
        wait_for("the blocks of the pool in the metrics", DEADLINE, || {
            let text = net.weir.metrics().ok()?;
            let of_pool = |name: &str| {
                let series = format!("{name}{{shard=\"1\",pool=\"mail\"}} ");
                let line = text.lines().find_map(|line| line.strip_prefix(&series))?;
                line.parse::<f64>().ok()
            };
            let held = of_pool("weir_blocks")? - of_pool("weir_blocks_free")?;
            (held as u64 == homes).then_some(())
        })?;
        Ok(())
    });
}
