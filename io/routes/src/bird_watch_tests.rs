//! Answers of BIRD 2.0.12 as they arrive over the socket, misbehaving sockets, and the damping of
//! what they show.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Cursor, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use super::*;
use crate::bird::read_answer;
use crate::bird_report::{prefixes, sessions};

const GREETING: &str = "0001 BIRD 2.0.12 ready.\n";
const PROTOCOLS: &str = "2002-Name       Proto      Table      State  Since         Info\n\
    1002-device1    Device     ---        up     19:15:31.740  \n \
    weir_access Kernel     weir_endpoints up     19:15:31.740  \n \
    access_switch BGP        ---        up     19:15:32.669  Established   \n \
    access_second BGP        ---        start  19:15:39.925  Active        Socket: Connection refused\n \
    internet_switch BGP        ---        start  19:15:39.925  Active        Received: Administrative shutdown\n\
    0000 \n";
const STATUS: &str = "1000-BIRD 2.0.12\n\
    1011-Router ID is 10.9.0.1\n \
    Hostname is edge1\n \
    Current server time is 2026-11-23 19:15:31.740\n \
    Last reboot on 2026-11-23 19:15:31.740\n \
    Last reconfiguration on 2026-11-23 19:15:31.740\n\
    0013 Daemon is up and running\n";
const ROUTES: &str = "1007-Table weir_endpoints:\n \
    10.100.0.1/32        unicast [weir_access 19:15:31.741] * (10)\n \
    \tvia 10.9.0.10 on weir0 onlink\n \
    10.100.0.2/32        unicast [weir_access 19:15:31.741] * (10)\n \
    \tvia 10.9.0.10 on weir0 onlink\n\
    0000 \n";

fn nets(nets: &[&str]) -> BTreeSet<IpNet> {
    nets.iter().map(|net| net.parse().unwrap()).collect()
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn lines(text: &str) -> Vec<String> {
    read_answer(&mut Cursor::new(text)).unwrap().unwrap()
}

fn answer() -> LookAnswer {
    let exported = BTreeMap::from([("access_switch".to_owned(), Ok(prefixes(&lines(ROUTES))))]);
    LookAnswer::Report(BirdReport {
        sessions: sessions(&lines(PROTOCOLS)),
        exported,
        ..BirdReport::default()
    })
}

#[test]
fn one_established_session_that_exports_all_that_is_due_makes_a_side_up() {
    let due = nets(&["10.100.0.1/32", "10.100.0.2/32"]);
    for watched in [&["access_switch"][..], &["access_second", "access_switch"]] {
        let (side, _) = judge(&names(watched), &answer(), &due);
        assert_eq!((side.state, side.established), (SideState::Up, 1), "{side:?}");
        assert_eq!((side.protocols, side.why.as_str()), (watched.len(), ""));
    }
}

#[test]
fn a_prefix_that_is_due_and_not_exported_is_named() {
    let due = nets(&["10.100.0.2/32", "10.100.0.3/32", "10.100.0.4/32"]);
    let (side, _) = judge(&names(&["access_switch"]), &answer(), &due);
    assert_eq!((side.state, side.established), (SideState::NotExporting, 1));
    assert_eq!(side.why, "access_switch does not export 2 of 3 prefixes, 10.100.0.3/32 among them");
}

#[test]
fn a_side_without_an_established_session_names_the_state_of_each() {
    let (side, _) =
        judge(&names(&["internet_switch", "nobody", "weir_access"]), &answer(), &nets(&[]));
    assert_eq!((side.state, side.established), (SideState::NoSession, 0));
    assert_eq!(
        side.why,
        "no BGP session is established (internet_switch: start 19:15:39.925 Active Received: \
         Administrative shutdown, nobody: BIRD has no such protocol, weir_access: it is no BGP protocol)"
    );
    assert_eq!(judge(&[], &answer(), &nets(&[])).0.state, SideState::NotWatched);
}

#[test]
fn a_prefix_is_due_from_the_second_look_on() {
    let path = fake("due", |stream| {
        converse(stream, &[PROTOCOLS, STATUS, ROUTES]);
        true
    });
    let mut watch = BirdWatch::new(watched(&path));
    let new = nets(&["10.100.0.9/32"]);
    assert_eq!(watch.look([new.clone(), nets(&[])])[0].state, SideState::Up);
    assert_eq!(watch.look([new.clone(), nets(&[])])[0].state, SideState::NotExporting);
    assert_eq!(watch.look([nets(&["10.100.0.1/32"]), nets(&[])])[0].state, SideState::Up);
}

#[test]
fn long_lists_are_not_read_at_every_look_but_at_once_when_routes_change() {
    let asked = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&asked);
    let path = fake("lists", move |mut stream| {
        stream.write_all(GREETING.as_bytes()).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        for question in reader.lines().map_while(Result::ok) {
            let answer = match question.as_str() {
                "show protocols" => PROTOCOLS,
                "show status" => STATUS,
                _ => {
                    *counted.lock().unwrap() += 1;
                    ROUTES
                }
            };
            let _ = stream.write_all(answer.as_bytes());
        }
        true
    });
    let mut watch = BirdWatch::new(watched(&path));
    let one = nets(&["10.100.0.1/32"]);
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(watch.look([one.clone(), nets(&[])])[0].state, SideState::Up);
    }
    // The first two looks read the lists, and then one look in each interval that has passed.
    let intervals = begun.elapsed().as_millis() / LIST_INTERVAL.as_millis();
    let lists = *asked.lock().unwrap();
    assert!(lists <= 3 + intervals as i32 && lists < 20, "{lists}");
    let both = nets(&["10.100.0.1/32", "10.100.0.2/32"]);
    watch.look([both, nets(&[])]);
    assert_eq!(*asked.lock().unwrap(), lists + 1);
}

