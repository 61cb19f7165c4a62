//! Words of a command line for endpoints: an address, a prefix, or an address with a port.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use ipnet::{IpNet, Ipv4Net};

const FORMS_IPV4: &str = "write an address, a prefix or address:port, for example 203.0.113.5, 203.0.113.0/28 or \
                          203.0.113.5:40000";
const FORMS_IPV6: &str = "write an address, a prefix or [address]:port, for example 2001:db8:9::1, 2001:db8::/32 or \
                          [2001:db8:9::1]:443";

/// # Errors
/// When the text names no IPv4 endpoints; the error shows how to write them.
pub(crate) fn ipv4(text: &str) -> Result<String, String> {
    let is_known = text.parse::<SocketAddrV4>().is_ok()
        || text.parse::<Ipv4Addr>().is_ok()
        || text.parse::<Ipv4Net>().is_ok();
    if is_known { Ok(text.to_owned()) } else { Err(FORMS_IPV4.into()) }
}

/// As [`ipv4`], for the option `--public`.
///
/// # Errors
/// As [`ipv4`]; an IPv6 address gets the option that it belongs to.
pub(crate) fn public(text: &str) -> Result<String, String> {
    match is_ipv6(text) {
        true => Err("IPv6 is not translated: select its flows with --inside and --remote".into()),
        false => ipv4(text),
    }
}

/// # Errors
/// When the text names no endpoints of a family; the error shows how to write them.
pub(crate) fn any(text: &str) -> Result<String, String> {
    let is_known = text.parse::<SocketAddr>().is_ok()
        || text.parse::<IpAddr>().is_ok()
        || text.parse::<IpNet>().is_ok();
    match (is_known, is_ipv6(text)) {
        (true, _) => Ok(text.to_owned()),
        (false, true) => Err(FORMS_IPV6.into()),
        (false, false) => Err(FORMS_IPV4.into()),
    }
}

/// Whether endpoints are, or are meant to be, of IPv6: IPv4 has one colon at most.
pub(crate) fn is_ipv6(text: &str) -> bool {
    text.matches(':').count() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_of_both_families_are_taken_in_three_forms() {
        for text in [
            "203.0.113.5",
            "203.0.113.0/28",
            "203.0.113.5:40000",
            "2001:db8:9::1",
            "2001:db8::/32",
            "[2001:db8:9::1]:443",
        ] {
            assert_eq!(any(text), Ok(text.to_owned()));
            assert_eq!(ipv4(text).is_ok(), !is_ipv6(text), "{text}");
        }
    }

    #[test]
    fn wrong_endpoints_are_refused_with_the_forms_of_their_family() {
        for text in ["1.2.3", "203.0.113.5:65536", "203.0.113.0/33", "edge1"] {
            assert!(any(text).unwrap_err().contains("203.0.113.5:40000"), "{text}");
        }
        for text in ["2001:db8::1:443:", "2001:db8::/129", "[2001:db8::1]", "[2001:db8::1]:65536"] {
            assert!(any(text).unwrap_err().contains("[2001:db8:9::1]:443"), "{text}");
        }
        assert!(public("2001:db8::1").unwrap_err().contains("--inside"));
    }
}
