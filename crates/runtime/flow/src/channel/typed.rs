//! Channels of Rust types: programs read and write items in place as values of their type.
//!
//! ```
//! use onbeat_flow::{Policy, Typed};
//!
//! let poses = Typed::<[f64; 3]>::new(Policy::Latest)?;
//! let (mut localiser, mut controller) = (poses.producer()?, poses.consumer()?);
//! let mut pose = localiser.loan()?;
//! *pose = [1.0, 2.0, 0.5];
//! pose.send()?;
//! assert_eq!(*controller.newest()?.expect("it was sent"), [1.0, 2.0, 0.5]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A type fits if it has no padding and all bytes make a valid value: zerocopy's derives check
//! that. So no process, not even one that writes random bytes, can make an invalid value.

use super::attach::{AttachError, Channel};
use super::consumer::{Consumer, Item, ReceiveError};
use super::description::OpenError;
use super::options::{CreateError, ItemType, Options, Policy};
use super::producer::{Loan, LoanError, Producer, Refused, SendCopyError, SendError};
use crate::wait::Waker;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A type whose values can be items of a channel: any bytes make a valid value, and there is no
/// padding. The derive macros of the crate zerocopy implement the trait. Slices of such types can
/// be items, too.
pub trait Payload: FromBytes + IntoBytes + Immutable + KnownLayout {}
impl<T: ?Sized + FromBytes + IntoBytes + Immutable + KnownLayout> Payload for T {}

/// A channel of values of `T`, or of slices of them.
pub struct Typed<T: ?Sized> {
    channel: Channel,
    of: PhantomData<fn(&T)>,
}

impl<T: Payload> Typed<T> {
    /// Creates a channel within this process whose items are one `T` each.
    pub fn new(policy: Policy) -> Result<Typed<T>, CreateError> {
        Ok(Typed::over(Channel::new(Options::of::<T>(policy))?)
            .expect("a channel that is created for a type accepts this type"))
    }
}

impl<T: Payload> Typed<[T]> {
    /// Creates a channel within this process whose items are slices of up to `most` values of `T`.
    pub fn slices(policy: Policy, most: usize) -> Result<Typed<[T]>, CreateError> {
        let channel = Channel::new(Options::slices_of::<T>(policy, most))?;
        Ok(Typed::of_slices(channel)
            .expect("a channel that is created for a type accepts this type"))
    }

    /// Wraps a channel that was created with [`Options::slices_of`]. Fails if its items are not
    /// slices of `T`.
    pub fn of_slices(channel: Channel) -> Result<Typed<[T]>, OpenError> {
        Typed::checked::<T>(channel)
    }
}

impl<T: Payload> Typed<T> {
    /// Wraps a channel that was created with [`Options::of`], in any memory. Fails if its items are
    /// not values of `T`.
    pub fn over(channel: Channel) -> Result<Typed<T>, OpenError> {
        Typed::checked::<T>(channel)
    }
}

impl<T: ?Sized + Payload> Typed<T> {
    fn checked<E>(channel: Channel) -> Result<Typed<T>, OpenError> {
        let (theirs, ours) = (channel.options().item, ItemType::of::<E>());
        if theirs != ours {
            return Err(OpenError::Differs {
                what: "items are",
                theirs: theirs.to_string(),
                ours: ours.to_string(),
            });
        }
        Ok(Typed {
            channel,
            of: PhantomData,
        })
    }

    /// Returns the untyped channel, for example for its counters.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Attaches the producer, like [`Channel::producer`].
    pub fn producer(&self) -> Result<TypedProducer<T>, AttachError> {
        Ok(TypedProducer {
            producer: self.channel.producer()?,
            of: PhantomData,
        })
    }

    /// Attaches a consumer, like [`Channel::consumer`].
    pub fn consumer(&self) -> Result<TypedConsumer<T>, AttachError> {
        Ok(self.receiver(self.channel.consumer()?))
    }

