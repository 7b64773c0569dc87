//! The state of all links of this machine, for `onbeat link status`: each end keeps a page that
//! other processes read.
//!
//! **What it leaves behind.** Nothing. Like a channel, a page is memory without a file. Readers
//! find it through its process's descriptors, and it goes with the process, however that ends.
//!
//! **Who may read.** Processes of the same user with as many capabilities, and root.
//!
//! **Trust.** A reader copies a page before it looks at it, and trusts none of its bytes: it checks
//! every number before it uses one as an index or a length.
//!
//! | module | job |
//! |---|---|
//! | `layout` | the layout of a page |
//! | `page` | the page of an end |
//! | `counted` | wrappers that count messages |
//! | `read` | the pages of this machine |

mod counted;
mod layout;
mod page;
mod read;

pub use crate::steps::{class_ends_ns, Stall, Step, Steps, CLASSES};
pub(crate) use counted::{counted, Directions};
pub(crate) use layout::Word;
pub use layout::{parse, Backend, LinkStatus, Passed, PortStatus, QosStatus, State};
pub use onbeat_flow::clock::now_ns;
pub(crate) use page::Page;
pub use read::{survey, Found, Survey};
