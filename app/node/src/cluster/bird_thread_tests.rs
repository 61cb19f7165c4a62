//! Tests the thread with a BIRD that answers, stalls, dies and comes back.

use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use weir_admin::api::{MemberStatus, RouteStatus};
use weir_controller::records::NodeAnswer;

use super::super::inbox::{Inbox, InboxReceiver, inbox};
use super::*;

const DEADLINE: Duration = Duration::from_secs(60);

/// Behaviour of the fake towards a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    /// Both sessions are established, this prefix is exported to both switches.
    Exports(&'static str),
    /// It accepts connections and says nothing.
    Stands,
    Babbles,
    /// Its socket is there without a process behind it.
    Dead,
}

struct FakeBird {
    path: PathBuf,
    mood: Arc<Mutex<Mood>>,
}

impl FakeBird {
    fn start(mood: Mood) -> Self {
        let path = std::env::temp_dir().join(format!("weir-bird-thread-{}", std::process::id()));
        let mood = Arc::new(Mutex::new(mood));
        let (its_path, its_mood) = (path.clone(), Arc::clone(&mood));
        thread::spawn(move || {
            loop {
                // A former run may have left the file.
                let _ = std::fs::remove_file(&its_path);
                let listener = UnixListener::bind(&its_path).unwrap();
                serve(&listener, &its_mood);
                drop(listener);
                while *its_mood.lock().unwrap() == Mood::Dead {
                    thread::sleep(Duration::from_millis(20));
                }
            }
        });
        let bird = Self { path, mood };
        while UnixStream::connect(&bird.path).is_err() {
            thread::sleep(Duration::from_millis(5));
        }
        bird
    }

    fn become_(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
        // Wakes the fake, which waits for a connection.
        let _ = UnixStream::connect(&self.path);
    }
}

fn serve(listener: &UnixListener, mood: &Mutex<Mood>) {
    let mut held = Vec::new();
    loop {
        let (mut stream, _) = listener.accept().unwrap();
        match *mood.lock().unwrap() {
            Mood::Dead => return,
            Mood::Stands => held.push(stream),
            Mood::Babbles => {
                let _ = stream.write_all(&[0xfe; 1 << 10]);
            }
            Mood::Exports(prefix) => {
                thread::spawn(move || answer(stream, prefix));
            }
        }
    }
}

fn answer(mut stream: UnixStream, prefix: &str) {
    let _ = stream.write_all(b"0001 BIRD 2.0.12 ready.\n");
    let reader = BufReader::new(stream.try_clone().unwrap());
    for question in reader.lines().map_while(Result::ok) {
        let text = match question.as_str() {
            "show protocols" => "2002-Name Proto Table State Since Info\n\
                1002-access_switch BGP --- up 1:0 Established\n \
                internet_switch BGP --- up 1:0 Established\n0000 \n"
                .to_owned(),
            "show status" => "1000-BIRD 2.0.12\n0013 Daemon is up and running\n".to_owned(),
            _ => format!("1007-Table t:\n {prefix} unicast [k 1:0] * (10)\n0000 \n"),
        };
        let _ = stream.write_all(text.as_bytes());
    }
}

fn start_thread(socket: &Path, snapshot: &Arc<MemberSnapshot>) -> InboxReceiver {
    let (sender, receiver) = inbox();
    let bird = Bird {
        socket: socket.to_owned(),
        access: vec!["access_switch".into()],
        internet: vec!["internet_switch".into()],
    };
    start(&bird, Arc::clone(snapshot), sender).unwrap();
    receiver
}

/// Waits until the access side is in `state`; returns how long that took, and the stated reason.
fn wait_for(inbox: &mut InboxReceiver, state: SideState) -> (Duration, String) {
    let begun = Instant::now();
    loop {
        let received = inbox.recv_timeout(DEADLINE).expect("a poll ends whatever BIRD does");
        let Inbox::Bird(sides) = received else { panic!("{received:?}") };
        if sides[0].view.state == state {
            return (begun.elapsed(), sides[0].view.why.clone());
        }
        assert!(begun.elapsed() < DEADLINE, "{sides:?}");
    }
}

fn show_route(snapshot: &MemberSnapshot, prefix: &str) {
    let route = RouteStatus {
        worker: 0,
        side: "access".into(),
        prefix: prefix.into(),
        next_hop: Ipv4Addr::new(10, 9, 0, 10).into(),
        metric: 7,
        is_set: true,
    };
    let status = MemberStatus { routes: vec![route], ..MemberStatus::default() };
    snapshot.show(status, NodeAnswer::default());
}

#[test]
fn bird_is_down_while_it_stalls_is_dead_babbles_or_drops_routes() {
    let snapshot = Arc::<MemberSnapshot>::default();
    let bird = FakeBird::start(Mood::Exports("10.100.0.1/32"));
    show_route(&snapshot, "10.100.0.1/32");
    let mut inbox = start_thread(&bird.path, &snapshot);
    wait_for(&mut inbox, SideState::Up);
    for mood in [Mood::Stands, Mood::Dead, Mood::Babbles] {
        bird.become_(mood);
        let (took, why) = wait_for(&mut inbox, SideState::NoAnswer);
        assert!(took >= Duration::from_secs(2), "{mood:?} counts only once it lasts: {took:?}");
        assert!(!why.is_empty());
        bird.become_(Mood::Exports("10.100.0.1/32"));
        wait_for(&mut inbox, SideState::Up);
    }
    show_route(&snapshot, "10.100.0.2/32");
    let (_, why) = wait_for(&mut inbox, SideState::NotExporting);
    assert_eq!(why, "access_switch does not export 1 of 1 prefixes, 10.100.0.2/32 among them");
    bird.become_(Mood::Exports("10.100.0.2/32"));
    wait_for(&mut inbox, SideState::Up);
    std::fs::remove_file(&bird.path).unwrap();
}
