//! RDMA devices and queue pairs: finds the device with an address, posts requests and reads
//! completions. A thin layer over `sideway`. Posting in `sideway` allocates, and its set-up cannot
//! use completion events, so these few calls go to its bindings directly.

use crate::verbs_wire::{Endpoint, Lane};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use onbeat_flow::clock::now_ns;
use rdma_mummy_sys as sys;
use sideway::ibverbs::address::{AddressHandleAttribute, Gid, GidType};
use sideway::ibverbs::completion::{
    BasicCompletionQueue, CompletionChannel, CompletionQueue, GenericCompletionQueue,
};
use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::device_context::{DeviceContext, Mtu};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{BasicQueuePair, QueuePair, QueuePairAttribute, QueuePairState};
use sideway::ibverbs::AccessFlags;
use std::io::{Error, Result};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

fn failed(error: impl std::fmt::Display) -> Error {
    Error::other(error.to_string())
}

pub struct Device {
    context: Arc<DeviceContext>,
    port: u8,
    gid_index: u8,
    pub gid: [u8; 16],
    /// The verbs code of the active MTU: 1 (256 bytes) to 5 (4096 bytes).
    pub mtu: u8,
}

impl Device {
    /// Finds the device whose port has this address under RoCE v2.
    ///
    /// # Errors
    /// No such device exists, or libibverbs is missing.
    pub fn of(address: IpAddr) -> Result<Device> {
        let wanted = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let devices = DeviceList::new().map_err(|_| {
            Error::other("libibverbs.so.1 is missing. Install libibverbs of rdma-core.")
        })?;
        for device in devices.iter() {
            let Ok(context) = device.open() else { continue };
            if let Some(found) = Device::on(context, wanted) {
                return Ok(found);
            }
        }
        let count = devices.len();
        Err(Error::other(format!(
            "none of {count} RDMA devices has the address {address} under RoCE v2. \
             For Soft-RoCE, run `rdma link add NAME type rxe netdev INTERFACE`."
        )))
    }

    fn on(context: Arc<DeviceContext>, wanted: Ipv6Addr) -> Option<Device> {
        let table = context.query_gid_table().ok()?;
        let entry = table.iter().find(|entry| {
            let is_wanted = Ipv6Addr::from(entry.gid()) == wanted;
            is_wanted && matches!(entry.gid_type(), GidType::RoceV2)
        })?;
        let port = u8::try_from(entry.port_num()).ok()?;
        let mtu = context.query_port(port).ok()?.active_mtu();
        Some(Device {
            port,
            gid_index: u8::try_from(entry.gid_index()).ok()?,
            gid: entry.gid().raw,
            mtu: mtu as u8,
            context,
        })
    }

    pub fn domain(&self) -> Result<Arc<ProtectionDomain>> {
        self.context.alloc_pd().map_err(failed)
    }

    /// Makes a queue pair in its initial state. Up to `receives` receives can be posted, and
    /// `SPARE` more sends than that.
    pub fn queue(&self, domain: &Arc<ProtectionDomain>, receives: u32) -> Result<Queue> {
        let channel = self.context.create_comp_channel().map_err(failed)?;
        channel.set_nonblocking(true)?;
        let sends = receives + SPARE;
        let mut builder = self.context.create_cq_builder();
        builder.setup_cqe(sends + receives + 1);
        let cq = builder.setup_comp_channel(&channel, 0).build();
        let cq = cq.map_err(failed)?;
        let mut builder = domain.create_qp_builder();
        let handle = GenericCompletionQueue::Basic(Arc::clone(&cq));
        builder
            .setup_max_send_wr(sends)
            .setup_max_recv_wr(receives)
            .setup_max_inline_data(0)
            .setup_send_cq(handle.clone())
            .setup_recv_cq(handle);
        let mut pair = builder.build().map_err(failed)?;
        let mut attributes = QueuePairAttribute::new();
        attributes
            .setup_state(QueuePairState::Init)
            .setup_pkey_index(0)
            .setup_port(self.port)
            .setup_access_flags(
                AccessFlags::LocalWrite | AccessFlags::RemoteWrite | AccessFlags::RemoteRead,
            );
        pair.modify(&attributes).map_err(failed)?;
        let mut queue = Queue {
            pair: Arc::new(Pair(pair)),
            cq,
            channel,
            limit: u64::from(sends),
            sent: 0,
            done: 0,
        };
        for _ in 0..receives {
            queue.post_receive()?;
        }
        Ok(queue)
    }

