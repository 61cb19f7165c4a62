//! DSCP and ECN across the tunnel (RFC 6040; RFC 2983: uniform model on the way in, pipe model on
//! the way out).

const NOT_ECT: u8 = 0b00;
const ECT_1: u8 = 0b01;
const CE: u8 = 0b11;

/// Returns the traffic class octet of the outer header for a packet that enters the tunnel: the
/// normal mode of RFC 6040 section 4.1 copies ECN. DSCP is copied too, so that the access network
/// can schedule the packet.
#[inline]
pub(crate) fn encapsulate(inner_tos: u8) -> u8 {
    inner_tos
}

/// Returns the inner traffic class octet of a packet that leaves the tunnel; `None`: the packet
/// must be dropped. RFC 6040 section 4.2, figure 4. The inner DSCP is kept.
#[inline]
pub(crate) fn decapsulate(outer_tos: u8, inner_tos: u8) -> Option<u8> {
    let (outer, inner) = (outer_tos & 0b11, inner_tos & 0b11);
    let ecn = match (inner, outer) {
        (NOT_ECT, CE) => return None,
        (NOT_ECT, _) => NOT_ECT,
        (_, CE) => CE,
        (CE, _) => CE,
        (_, ECT_1) => ECT_1,
        (inner, _) => inner,
    };
    Some(inner_tos & !0b11 | ecn)
}

/// Returns the traffic class octet of a packet whose fragments, by their offset, have these; None:
/// the packet must be dropped, since a congestion mark of one meets another that cannot have any
/// (RFC 3168 section 5.3).
pub(crate) fn of_fragments(classes: impl Iterator<Item = u8> + Clone) -> Option<u8> {
    let has = |codepoint| classes.clone().any(|class| class & 0b11 == codepoint);
    let first = classes.clone().next()?;
    match (has(CE), has(NOT_ECT)) {
        (false, _) => Some(first),
        (true, false) => Some(first | CE),
        (true, true) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6040 figure 4: rows are the inner codepoint, columns the outer Not-ECT, ECT(0), ECT(1),
    /// CE.
    #[test]
    fn rfc6040_figure_4() {
        const ECT_0: u8 = 0b10;
        let outer = [NOT_ECT, ECT_0, ECT_1, CE];
        let table = [
            (NOT_ECT, [Some(NOT_ECT), Some(NOT_ECT), Some(NOT_ECT), None]),
            (ECT_0, [Some(ECT_0), Some(ECT_0), Some(ECT_1), Some(CE)]),
            (ECT_1, [Some(ECT_1), Some(ECT_1), Some(ECT_1), Some(CE)]),
            (CE, [Some(CE); 4]),
        ];
        for (inner, row) in table {
            for (outer, wanted) in outer.into_iter().zip(row) {
                assert_eq!(
                    decapsulate(outer, inner),
                    wanted,
                    "inner {inner:02b} outer {outer:02b}"
                );
                let dscp = 46 << 2;
                assert_eq!(decapsulate(outer, dscp | inner), wanted.map(|ecn| dscp | ecn));
            }
        }
    }
}
