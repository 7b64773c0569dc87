//! What links are doing, for `onbeat link status`: each end keeps a page that others read.
//!
//! **What it leaves behind.** Nothing: as channels, a page is memory without a file, found through
//! its process's descriptors, and gone with the process however that ends.
//!
//! **Who may read.** Processes of the same user with as many capabilities, and root.
//!
//! **Trust.** A reader copies a page before it looks at it, and takes every byte for a stranger's:
//! no number in it is an index or a length that is not checked.
//!
//! | module | job |
//! |---|---|
//! | `layout` | where what stands in a page |
//! | `page` | the page of an end |
//! | `counted` | halves that count what passes |
//! | `read` | the pages of this machine |

mod counted;
mod layout;
mod page;
mod read;

pub(crate) use counted::{counted, Directions};
pub(crate) use layout::Word;
pub use layout::{parse, Backend, LinkStatus, Passed, PortStatus, QosStatus, State};
pub use onbeat_flow::clock::now_ns;
pub(crate) use page::Page;
pub use read::{survey, Found, Survey};