    /// Connects a new queue pair to a queue pair of the peer. The queue pair breaks if the peer
    /// does not answer for about `gone_after`.
    pub fn join(
        &self,
        queue: &mut Queue,
        ours: Lane,
        peer: &Endpoint,
        theirs: Lane,
        gone_after: Duration,
    ) -> Result<()> {
        let mtu = Mtu::from(u32::from(self.mtu.min(peer.mtu)));
        let mut address = AddressHandleAttribute::new();
        address
            .setup_port(self.port)
            .setup_grh_src_gid_index(self.gid_index)
            .setup_grh_dest_gid(&Gid { raw: peer.gid })
            .setup_grh_hop_limit(HOPS);
        let mut attributes = QueuePairAttribute::new();
        attributes
            .setup_state(QueuePairState::ReadyToReceive)
            .setup_path_mtu(mtu)
            .setup_dest_qp_num(theirs.number)
            .setup_rq_psn(theirs.psn)
            .setup_max_dest_read_atomic(1)
            .setup_min_rnr_timer(12)
            .setup_address_vector(&address);
        let pair =
            Arc::get_mut(&mut queue.pair).ok_or_else(|| failed("the queue pair is in use"))?;
        pair.0.modify(&attributes).map_err(failed)?;
        let mut attributes = QueuePairAttribute::new();
        attributes
            .setup_state(QueuePairState::ReadyToSend)
            .setup_sq_psn(ours.psn)
            .setup_timeout(timeout_code(gone_after))
            .setup_retry_cnt(RETRIES)
            // A receive is always posted, so a peer that is not ready breaks the protocol.
            .setup_rnr_retry(0)
            .setup_max_read_atomic(1);
        pair.0.modify(&attributes).map_err(failed)
    }
}

/// The number of sends for which a queue has room in addition to one per receive: for reads of
/// values, and for sends that are not acknowledged yet.
const SPARE: u32 = 8;
const RETRIES: u8 = 7;
const HOPS: u8 = 64;
const SUCCESS: u32 = 0;

/// Returns the smallest code c for which `RETRIES + 1` time-outs of 4096 ns * 2^c last at least as
/// long as `whole`.
fn timeout_code(whole: Duration) -> u8 {
    let each = whole.as_nanos() / (u128::from(RETRIES) + 1);
    let code = (each / 4096).checked_ilog2().map_or(1, |log| log + 1);
    u8::try_from(code.clamp(1, 31)).unwrap_or(31)
}

/// A queue pair. Only one thread posts and polls, but any thread may revoke it.
pub struct Pair(BasicQueuePair);

