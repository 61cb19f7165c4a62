use crate::link_header::LinkHeader;
use weir_wire::ethernet::{ETHERTYPE_IPV6, Mac};
#[derive(Debug)]
pub(crate) struct Gateways6 {
    live: Vec<LinkHeader>,
}
impl Gateways6 {
    #[inline(always)]
    pub(crate) fn choose(&self, flow: u32) -> Option<&LinkHeader> {
        match self.live.as_slice() {
            [] => None,
            [only] => Some(only),
            live => Some(&live[flow as usize % live.len()]),
        }
    }
}
#[derive(Debug)]
pub(crate) struct Side6 {
    pub(crate) address: u128,
    pub(crate) gateways: Gateways6,
}
impl Side6 {
    pub(crate) fn new(address: u128, mac: Mac, vlan: Option<u16>, to: Mac) -> Self {
        Self {
            address,
            gateways: Gateways6 { live: vec![LinkHeader::new(to, mac, vlan, ETHERTYPE_IPV6)] },
        }
    }
    pub(crate) fn is_own(&self, a: u128) -> bool {
        a == self.address
    }
}
