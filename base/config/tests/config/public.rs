//! `[public]`: static mappings and addresses out of service.

use std::io;
use std::net::Ipv4Addr;

use weir_config::{
    Access, AccessSetting, Config, Desired, Effect, GreKey, PublicContext, PublicSettings,
    StaticProtocol, difference, load_statics, parse, parse_cluster,
};

fn node(lines: &str) -> String {
    format!(
        "[[worker]]\ncore = 1\n\
         access = {{ device = \"net_null0\", address = \"10.1.0.1/24\", gateway = \"10.1.0.2\" }}\n\
         internet = {{ device = \"net_null1\", address = \"10.2.0.1/24\", gateway = \"10.2.0.2\" }}\n\
         [access]\nsubscribers = [\"10.200.0.0/16\"]\n\
         [[shard]]\nid = 1\nendpoint = \"10.100.0.1\"\npublic = [\"203.0.113.0/28\"]\n{lines}"
    )
}

fn good(lines: &str) -> Config {
    parse(&node(lines), "t.toml").expect(lines).0
}

/// Returns the errors, each as `line: key: message`.
fn errors(lines: &str) -> Vec<String> {
    let errors = parse(&node(lines), "t.toml").expect_err(lines);
    errors.iter().map(|it| format!("{}: {}: {}", it.line, it.key, it.message)).collect()
}

fn cluster(lines: &str) -> Desired {
    let text = format!(
        "[cluster]\nname = \"edge\"\nreplicas = 1\n[access]\nsubscribers = [\"10.200.0.0/16\"]\n\
         [[shard]]\nid = 1\nendpoint = \"10.101.0.1\"\npublic = [\"203.0.113.0/28\"]\n{lines}"
    );
    parse_cluster(&text, "t.toml").expect(lines).0
}

const BOTH: &str = "[public]\nstatic = [\n\
    \"10.200.1.5 tcp 192.168.1.20:443 203.0.113.1:8443\",\n\
    \"10.200.1.6 all 192.168.1.10 203.0.113.9\",\n]\n\
    drain = [\"203.0.113.2/32\"]\nquarantine = [\"203.0.113.4/31\"]\n";

#[test]
fn static_mappings_and_addresses_out_of_service_are_read() {
    let public = good(BOTH).public;
    let [forward, address] = public.statics[..] else { panic!("{public:?}") };
    assert_eq!((forward.protocol, forward.public_port), (StaticProtocol::Tcp, 8443));
    assert_eq!((address.protocol, address.inside_port), (StaticProtocol::All, 0));
    assert_eq!(address.public, Ipv4Addr::new(203, 0, 113, 9));
    assert_eq!(public.drain, ["203.0.113.2/32".parse().unwrap()]);
    assert_eq!(public.quarantine, ["203.0.113.4/31".parse().unwrap()]);
    assert_eq!(good("").public, PublicSettings::default());
}

#[test]
fn mappings_that_cannot_work_are_refused_with_their_place() {
    let one = |line: &str| errors(&format!("[public]\nstatic = [\"{line}\"]\n"));
    let taken = "10.200.1.5 tcp 192.168.1.20:443 203.0.113.1:443";
    for (line, why) in [
        ("10.200.1.5 tcp 192.168.1.20:443 203.0.114.1:443", "203.0.114.1 is in no shard"),
        ("10.201.1.5 tcp 192.168.1.20:443 203.0.113.1:443", "no home has the address 10.201.1.5"),
        ("10.200.1.5,7 tcp 192.168.1.20:443 203.0.113.1:443", "GRE keys tell no homes apart"),
        ("10.200.1.5 tcp 192.168.1.20 203.0.113.1:443", "192.168.1.20 has no port"),
    ] {
        let errors = one(line);
        assert!(errors.len() == 1 && errors[0].contains(why), "{line}: {errors:?}");
        assert!(errors[0].contains("public.static[0]"), "{errors:?}");
    }
    for (line, why) in [
        ("10.200.1.6 tcp 192.168.1.21:80 203.0.113.1:443", "its public side is taken by"),
        ("10.200.1.6 all 192.168.1.21 203.0.113.1", "its public side is taken by"),
        ("10.200.1.5 tcp 192.168.1.20:443 203.0.113.1:444", "its inside endpoint has"),
    ] {
        let errors = errors(&format!("[public]\nstatic = [\"{taken}\", \"{line}\"]\n"));
        assert!(errors.len() == 1 && errors[0].contains(why), "{line}: {errors:?}");
        assert!(errors[0].contains(taken), "it names the other one: {errors:?}");
    }
    let udp = "10.200.1.6 udp 192.168.1.21:80 203.0.113.1:443";
    good(&format!("[public]\nstatic = [\"{taken}\", \"{udp}\"]\n"));
    let both =
        errors("[public]\ndrain = [\"203.0.113.0/30\"]\nquarantine = [\"203.0.113.1/32\"]\n");
    assert!(both[0].contains("overlaps 203.0.113.0/30 in public.drain"), "{both:?}");
    let firewall = errors(&format!("[nat]\nenabled = false\n{BOTH}"));
    assert!(firewall.iter().any(|it| it.contains("without translation")), "{firewall:?}");
}

