//! Certified peers that lie. Each role says anything that its messages can say, to the machines alone and from among honest members: no
//! machine ends, none of them grows, and the honest finish the job in its state.
//!
//! What a worker can do all the same is the limit of trust: see ARCHITECTURE.md. A run that ends by it says whose word it was.

pub(crate) mod alone;
pub(crate) mod among;
pub(crate) mod changing;
pub(crate) mod corpus;
pub(crate) mod siege;
