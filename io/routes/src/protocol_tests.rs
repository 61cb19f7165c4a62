//! Encoded messages decode to the same; bytes that no encoder writes are refused.

use super::*;

fn route(number: u8) -> Route {
    Route {
        side: if number.is_multiple_of(2) { RouteSide::Access } else { RouteSide::Internet },
        prefix: IpNet::new(Ipv4Addr::new(203, 0, number, 0).into(), 24).unwrap(),
        metric: u32::MAX - u32::from(number),
        next_hop: Ipv4Addr::new(10, 9, 0, number).into(),
    }
}

fn route6(number: u16) -> Route {
    Route {
        side: if number.is_multiple_of(2) { RouteSide::Access } else { RouteSide::Internet },
        prefix: IpNet::new(Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0, 0).into(), 48).unwrap(),
        metric: u32::MAX - u32::from(number),
        next_hop: Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, number).into(),
    }
}

fn requests() -> Vec<GuardRequest> {
    let mut routes: Vec<Route> = (0..5).map(route).chain((0..5).map(route6)).collect();
    routes.sort_unstable();
    vec![
        GuardRequest::Start(GuardOptions::default()),
        GuardRequest::Start(GuardOptions { kill_after: None, ..GuardOptions::default() }),
        GuardRequest::Set { number: 1, worker: 65_535, fence: Fence(u32::MAX), routes },
        GuardRequest::Set { number: 1, worker: 0, fence: Fence(0), routes: Vec::new() },
        GuardRequest::Withdraw { number: 2, worker: 1 },
        GuardRequest::WithdrawAll { number: u32::MAX },
        GuardRequest::Quit { number: 4 },
    ]
}

fn answers() -> Vec<GuardAnswer> {
    vec![
        GuardAnswer::Started,
        GuardAnswer::Done { number: 1, routes: 2 },
        GuardAnswer::Failed {
            number: 1,
            total: 99,
            failures: [route(1), route6(1)].map(|route| RouteFailure { route, errno: 17 }).into(),
        },
        GuardAnswer::Refused { number: 1, worker: 2, fence: Fence(3) },
        GuardAnswer::Fenced { worker: 2, fence: Fence(3) },
        GuardAnswer::CannotStart("no /dev/net/tun".to_owned()),
    ]
}

#[test]
fn encoded_messages_decode_and_every_truncation_is_refused() {
    for request in requests() {
        let bytes = request.encode();
        assert_eq!(GuardRequest::decode(&bytes), Ok(request));
        for len in 0..bytes.len() {
            assert!(GuardRequest::decode(&bytes[..len]).is_err());
        }
        assert_eq!(GuardRequest::decode(&[&bytes[..], &[0]].concat()), Err(ProtocolError::Length));
    }
    for answer in answers() {
        let bytes = answer.encode();
        assert_eq!(GuardAnswer::decode(&bytes), Ok(answer));
        for len in 0..bytes.len() {
            assert!(GuardAnswer::decode(&bytes[..len]).is_err());
        }
    }
}

#[test]
fn any_bytes_are_refused_or_encode_to_themselves() {
    bolero::check!().with_type::<(usize, Vec<(u16, u8)>, Vec<u8>)>().for_each(
        |(which, edits, any)| {
            let requests = requests();
            let mut edited = requests[which % requests.len()].encode();
            for (at, value) in edits {
                let at = usize::from(*at) % edited.len();
                edited[at] = *value;
            }
            for bytes in [&edited, any] {
                if let Ok(request) = GuardRequest::decode(bytes) {
                    assert_eq!(&request.encode(), bytes);
                }
                if let Ok(answer) = GuardAnswer::decode(bytes) {
                    assert_eq!(&answer.encode(), bytes);
                }
            }
        },
    );
}

#[test]
fn another_version_of_the_protocol_is_a_version_error() {
    let mut bytes = GuardRequest::Start(GuardOptions::default()).encode();
    bytes[1] += 1;
    assert_eq!(GuardRequest::decode(&bytes), Err(ProtocolError::Version));
}

#[test]
fn a_list_of_the_longest_routes_fits_a_frame_and_routes_that_no_kernel_holds_are_refused() {
    let set = |routes| GuardRequest::Set { number: 1, worker: 0, fence: Fence(0), routes };
    let [empty, one] = [Vec::new(), vec![route6(7)]].map(|routes| set(routes).encode().len());
    assert_eq!(one - empty, ROUTE_BYTES_MAX);
    let bad = [
        Route { metric: 0, ..route6(1) },
        Route { next_hop: route6(1).next_hop, ..route(1) },
        Route { next_hop: route(1).next_hop, ..route6(1) },
        Route { prefix: "2001:db8::1/32".parse().unwrap(), ..route6(1) },
    ];
    for route in bad {
        assert!(GuardRequest::decode(&set(vec![route]).encode()).is_err(), "{route}");
    }
}