#[test]
fn cluster_stores_them_and_states_what_a_change_does() {
    let (old, new) = (cluster(""), cluster(BOTH));
    assert!(!old.to_json().contains("\"public\":{"), "earlier versions do not know it");
    assert_eq!(Desired::from_json(&new.to_json()).unwrap(), new);
    let changes = difference(&old, &new);
    let texts: Vec<String> = changes.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 4, "{texts:?}");
    assert!(texts[0].starts_with("public.static: 10.200.1.5 tcp 192.168.1.20:443"), "{texts:?}");
    assert!(texts[3].contains("203.0.113.4/31 added (ends flows"), "{texts:?}");
    let back = difference(&new, &old);
    assert_eq!(back.iter().filter(|it| it.effect == Effect::EndsStatic).count(), 2);
    assert!(difference(&new, &new).is_empty());
    let named =
        cluster("[public]\nstatic_file = \"/s.txt\"\n[[set]]\nname = \"a\"\nfile = \"/a.txt\"\n");
    let read = |path: &std::path::Path| match path.to_str() {
        Some("/s.txt") => Ok("10.200.1.5 tcp 192.168.1.20:443 203.0.113.1:8443\n".to_owned()),
        _ => Ok("192.0.2.0/24\n".repeat(3)),
    };
    let filled = named.clone().with_files(read).unwrap();
    assert_eq!(filled.public.statics.len(), 1);
    assert!(!filled.to_json().contains(".txt"), "what nodes read names no file");
    assert_eq!(Desired::from_json(&filled.to_json()).unwrap(), filled);
}

/// Long lists are compressed on their way through etcd.
#[test]
fn cluster_takes_100_000_entries_of_a_set_or_port_forwards_and_refuses_what_etcd_cannot_hold() {
    // Addresses without a pattern that would make them easy to compress.
    let set = |entries: u32| -> String {
        let address = |n: u32| Ipv4Addr::from(n.wrapping_mul(0x9e37_79b1));
        (0..entries).map(|n| format!("{}\n", address(n))).collect()
    };
    let of_set = cluster("[[set]]\nname = \"a\"\nfile = \"/a.txt\"\n");
    let filled = of_set.clone().with_files(|_| Ok(set(100_000))).unwrap();
    assert_eq!(Desired::from_json(&filled.to_json()).unwrap(), filled);
    let refused = of_set.with_files(|_| Ok(set(400_000))).unwrap_err();
    assert!(refused[0].message.contains("at most 1400000 fit"), "{refused:?}");
    let forward = |n: u32| {
        let (home, public) = (0x0ac8_0000 + n / 2, 0xcb00_7100 + n / 60_000);
        let [home, public] = [home, public].map(Ipv4Addr::from);
        let port = n % 60_000 + 1024;
        format!("{home} tcp 192.168.1.{}:{} {public}:{port}\n", n % 200 + 10, n % 1000 + 1)
    };
    let forwards: String = (0..100_000).map(forward).collect();
    let filled =
        cluster("[public]\nstatic_file = \"/s.txt\"\n").with_files(|_| Ok(forwards.clone()));
    let filled = filled.unwrap();
    assert_eq!(filled.public.statics.len(), 100_000);
    assert_eq!(Desired::from_json(&filled.to_json()).unwrap(), filled);
}

fn load(text: io::Result<String>) -> Result<usize, Vec<String>> {
    let settings = good(
        "[public]\nstatic_file = \"/s.txt\"\n\
        static = [\"10.200.0.1 tcp 192.168.1.1:1 203.0.113.1:1\"]\n",
    )
    .public;
    let access = Access {
        mode: AccessSetting::Gre,
        subscribers: vec!["10.200.0.0/16".parse().unwrap()],
        subscribers6: Vec::new(),
        gre_key: GreKey::Ignore,
    };
    let context = PublicContext { access: &access, public: &["203.0.113.0/28".parse().unwrap()] };
    let loaded = load_statics(&settings, &context, |path| {
        assert_eq!(path.to_str(), Some("/s.txt"));
        text
    });
    loaded.map(|all| all.len()).map_err(|errors| {
        errors.iter().map(|it| format!("{}:{}: {}", it.file, it.line, it.message)).collect()
    })
}

#[test]
fn file_of_100_000_mappings_is_loaded_and_wrong_lines_are_named() {
    let line = |n: u32| {
        let (port, host) = (1024 + n % 60_000, n / 60_000);
        format!(
            "10.200.{}.{} tcp 192.168.1.1:{port} 203.0.113.{}:{port}\n",
            n >> 8 & 255,
            n & 255,
            2 + host
        )
    };
    let text: String = (0..100_000).map(line).collect();
    assert_eq!(load(Ok(format!("# forwards\n\n{text}"))), Ok(100_001));
    let wrong =
        load(Ok("# one\n10.200.0.9 tcp 192.168.1.1:1 203.0.113.1:1\nx\n".into())).unwrap_err();
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(wrong[0].starts_with("/s.txt:3: 1 words, not 4"), "{wrong:?}");
    assert!(wrong[1].starts_with("/s.txt:2:") && wrong[1].contains("taken by"), "{wrong:?}");
    let many = load(Ok("x\n".repeat(50))).unwrap_err();
    assert_eq!((many.len(), many[20].contains("30 more lines")), (21, true));
    let missing = load(Err(io::Error::from(io::ErrorKind::NotFound))).unwrap_err();
    assert!(missing[0].contains("cannot be read"), "{missing:?}");
}
