//! Everything that a user can get wrong: each mistake ends in an error that names it, on its own worker, and never in a hang.

mod alone;
mod models;
mod processes;
mod site;
mod slope;
mod strangers;
