//! Entry points for fuzz targets: readers of small network records. Not part of the interface.

use crate::auto::Offer;
use crate::verbs_wire::Record;

/// Checks that parsing and writing do not change the bytes of a record or an offer. Returns `true`
/// also if the bytes are neither.
pub fn records(bytes: &[u8]) -> bool {
    Record::parse(bytes).is_none_or(|record| record.bytes() == bytes)
        && Offer::parse(bytes).is_none_or(|offer| offer.bytes() == bytes)
}
