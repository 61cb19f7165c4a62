use crate::engine::{Context, Engine};
use crate::{DropReason, Side};
use weir_wire::ethernet::Mac;
use weir_wire::frame::{Frame, Pool};
impl<F: Frame> Engine<F> {
    pub(crate) fn ndp_input<P: Pool<Frame = F>>(
        &mut self,
        _: Side,
        _: F,
        _: Mac,
        _: &mut Context<'_, P>,
    ) {
        self.discard(DropReason::LocalProtocol)
    }
    pub(crate) fn answer_ping6<P: Pool<Frame = F>>(
        &mut self,
        _: Side,
        _: F,
        _: Mac,
        _: &mut Context<'_, P>,
    ) {
        self.discard(DropReason::LocalProtocol)
    }
}