/// A node that is drained because of the missing export has no routes left: without this rule it
/// would be counted as up and get them again.
#[test]
fn a_side_that_does_not_export_stays_so_without_routes_until_it_could_have_changed() {
    let later = reconfigured();
    let status = Arc::new(Mutex::new(STATUS.to_owned()));
    let shared = Arc::clone(&status);
    let path = fake("lack", move |stream| {
        converse(stream, &[PROTOCOLS, &shared.lock().unwrap(), ROUTES]);
        true
    });
    let mut now_ms = 0;
    let mut looks = |watch: &mut BirdWatch, due: &[&str]| looks(watch, &mut now_ms, 10, due);
    let mut watch = BirdWatch::new(watched(&path));
    // A short lack does not count.
    assert_eq!(looks(&mut watch, &["10.100.0.1/32"]), SideState::Up);
    assert_eq!(looks(&mut watch, &["10.100.0.1/32", "10.100.0.9/32"]), SideState::NotExporting);
    assert_eq!(looks(&mut watch, &["10.100.0.1/32"]), SideState::NotExporting);
    assert_eq!(looks(&mut watch, &[]), SideState::NotExporting);
    *status.lock().unwrap() = later;
    assert_eq!(looks(&mut watch, &[]), SideState::Up, "BIRD was reconfigured");
}

/// The routes move to other nodes while BIRD starts: none is left that could show that BIRD
/// exports.
#[test]
fn a_side_that_did_not_export_for_a_moment_after_its_bird_started_is_up_without_routes() {
    let path = std::env::temp_dir().join(format!("weir-watch-{}-start", std::process::id()));
    let mut watch = BirdWatch::new(watched(&path));
    let mut now_ms = 0;
    let due = ["10.100.0.9/32"];
    assert_eq!(looks(&mut watch, &mut now_ms, 10, &due), SideState::NoAnswer);
    // BIRD has not learned the route yet.
    fake("start", |stream| {
        converse(stream, &[PROTOCOLS, STATUS, ROUTES]);
        true
    });
    assert_eq!(
        looks(&mut watch, &mut now_ms, 2, &due),
        SideState::NotExporting,
        "the newest reason counts"
    );
    assert_eq!(looks(&mut watch, &mut now_ms, 10, &[]), SideState::Up);
}

/// BIRD reports its new filter first and reads its routes again afterwards, while the node is
/// losing its routes.
#[test]
fn a_filter_that_was_mended_while_the_routes_left_makes_the_side_up() {
    let status = Arc::new(Mutex::new(STATUS.to_owned()));
    let shared = Arc::clone(&status);
    let path = fake("mended", move |stream| {
        converse(stream, &[PROTOCOLS, &shared.lock().unwrap(), ROUTES]);
        true
    });
    let mut now_ms = 0;
    let mut watch = BirdWatch::new(watched(&path));
    let due = ["10.100.0.9/32"];
    assert_eq!(looks(&mut watch, &mut now_ms, 10, &due), SideState::NotExporting);
    *status.lock().unwrap() = reconfigured();
    assert_eq!(looks(&mut watch, &mut now_ms, 2, &due), SideState::NotExporting);
    assert_eq!(looks(&mut watch, &mut now_ms, 10, &[]), SideState::Up);
}

fn reconfigured() -> String {
    STATUS.replace("reconfiguration on 2026-11-23 19:15", "reconfiguration on 2026-11-23 20:00")
}

