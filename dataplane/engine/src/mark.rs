//! The mark that the packets of a flow get from its class (DSCP, RFC 2474 section 3).

use weir_nat::FlowClass;
use weir_wire::frame::Frame;

use crate::engine::Engine;
use crate::rewrite;

impl<F: Frame> Engine<F> {
    /// Gives a packet the codepoint of its flow's class, if it has one.
    #[inline(always)]
    pub(crate) fn mark(&self, packet: &mut [u8], class: FlowClass) {
        if class != FlowClass::NONE {
            self.mark_as(packet, class);
        }
    }

    #[cold]
    #[inline(never)]
    fn mark_as(&self, packet: &mut [u8], class: FlowClass) {
        if let Some(dscp) = self.nat.dscp_of(class) {
            rewrite::codepoint(packet, dscp);
        }
    }
}
