//! What reads small records of the network, for fuzz targets and tests; not part of the interface.

use crate::auto::Offer;
use crate::verbs_wire::Record;

/// Whether these bytes, if they are a record or an offer, are written as they were read.
pub fn records(bytes: &[u8]) -> bool {
    Record::parse(bytes).is_none_or(|record| record.bytes() == bytes)
        && Offer::parse(bytes).is_none_or(|offer| offer.bytes() == bytes)
}
