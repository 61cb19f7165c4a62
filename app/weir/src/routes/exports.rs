//! The sessions of BIRD that are asked, and what those of a side export.

use std::path::PathBuf;

use weir_admin::api::BirdSessions;
use weir_routes::bird::{self, BirdError, ExportedRoute};

use super::Args;

/// BGP protocols of `packaging/bird/weir.conf`.
const ACCESS: &str = "access_switch";
const INTERNET: &str = "internet_switch";

/// Returns the sessions to ask: what the command line names, else what the node watches, else those
/// of the package. `of_node`: none if the node watches no BIRD, or is of an earlier version.
pub(super) fn sessions_to_ask(args: &Args, of_node: Option<BirdSessions>) -> BirdSessions {
    let (socket, access, internet) = match of_node {
        Some(BirdSessions { socket, access, internet }) => (Some(socket), access, internet),
        None => (None, Vec::new(), Vec::new()),
    };
    let names = |given: &[String], of_node: Vec<String>, packaged: &str| match given {
        [] if of_node.is_empty() => vec![packaged.to_owned()],
        [] => of_node,
        given => given.to_vec(),
    };
    BirdSessions {
        socket: args.bird.clone().or(socket).unwrap_or_else(|| PathBuf::from(bird::SOCKET)),
        access: names(&args.access_protocol, access, ACCESS),
        internet: names(&args.internet_protocol, internet, INTERNET),
    }
}

/// What the sessions of a side export.
#[derive(Debug)]
pub(super) struct SideExports {
    /// Routes that any of the sessions exports; `None` if they are not known.
    pub(super) routes: Option<Vec<ExportedRoute>>,
    /// Reasons why sessions export nothing, or why it is not known.
    pub(super) faults: Vec<BirdError>,
}

impl SideExports {
    /// Asks about each of `protocols` with `ask`. A session that is down exports nothing, while
    /// others of its side may: those of the other family, or of another switch. Where none is up,
    /// or BIRD does not answer, the exports are not known.
    pub(super) fn read(
        protocols: &[String],
        mut ask: impl FnMut(&str) -> Result<Vec<ExportedRoute>, BirdError>,
    ) -> Self {
        let (mut routes, mut faults) = (Vec::new(), Vec::new());
        for protocol in protocols {
            match ask(protocol) {
                Ok(exported) => routes.extend(exported),
                Err(fault @ BirdError::Refused { .. }) => faults.push(fault),
                Err(fault) => return Self { routes: None, faults: vec![fault] },
            }
        }
        routes.sort_unstable();
        routes.dedup();
        let is_known = faults.len() < protocols.len();
        Self { routes: is_known.then_some(routes), faults }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn asked(line: &str, of_node: Option<BirdSessions>) -> BirdSessions {
        let line = Line::parse_from(["routes"].into_iter().chain(line.split_whitespace()));
        sessions_to_ask(&line.args, of_node)
    }

    fn sessions(socket: &str, access: &[&str], internet: &[&str]) -> BirdSessions {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        BirdSessions { socket: socket.into(), access: names(access), internet: names(internet) }
    }

    /// Homes in GRE over IPv4: only the internet side has a session of IPv6.
    fn both_families() -> BirdSessions {
        sessions("/run/b.ctl", &["access_switch"], &["internet_switch", "internet_switch6"])
    }

    #[test]
    fn sessions_that_the_node_watches_are_asked_unless_the_command_line_names_others() {
        assert_eq!(asked("", Some(both_families())), both_families());
        assert_eq!(
            asked("--bird /b --access-protocol a,b", Some(both_families())),
            sessions("/b", &["a", "b"], &["internet_switch", "internet_switch6"]),
        );
        let packaged = sessions(bird::SOCKET, &["access_switch"], &["internet_switch"]);
        assert_eq!(asked("", None), packaged);
        assert_eq!(
            asked("", Some(sessions("/b", &[], &["leaf"]))),
            sessions("/b", &["access_switch"], &["leaf"]),
        );
    }

    fn route(prefix: &str) -> ExportedRoute {
        ExportedRoute { prefix: prefix.parse().unwrap(), med: Some(7), next_hop: None }
    }

    fn down(protocol: &str) -> BirdError {
        BirdError::Refused { protocol: protocol.to_owned(), reason: "not established".to_owned() }
    }

    #[test]
    fn routes_of_sessions_that_are_up_are_known_while_others_are_down() {
        let names = both_families().internet;
        let (ipv4, ipv6) = (route("203.0.113.0/28"), route("2001:db8::/48"));
        let both = SideExports::read(&names, |name| match name {
            "internet_switch" => Ok(vec![ipv4]),
            _ => Ok(vec![ipv6, ipv4]),
        });
        assert_eq!(both.routes, Some(vec![ipv4, ipv6]));
        assert!(both.faults.is_empty());

        let one = SideExports::read(&names, |name| match name {
            "internet_switch" => Ok(vec![ipv4]),
            name => Err(down(name)),
        });
        assert_eq!(one.routes, Some(vec![ipv4]));
        assert_eq!(one.faults[0].to_string(), "BIRD on internet_switch6: not established");

        let none = SideExports::read(&names, |name| Err(down(name)));
        assert_eq!((none.routes, none.faults.len()), (None, 2));
    }

    #[test]
    fn exports_of_a_side_are_not_known_when_bird_breaks_off() {
        let mut asked = 0;
        let exports = SideExports::read(&both_families().internet, |_| {
            asked += 1;
            match asked {
                1 => Ok(vec![route("203.0.113.0/28")]),
                _ => Err(std::io::Error::other("it does not answer in time").into()),
            }
        });
        assert_eq!(exports.routes, None);
        assert_eq!(exports.faults[0].to_string(), "BIRD's answer: it does not answer in time");
    }
}