impl Pair {
    /// Puts the queue pair into its error state. The device drops later data from the peer, and
    /// posted requests complete with an error.
    pub fn revoke(&self) {
        // SAFETY: zeros are valid. The pair lives, and verbs may be called from several threads.
        unsafe {
            let mut attributes: sys::ibv_qp_attr = std::mem::zeroed();
            attributes.qp_state = sys::ibv_qp_state::IBV_QPS_ERR;
            let mask = sys::ibv_qp_attr_mask::IBV_QP_STATE.0 as i32;
            sys::ibv_modify_qp(self.0.qp().as_ptr(), &mut attributes, mask);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    Sent(Kind),
    Written { tag: u32, bytes: usize },
    Told(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Message,
    Value,
}

/// A part of this end's memory, and the place in the peer's memory that the part is copied to or
/// from.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    pub local: u64,
    pub local_key: u32,
    pub bytes: usize,
    pub remote: u64,
    pub remote_key: u32,
}

#[derive(Debug, Clone, Copy)]
pub enum Request {
    /// Writes to the peer's memory, and sends the peer a tag of 32 bits.
    WriteWithTag(Transfer, u32),
    Write(Transfer),
    Read(Transfer),
    Tag(u32),
}

pub struct Queue {
    pair: Arc<Pair>,
    cq: Arc<BasicCompletionQueue>,
    channel: Arc<CompletionChannel>,
    limit: u64,
    sent: u64,
    done: u64,
}

impl Queue {
    pub fn number(&self) -> u32 {
        self.pair.0.qp_number()
    }

    pub fn pair(&self) -> Arc<Pair> {
        Arc::clone(&self.pair)
    }

    pub fn is_idle(&self) -> bool {
        self.sent == self.done
    }

    pub fn acknowledged(&self) -> u64 {
        self.done
    }

    pub fn has_room(&self) -> bool {
        self.sent - self.done < self.limit
    }

    pub fn post_receive(&mut self) -> Result<()> {
        // SAFETY: zeros are valid: a request without memory.
        let mut request: sys::ibv_recv_wr = unsafe { std::mem::zeroed() };
        let mut bad = std::ptr::null_mut();
        // SAFETY: the pair lives, and the request is copied.
        let code = unsafe { sys::ibv_post_recv(self.pair.0.qp().as_ptr(), &mut request, &mut bad) };
        if code != 0 {
            return Err(Error::from_raw_os_error(code));
        }
        Ok(())
    }

    /// Posts a request. The caller must have checked [`Queue::has_room`].
    ///
    /// # Safety
    /// The memory of the transfer stays registered and mapped until the request is done or the
    /// region is deregistered.
    pub unsafe fn post(&mut self, request: Request, kind: Kind) -> Result<()> {
        use sys::ibv_wr_opcode as op;
        // SAFETY: zeros are valid.
        let mut wr: sys::ibv_send_wr = unsafe { std::mem::zeroed() };
        let (transfer, opcode, tag) = match request {
            Request::WriteWithTag(t, tag) => (Some(t), op::IBV_WR_RDMA_WRITE_WITH_IMM, tag),
            Request::Write(t) => (Some(t), op::IBV_WR_RDMA_WRITE, 0),
            Request::Read(t) => (Some(t), op::IBV_WR_RDMA_READ, 0),
            Request::Tag(tag) => (None, op::IBV_WR_SEND_WITH_IMM, tag),
        };
        // SAFETY: zeros are valid.
        let mut part: sys::ibv_sge = unsafe { std::mem::zeroed() };
        if let Some(t) = transfer {
            wr.wr.rdma.remote_addr = t.remote;
            wr.wr.rdma.rkey = t.remote_key;
            if t.bytes > 0 {
                part.addr = t.local;
                // Sizes are 1 GiB at most.
                part.length = t.bytes as u32;
                part.lkey = t.local_key;
                (wr.sg_list, wr.num_sge) = (&mut part, 1);
            }
        }
        wr.opcode = opcode;
        wr.imm_data_invalidated_rkey_union.imm_data = tag.to_be();
        wr.wr_id = kind as u64;
        wr.send_flags = sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
        let mut bad = std::ptr::null_mut();
        // SAFETY: the pair lives, and the request and its list are copied.
        let code = unsafe { sys::ibv_post_send(self.pair.0.qp().as_ptr(), &mut wr, &mut bad) };
        if code != 0 {
            return Err(Error::from_raw_os_error(code));
        }
        self.sent += 1;
        Ok(())
    }

    /// Returns the next completion, if there is one.
    ///
    /// # Errors
    /// The queue pair is broken. The error says why.
    pub fn next_done(&mut self) -> Result<Option<Done>> {
        // SAFETY: zeros are valid.
        let mut wc: sys::ibv_wc = unsafe { std::mem::zeroed() };
        // SAFETY: the queue lives, and there is room for one completion.
        let count = unsafe { sys::ibv_poll_cq(self.cq.cq().as_ptr(), 1, &mut wc) };
        if count == 0 {
            return Ok(None);
        }
        if count < 0 {
            return Err(failed("the completions of the queue pair cannot be read"));
        }
        if wc.status != SUCCESS {
            // SAFETY: the library returns a static text.
            let text = unsafe { std::ffi::CStr::from_ptr(sys::ibv_wc_status_str(wc.status)) };
            return Err(failed(text.to_string_lossy()));
        }
        // SAFETY: any bits are a valid number.
        let tag = u32::from_be(unsafe { wc.imm_data_invalidated_rkey_union.imm_data });
        Ok(Some(match wc.opcode {
            sys::ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM => Done::Written {
                tag,
                bytes: wc.byte_len as usize,
            },
            sys::ibv_wc_opcode::IBV_WC_RECV => Done::Told(tag),
            _ => {
                self.done += 1;
                Done::Sent(match wc.wr_id {
                    id if id == Kind::Value as u64 => Kind::Value,
                    _ => Kind::Message,
                })
            }
        }))
    }

    /// Asks the device for an event at the next completion. The caller must poll once more before
    /// it waits.
    pub fn arm(&self) -> Result<()> {
        // SAFETY: the queue lives.
        match unsafe { sys::ibv_req_notify_cq(self.cq.cq().as_ptr(), 0) } {
            0 => Ok(()),
            code => Err(Error::from_raw_os_error(code)),
        }
    }

    pub fn wait(&self, wake: BorrowedFd<'_>, deadline_ns: Option<u64>) {
        let timeout = deadline_ns.map_or(PollTimeout::NONE, |deadline| {
            // Rounded up, so that the caller does not spin in the last millisecond.
            let ms = deadline.saturating_sub(now_ns()).div_ceil(1_000_000);
            PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX)
        });
        // SAFETY: the channel lives for this call.
        let channel = unsafe { BorrowedFd::borrow_raw(self.channel.as_raw_fd()) };
        let mut descriptors = [
            PollFd::new(channel, PollFlags::POLLIN),
            PollFd::new(wake, PollFlags::POLLIN),
        ];
        let _ = poll(&mut descriptors, timeout);
        let (mut cq, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the channel lives, and does not block. Each event is acknowledged, because the
        // queue cannot be destroyed before.
        unsafe {
            let channel = self.channel.comp_channel().as_ptr();
            while sys::ibv_get_cq_event(channel, &mut cq, &mut context) == 0 {
                sys::ibv_ack_cq_events(cq, 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_out_lasts_one_to_three_times_the_requested_time() {
        for ms in [1, 10, 500, 2000, 20_000] {
            let asked = Duration::from_millis(ms);
            let each = 4096u64 << timeout_code(asked);
            let whole = Duration::from_nanos(each * 8);
            assert!(asked <= whole && whole <= asked * 3, "{asked:?}: {whole:?}");
        }
    }
}
