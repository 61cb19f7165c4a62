//! Answers of BIRD 2.0.12 as they arrive over the socket, and malformed ones.

use std::io::Cursor;
use std::os::unix::net::UnixListener;
use std::thread;

use super::*;

const GREETING: &str = "0001 BIRD 2.0.12 ready.\n";
const UP: &str = "2002-Name       Proto      Table      State  Since         Info\n\
    1002-internet_switch BGP        ---        up     18:07:02.581  Established   \n\
    0000 \n";
const START: &str = "2002-Name       Proto      Table      State  Since         Info\n\
    1002-internet_switch BGP        ---        start  18:07:02.581  Active        Socket: Connection refused\n\
    0000 \n";
const UNKNOWN: &str = "9001 syntax error, unexpected CF_SYM_UNDEFINED, expecting END or CF_SYM_KNOWN or TEXT or ALL\n";
const ROUTES: &str = "1007-Table weir_prefixes:\n \
    203.0.113.16/28      unicast [weir_internet 18:07:02.730] * (10)\n \
    \tvia 10.10.0.11 on weir0 onlink\n\
    1008-\tType: inherit univ\n\
    1012-\tBGP.next_hop: 10.10.0.11\n \
    \tBGP.med: 2147483649\n \
    \tKernel.source: 4\n \
    \tKernel.metric: 2147483649\n\
    1007-203.0.113.0/28       unicast [weir_internet 18:07:02.730] * (10)\n \
    \tvia 10.10.0.10 on weir0 onlink\n\
    1008-\tType: inherit univ\n\
    0000 \n";

/// What BIRD answers for a protocol with a channel for each family.
const ROUTES_OF_BOTH: &str = "1007-Table weir_prefixes:\n \
    203.0.113.0/28       unicast [weir_internet 08:02:02.282] * (10)\n \
    \tvia 10.2.0.11 on weir0 onlink\n\
    1008-\tType: inherit univ\n\
    1012-\tBGP.next_hop: 10.2.0.11\n \
    \tBGP.med: 2147483000\n \
    \tKernel.source: 4\n \
    \tKernel.metric: 2147483000\n\
    1007-\n \
    Table weir_prefixes6:\n \
    2001:db8:100::/48    unicast [weir_internet6 08:02:02.282] * (10)\n \
    \tvia fd00:2::11 on weir0 onlink\n\
    1008-\tType: inherit univ\n\
    1012-\tBGP.next_hop: fd00:2::11\n \
    \tBGP.med: 2147483000\n\
    1007-2001:db8:200:1000:2000::/80 unicast [weir_internet6 08:02:02.282] * (10)\n\
    1012-\tBGP.next_hop: fd00:2::12 fe80::12\n\
    0000 \n";

fn route(prefix: &str, med: Option<u32>, next_hop: Option<&str>) -> ExportedRoute {
    let next_hop = next_hop.map(|it| it.parse().unwrap());
    ExportedRoute { prefix: prefix.parse().unwrap(), med, next_hop }
}

/// Asks a fake BIRD that gives these answers, and records the questions.
fn ask_one_that_answers(
    answers: &'static [&str],
) -> (Result<Vec<ExportedRoute>, BirdError>, String) {
    let name = format!("weir-bird-test-{}-{:?}", std::process::id(), thread::current().id());
    let path = std::env::temp_dir().join(name);
    // The file exists only if an earlier run of the test was killed.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    let bird = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut questions = String::new();
        stream.write_all(GREETING.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        for answer in answers {
            if reader.read_line(&mut questions).unwrap() == 0 {
                break;
            }
            stream.write_all(answer.as_bytes()).unwrap();
        }
        questions
    });
    let result = exported(&path, "internet_switch");
    std::fs::remove_file(&path).unwrap();
    (result, bird.join().unwrap())
}

#[test]
fn exported_routes_are_read_with_med_and_next_hop() {
    let (routes, questions) = ask_one_that_answers(&[UP, ROUTES]);
    assert_eq!(
        routes.unwrap(),
        [
            route("203.0.113.0/28", None, None),
            route("203.0.113.16/28", Some(2_147_483_649), Some("10.10.0.11")),
        ]
    );
    assert_eq!(
        questions,
        "show protocols internet_switch\nshow route export internet_switch all\n"
    );
}

#[test]
fn exported_routes_of_both_families_are_read_from_one_answer() {
    let (routes, _) = ask_one_that_answers(&[UP, ROUTES_OF_BOTH]);
    assert_eq!(
        routes.unwrap(),
        [
            route("203.0.113.0/28", Some(2_147_483_000), Some("10.2.0.11")),
            route("2001:db8:100::/48", Some(2_147_483_000), Some("fd00:2::11")),
            route("2001:db8:200:1000:2000::/80", None, Some("fd00:2::12")),
        ]
    );
}

#[test]
fn bird_errors_are_worded_for_an_operator() {
    let error_of = |answers| ask_one_that_answers(answers).0.unwrap_err().to_string();
    assert_eq!(
        error_of(&[START]),
        "BIRD on internet_switch: not established: start 18:07:02.581 Active Socket: Connection refused"
    );
    assert_eq!(
        error_of(&[UNKNOWN]),
        "BIRD on internet_switch: its configuration has no such protocol"
    );
    assert_eq!(
        error_of(&[UP, "8003 No protocols match\n"]),
        "BIRD on internet_switch: No protocols match"
    );
    assert!(error_of(&[UP, "1007-Table"]).starts_with("BIRD's answer: "));
    let absent = exported(Path::new("/nonexistent/bird.ctl"), "internet_switch").unwrap_err();
    assert!(absent.to_string().starts_with("BIRD does not run here"), "{absent}");
    for name in ["", "a b", "x\nconfigure"] {
        let refused = exported(Path::new("/nonexistent/bird.ctl"), name).unwrap_err();
        assert!(refused.to_string().ends_with("not the name of a protocol"), "{refused}");
    }
}

#[test]
fn any_answer_ends_and_none_panics() {
    bolero::check!().with_type::<(Vec<(u16, u8)>, Vec<u8>)>().for_each(|(edits, any)| {
        let mut edited = [UP, ROUTES, ROUTES_OF_BOTH].concat().into_bytes();
        for (at, value) in edits {
            let at = usize::from(*at) % edited.len();
            edited[at] = *value;
        }
        for bytes in [&edited, any] {
            if let Ok(Ok(lines)) = read_answer(&mut Cursor::new(bytes)) {
                let _ = not_up(&lines);
                assert!(parse(&lines).len() <= lines.len());
            }
        }
    });
}