    /// Attaches a consumer that wakes `waker`, like [`Channel::consumer_on`].
    pub fn consumer_on(&self, waker: &Waker) -> Result<TypedConsumer<T>, AttachError> {
        Ok(self.receiver(self.channel.consumer_on(waker)?))
    }

    /// Attaches an observer, like [`Channel::observer`].
    pub fn observer(&self) -> Result<TypedConsumer<T>, AttachError> {
        Ok(self.receiver(self.channel.observer()?))
    }

    fn receiver(&self, consumer: Consumer) -> TypedConsumer<T> {
        TypedConsumer {
            consumer,
            of: PhantomData,
        }
    }
}

/// A [`Producer`] whose items are values of `T`, written in the channel's memory without a copy.
#[derive(Debug)]
pub struct TypedProducer<T: ?Sized> {
    producer: Producer,
    of: PhantomData<fn(&T)>,
}

impl<T: Payload> TypedProducer<T> {
    /// Loans a value, to be written and sent. The memory still has its old content.
    pub fn loan(&mut self) -> Result<TypedLoan<'_, T>, LoanError> {
        Ok(TypedLoan {
            loan: self.producer.loan(size_of::<T>())?,
            of: PhantomData,
        })
    }
}

impl<T: Payload> TypedProducer<T> {
    /// Sends a copy of the value. Waits as [`Producer::send`] does.
    pub fn send(&mut self, value: &T) -> Result<(), SendCopyError> {
        self.producer.send(value.as_bytes())
    }
}

impl<T: Payload> TypedProducer<[T]> {
    /// Loans `count` values, to be written and sent. The memory still has its old content.
    pub fn loan(&mut self, count: usize) -> Result<TypedLoan<'_, [T]>, LoanError> {
        let bytes = count.saturating_mul(size_of::<T>());
        Ok(TypedLoan {
            loan: self.producer.loan(bytes)?,
            of: PhantomData,
        })
    }
}

impl<T: ?Sized> TypedProducer<T> {
    /// Returns the untyped producer, for example for [`Producer::flush`].
    pub fn bytes(&mut self) -> &mut Producer {
        &mut self.producer
    }
}

/// A [`Loan`] whose payload is a value of `T`.
#[derive(Debug)]
pub struct TypedLoan<'p, T: ?Sized> {
    loan: Loan<'p>,
    of: PhantomData<fn(&T)>,
}

impl<'p, T: ?Sized> TypedLoan<'p, T> {
    /// Sends the value, like [`Loan::send`].
    pub fn send(self) -> Result<(), SendError> {
        self.loan.send()
    }

    /// Sends the value if that is possible at once, like [`Loan::try_send`].
    pub fn try_send(self) -> Result<(), Refused<'p>> {
        self.loan.try_send()
    }

    /// Sends the value and waits at most until `deadline_ns`, like [`Loan::send_until`].
    pub fn send_until(self, deadline_ns: u64) -> Result<(), Refused<'p>> {
        self.loan.send_until(deadline_ns)
    }
}

impl<T: ?Sized + Payload> Deref for TypedLoan<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        T::ref_from_bytes(&self.loan).expect("the loan has the size and alignment of the type")
    }
}

impl<T: ?Sized + Payload> DerefMut for TypedLoan<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        T::mut_from_bytes(&mut self.loan).expect("the loan has the size and alignment of the type")
    }
}

/// A [`Consumer`] whose items are values of `T`, read where the producer has written them.
#[derive(Debug)]
pub struct TypedConsumer<T: ?Sized> {
    consumer: Consumer,
    of: PhantomData<fn(&T)>,
}