/// One session for each family, as `packaging/bird` has them.
const EACH: [&str; 2] = ["access_switch", "access_switch6"];
const PROTOCOLS6: &str = "2002-Name       Proto      Table      State  Since         Info\n\
    1002-access_switch BGP        ---        up     19:15:32.669  Established   \n \
    access_switch6 BGP        ---        up     19:15:32.701  Established   \n\
    0000 \n";
const RETRY6: &str = "2002-Name       Proto      Table      State  Since         Info\n\
    1002-access_switch BGP        ---        up     19:15:32.669  Established   \n \
    access_switch6 BGP        ---        start  19:20:01.120  Connect       \n\
    0000 \n";
const ROUTES6: &str = "1007-Table weir_endpoints6:\n \
    fd64::1/128          unicast [weir_access6 19:15:31.741] * (10)\n \
    \tvia fd00:1::11 on weir0 onlink\n\
    0000 \n";

fn answer_of_both(protocols: &str) -> LookAnswer {
    let lists = [ROUTES, ROUTES6].map(|list| Ok(prefixes(&lines(list))));
    let exported = EACH.map(str::to_owned).into_iter().zip(lists).collect();
    let sessions = sessions(&lines(protocols));
    LookAnswer::Report(BirdReport { sessions, exported, ..BirdReport::default() })
}

#[test]
fn a_side_with_a_session_for_each_family_is_up_while_both_export_theirs() {
    let judged = |names_: &[&str], protocols, due: &[&str]| {
        let (side, missing) = judge(&names(names_), &answer_of_both(protocols), &nets(due));
        (side.state, side.why, missing)
    };
    let both = ["10.100.0.1/32", "fd64::1/128"];
    assert_eq!(judged(&EACH, PROTOCOLS6, &both), (SideState::Up, String::new(), nets(&[])));
    let (state, why, missing) = judged(&EACH, PROTOCOLS6, &["10.100.0.1/32", "fd64::2/128"]);
    assert_eq!((state, missing), (SideState::NotExporting, nets(&["fd64::2/128"])));
    assert!(why.ends_with(" does not export 1 of 1 prefixes, fd64::2/128 among them"), "{why}");
    // A node that watches the session of one family only has nothing for the other.
    assert_eq!(judged(&EACH[..1], PROTOCOLS6, &both).0, SideState::NotExporting);
    // A session that is down is missed only while its family has routes.
    assert_eq!(judged(&EACH, RETRY6, &["10.100.0.1/32"]).0, SideState::Up);
}

#[test]
fn a_session_that_is_down_is_named_with_the_prefixes_that_no_other_exports() {
    let mut answer = answer_of_both(RETRY6);
    let LookAnswer::Report(report) = &mut answer else { panic!() };
    report.exported.remove("access_switch6");
    let due = nets(&["10.100.0.1/32", "fd64::1/128"]);
    let (side, missing) = judge(&names(&EACH), &answer, &due);
    assert_eq!((side.state, missing), (SideState::NotExporting, nets(&["fd64::1/128"])));
    assert_eq!(
        side.why,
        "access_switch does not export 1 of 1 prefixes, fd64::1/128 among them, access_switch6: \
         start 19:20:01.120 Connect"
    );
}

/// Each attempt changes the line of the session: that is no reason to give the node routes that it
/// would lose again.
#[test]
fn a_side_whose_ipv6_session_only_retries_stays_down_without_routes() {
    let protocols = Arc::new(Mutex::new((RETRY6.to_owned(), ROUTES, 0)));
    let shared = Arc::clone(&protocols);
    let path = fake("retry", move |stream| {
        let (protocols, routes, attempt) = &mut *shared.lock().unwrap();
        *attempt += 1;
        let retried = protocols.replace("19:20:01.120", &format!("19:20:01.{attempt:03}"));
        converse(stream, &[&retried, STATUS, routes, ROUTES6]);
        true
    });
    let [access, internet] = [names(&EACH), names(&[])];
    let mut watch = BirdWatch::new(WatchedBird { socket: path, protocols: [access, internet] });
    let mut now_ms = 0;
    let due = ["10.100.0.1/32", "fd64::1/128"];
    assert_eq!(looks(&mut watch, &mut now_ms, 10, &due), SideState::NotExporting);
    assert_eq!(looks(&mut watch, &mut now_ms, 20, &[]), SideState::NotExporting);
    protocols.lock().unwrap().0 = PROTOCOLS6.to_owned();
    assert_eq!(looks(&mut watch, &mut now_ms, 10, &[]), SideState::Up, "the session is back");
}

