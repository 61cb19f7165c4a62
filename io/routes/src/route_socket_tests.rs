//! Routes as the kernel lists them, and datagrams that it never sends.

use super::*;

#[test]
fn the_local_table_has_the_loopback_and_an_unused_table_is_empty() {
    // Table 255 is the kernel's own; any user may read it.
    let local = dump(255).expect("any user may read routes");
    for loopback in ["127.0.0.1/32", "::1/128"] {
        let is_there = local.iter().any(|route| route.prefix.to_string() == loopback);
        assert!(is_there, "{loopback}: {local:?}");
    }
    assert_eq!(dump(987_654_321).unwrap(), []);
}

/// Family, address, prefix length, metric, next hop, interface.
type Row = (bool, u128, u8, Option<u32>, Option<u128>, Option<u32>);

fn kernel_route(&(is_6, to, len, metric, next_hop, interface): &Row) -> KernelRoute {
    let address = |bits: u128| match is_6 {
        true => IpAddr::from(Ipv6Addr::from(bits)),
        false => Ipv4Addr::from(bits as u32).into(),
    };
    KernelRoute {
        prefix: IpNet::new(address(to), len % if is_6 { 129 } else { 33 }).unwrap(),
        metric: metric.unwrap_or(0),
        next_hop: next_hop.map(address),
        interface,
    }
}

/// Encodes a route as the kernel lists it.
fn listed(route: &KernelRoute, sequence: u32) -> Vec<u8> {
    let mut message = RouteMessage::default();
    message.header.address_family = match route.prefix {
        IpNet::V4(_) => AddressFamily::Inet,
        IpNet::V6(_) => AddressFamily::Inet6,
    };
    message.header.destination_prefix_length = route.prefix.prefix_len();
    message.attributes.extend([
        RouteAttribute::Destination(route.prefix.addr().into()),
        RouteAttribute::Priority(route.metric),
    ]);
    let next_hop = route.next_hop.map(|it| RouteAttribute::Gateway(it.into()));
    message.attributes.extend(next_hop);
    message.attributes.extend(route.interface.map(RouteAttribute::Oif));
    let mut message = NetlinkMessage::from(RouteNetlinkMessage::NewRoute(message));
    message.header.sequence_number = sequence;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Routes are read as the kernel lists them; any other datagram is read to its end or refused.
#[test]
fn datagram() {
    type Datagram = (Vec<Row>, Vec<(u16, u8)>, Vec<u8>);
    bolero::check!().with_type::<Datagram>().for_each(|(rows, edits, junk)| {
        let routes: Vec<KernelRoute> = rows.iter().take(6).map(kernel_route).collect();
        let mut datagram: Vec<u8> = routes.iter().flat_map(|it| listed(it, 7)).collect();
        let seen = |datagram: &[u8]| {
            let (mut routes, mut count) = (Vec::new(), 0);
            let end = messages(datagram, |_, payload| {
                count += 1;
                if let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(message)) =
                    payload
                {
                    let _ = table_of(&message);
                    routes.extend(read(&message));
                }
                Ok(())
            });
            assert!(16 * count <= datagram.len());
            end.map(|()| routes)
        };
        assert_eq!(seen(&datagram).unwrap(), routes);
        datagram.extend(junk);
        for (at, value) in edits {
            let at = usize::from(*at) % datagram.len().max(1);
            datagram.get_mut(at).into_iter().for_each(|byte| *byte = *value);
        }
        for datagram in [&datagram, junk] {
            let _ = seen(datagram);
        }
    });
}