impl<T: ?Sized + Payload> TypedConsumer<T> {
    /// Receives the next item, like [`Consumer::try_receive`]. If the item is not a `T`, consumes
    /// it and returns an error.
    pub fn try_receive(&self) -> Result<Option<TypedItem<'_, T>>, ReceiveError> {
        self.consumer.try_receive()?.map(TypedItem::new).transpose()
    }

    /// Receives the next item and waits for it, like [`Consumer::receive_until`]. If the item is
    /// not a `T`, consumes it and returns an error.
    pub fn receive_until(
        &self,
        deadline_ns: Option<u64>,
    ) -> Result<Option<TypedItem<'_, T>>, ReceiveError> {
        let item = self.consumer.receive_until(deadline_ns)?;
        item.map(TypedItem::new).transpose()
    }

    /// Returns the newest value, like [`Consumer::newest`].
    pub fn newest(&mut self) -> Result<Option<TypedItem<'_, T>>, ReceiveError> {
        self.consumer.newest().map(TypedItem::new).transpose()
    }

    /// Shows a waiting item, like [`Consumer::peek`]. If the item is not a `T`, returns an error.
    pub fn peek(&mut self, nth: usize) -> Result<Option<&T>, ReceiveError> {
        let Some(bytes) = self.consumer.peek(nth) else {
            return Ok(None);
        };
        let not_of_type = ReceiveError::NotOfType { bytes: bytes.len() };
        T::ref_from_bytes(bytes).map(Some).map_err(|_| not_of_type)
    }

    /// Receives and copies the next item. Returns `None` if no item waits, or if the item is not a
    /// `T`.
    pub fn take(&self) -> Option<T>
    where
        T: Copy,
    {
        self.try_receive().ok().flatten().map(|item| *item)
    }

    /// Returns the number of items that can be received now.
    pub fn waiting(&self) -> u32 {
        self.consumer.waiting()
    }

    /// Returns the untyped consumer, for example for [`Consumer::stats`].
    pub fn bytes(&self) -> &Consumer {
        &self.consumer
    }
}

/// An [`Item`] whose payload is a value of `T`.
#[derive(Debug)]
pub struct TypedItem<'c, T: ?Sized> {
    item: Item<'c>,
    of: PhantomData<fn(&T)>,
}

impl<'c, T: ?Sized + Payload> TypedItem<'c, T> {
    fn new(item: Item<'c>) -> Result<TypedItem<'c, T>, ReceiveError> {
        if T::ref_from_bytes(&item).is_err() {
            return Err(ReceiveError::NotOfType { bytes: item.len() });
        }
        Ok(TypedItem {
            item,
            of: PhantomData,
        })
    }

    /// Returns the item's number, like [`Item::sequence`].
    pub fn sequence(&self) -> u64 {
        self.item.sequence()
    }

    /// Returns when the item was sent, in ns (CLOCK_MONOTONIC).
    pub fn sent_ns(&self) -> u64 {
        self.item.sent_ns()
    }
}

impl<T: ?Sized + Payload> Deref for TypedItem<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        T::ref_from_bytes(&self.item).expect("the type was checked when the item was received")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_typed_channel_carries_values_and_refuses_other_types() {
        let scans = Typed::<[u16]>::slices(Policy::DropOldest { depth: 3 }, 100).unwrap();
        let (mut lidar, mapping) = (scans.producer().unwrap(), scans.consumer().unwrap());
        for length in [0, 1, 100] {
            let mut scan = lidar.loan(length).unwrap();
            scan.fill(length as u16);
            scan.send().unwrap();
            let scan = mapping.try_receive().unwrap().unwrap();
            assert_eq!(*scan, vec![length as u16; length][..]);
        }
        assert!(matches!(lidar.loan(101), Err(LoanError::TooLarge { .. })));

        // The untyped producer can send any bytes. The consumer refuses bytes that are not a value.
        lidar.bytes().send(&[1, 2, 3]).unwrap();
        let refused = mapping.try_receive().unwrap_err();
        assert_eq!(refused, ReceiveError::NotOfType { bytes: 3 });
        assert_eq!(mapping.bytes().stats().in_flight, 0);

        let other = Typed::<u32>::over(scans.channel().clone());
        let error = other.err().unwrap().to_string();
        assert!(error.contains("u16") && error.contains("u32"), "{error}");
    }
}