/// Looks `count` times, every 500 ms; returns the state of the access side that counts after them.
fn looks(watch: &mut BirdWatch, now_ms: &mut u64, count: usize, due: &[&str]) -> SideState {
    for _ in 0..count {
        *now_ms += 500;
        let seen = watch.look([nets(due), nets(&[])]);
        watch.observe(*now_ms, seen);
    }
    watch.sides()[0].1.state
}

fn watched(socket: &Path) -> WatchedBird {
    let protocols = [names(&["access_switch"]), names(&["internet_switch"])];
    WatchedBird { socket: socket.to_owned(), protocols }
}

/// Listens on a socket of its own and passes each connection to `serve` until that returns false.
fn fake(name: &str, serve: impl Fn(UnixStream) -> bool + Send + 'static) -> PathBuf {
    let path = std::env::temp_dir().join(format!("weir-watch-{}-{name}", std::process::id()));
    // The file exists only if an earlier run of the test was killed.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || while serve(listener.accept().unwrap().0) {});
    path
}

fn converse(mut stream: UnixStream, answers: &[&str]) {
    stream.write_all(GREETING.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    for answer in answers {
        if reader.read_line(&mut String::new()).unwrap_or(0) == 0 {
            return;
        }
        let _ = stream.write_all(answer.as_bytes());
    }
}

/// Returns what a look at `socket` sees, and checks that the look ends.
fn look_at(socket: &Path) -> SideView {
    let mut watch = BirdWatch::new(watched(socket));
    let begun = Instant::now();
    let [access, internet] = watch.look([nets(&[]), nets(&[])]);
    assert!(begun.elapsed() < 5 * LOOK_DEADLINE, "{:?}", begun.elapsed());
    assert_eq!(access.state == SideState::NoAnswer, internet.state == SideState::NoAnswer);
    access
}

#[test]
fn a_bird_that_dies_hangs_drips_or_babbles_does_not_answer() {
    let silent = fake("silent", |stream| {
        thread::spawn(move || (&stream).read(&mut [0]));
        true
    });
    let dying = fake("dying", |mut stream| {
        stream.write_all(&GREETING.as_bytes()[..9]).unwrap();
        true
    });
    let half = fake("half", |stream| {
        converse(stream, &[&PROTOCOLS[..100]]);
        true
    });
    let dripping = fake("dripping", |mut stream| {
        thread::spawn(move || {
            while stream.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        true
    });
    let babbling = fake("babbling", |mut stream| {
        thread::spawn(move || while stream.write_all(&[0xff; 4096]).is_ok() {});
        true
    });
    for socket in [silent, dying, half, dripping, babbling] {
        let side = look_at(&socket);
        assert_eq!(side.state, SideState::NoAnswer, "{}: {side:?}", socket.display());
        assert!(!side.why.is_empty());
    }
    let absent = look_at(Path::new("/nonexistent/bird.ctl"));
    assert_eq!(absent.state, SideState::NoAnswer);
    assert!(absent.why.starts_with("BIRD does not run here"), "{absent:?}");
}

/// A stopped process leaves its queue of connections full, and a blocking connect would then wait
/// forever.
#[test]
fn a_stopped_bird_does_not_hold_a_look_up_however_often_it_is_asked() {
    let path = std::env::temp_dir().join(format!("weir-watch-{}-stopped", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let _listener = UnixListener::bind(&path).unwrap();
    let queued: Vec<_> = std::iter::from_fn(|| connect_to(&path)).take(10_000).collect();
    assert!(queued.len() < 10_000, "the queue has an end");
    let begun = Instant::now();
    let side = look_at(&path);
    assert_eq!(side.state, SideState::NoAnswer);
    assert!(begun.elapsed() < LOOK_DEADLINE, "{side:?}");
    std::fs::remove_file(&path).unwrap();
}

fn connect_to(path: &Path) -> Option<UnixStream> {
    crate::bird::connect_to(path).ok()
}

fn seen(state: SideState) -> [SideView; 2] {
    let why = if state == SideState::Up { String::new() } else { format!("{state:?}") };
    let view = SideView { state, established: 0, protocols: 1, why };
    [view.clone(), SideView { state: SideState::Up, why: String::new(), ..view }]
}

/// Looks every 500 ms; returns the changes of the access side, each with its time.
fn watch(states: &[(SideState, u64)]) -> Vec<(u64, SideState)> {
    let mut watch = BirdWatch::new(watched(Path::new("/x")));
    let (mut now_ms, mut changes) = (0, Vec::new());
    for &(state, until_ms) in states {
        while now_ms < until_ms {
            let found = watch.observe(now_ms, seen(state)).into_iter();
            changes
                .extend(found.filter(|it| it.side == RouteSide::Access).map(|it| (now_ms, it.now)));
            now_ms += 500;
        }
    }
    changes
}

#[test]
fn a_side_is_down_and_up_again_only_after_it_has_lasted() {
    use SideState::{NoAnswer, NoSession, NotExporting, Up};
    let flaps = [(Up, 5_000), (NoSession, 7_500), (Up, 8_000), (NoAnswer, 10_500), (Up, 20_000)];
    assert_eq!(watch(&flaps), [(0, Up)], "nothing lasted three seconds");
    let down = [(Up, 5_000), (NoSession, 9_000), (Up, 11_500), (NoAnswer, 12_000), (Up, 20_000)];
    // A side that is up for too short a time still counts as down, with the newest reason.
    let expected = [(0, Up), (8_000, NoSession), (11_500, NoAnswer), (15_000, Up)];
    assert_eq!(watch(&down), expected);
    // A side that is down for one reason and then for another shows the newest at once.
    let other = [(Up, 1_000), (NoAnswer, 2_500), (NoSession, 5_000), (NotExporting, 6_000)];
    assert_eq!(watch(&other), [(0, Up), (4_000, NoSession), (5_000, NotExporting)]);
    assert_eq!(watch(&[(NoAnswer, 4_000)]), [(3_000, NoAnswer)], "down from the start");
}

#[test]
fn nothing_is_concluded_from_looks_that_are_far_apart() {
    let mut watch = BirdWatch::new(watched(Path::new("/x")));
    watch.observe(0, seen(SideState::Up));
    for now_ms in [10_000, 20_000, 30_000] {
        assert_eq!(watch.observe(now_ms, seen(SideState::NoAnswer)), []);
    }
    assert_eq!(watch.observe(32_000, seen(SideState::NoAnswer)), []);
    assert_eq!(watch.observe(33_000, seen(SideState::NoAnswer)).len(), 1);
    let [(_, access, since_ms), (_, internet, _)] = watch.sides();
    assert_eq!((access.state, since_ms), (SideState::NoAnswer, 33_000));
    assert_eq!(internet.state, SideState::Up);
}

#[test]
fn a_bird_that_may_not_be_asked_is_unknown_and_not_down() {
    let (denied, _) = judge(&names(&["a"]), &LookAnswer::NotAllowed("no right".into()), &nets(&[]));
    assert_eq!((denied.state, denied.state.cause()), (SideState::Unknown, None));
    let mut watch = BirdWatch::new(watched(Path::new("/x")));
    for now_ms in (0..4_000).step_by(500) {
        assert_eq!(watch.observe(now_ms, [denied.clone(), denied.clone()]), []);
    }
    assert_eq!(watch.sides()[0].1.why, "no right", "the reason is shown once it has lasted");
}

/// A side is up only with a session that exports all due prefixes, whatever BIRD answers.
#[test]
fn any_answer_is_judged_and_only_a_complete_one_makes_a_side_up() {
    let due = nets(&["10.100.0.1/32", "10.100.0.2/32"]);
    let watched = names(&["access_switch"]);
    bolero::check!().with_type::<(Vec<(u16, u8)>, Vec<u8>)>().for_each(|(edits, any)| {
        let edited = |text: &str, by: u16| {
            let mut bytes = text.as_bytes().to_vec();
            for (at, value) in edits {
                let at = usize::from(at.wrapping_mul(by)) % bytes.len();
                bytes[at] = *value;
            }
            bytes
        };
        let (protocols, routes) = (edited(PROTOCOLS, 1), edited(ROUTES, 7));
        for (protocols, routes) in [(&protocols, &routes), (any, &routes), (&protocols, any)] {
            let read = |bytes| read_answer(&mut Cursor::new(bytes));
            let (Ok(Ok(protocols)), Ok(routes)) = (read(protocols), read(routes)) else { continue };
            let routes = routes.map(|lines| prefixes(&lines));
            let exported = BTreeMap::from([("access_switch".to_owned(), routes.clone())]);
            let report =
                BirdReport { sessions: sessions(&protocols), exported, ..BirdReport::default() };
            let is_established = report.sessions.get("access_switch") == Some(&Ok(()));
            let (side, _) = judge(&watched, &LookAnswer::Report(report), &due);
            let is_whole = routes.is_ok_and(|routes| routes.is_superset(&due));
            assert_eq!(side.state == SideState::Up, is_established && is_whole, "{side:?}");
            assert_eq!(side.why.is_empty(), side.state == SideState::Up);
        }
    });
}
