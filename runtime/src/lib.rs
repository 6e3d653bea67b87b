//! Elastic data-parallel training: workers come and go, the result stays the same, bit for bit.
//!
//! This crate is what a user touches. A model implements [`model::Trainable`]; a [`Job`] says how long it is trained and on how
//! many workers; [`train()`] runs it in worker processes of the same program. Membership never shows in the model's code.
//!
//! - [`job`]: what is trained; [`model`]: what a model must offer; [`data`]: which samples a shard holds.
//! - [`fit`]: a network with its data in training; [`optim`]: how parameters follow gradients; [`schedule`]: at which rate.
//! - [`mod@train`] and [`launch`]: run it on this host; [`worker`]: be one of its processes; [`local`]: threads instead.
//! - [`device`]: what workers compute on; a GPU for each.
//! - [`hosts`]: several hosts, join files, agents; [`notices`]: machines that a cloud takes away.
//! - [`operator`]: watch and steer a job that runs; [`checkpoints`]: look after what jobs have saved.
//! - [`group`]: all_reduce and its like by themselves, without a trainer, for threads or for processes that come and go.
//! - [`within`]: a worker as a task among others, for simulations.
//! - [`reference`](mod@reference): the plain loop that every elastic run must equal (BITS-1).

pub mod checkpointing;
pub mod checkpoints;
mod copies;
pub mod device;
mod environment;
mod fingerprint;
pub mod fit;
pub mod group;
pub mod hosts;
pub mod job;
pub mod launch;
pub mod local;
pub mod mirroring;
pub mod model;
pub mod notices;
pub mod operator;
pub mod optim;
pub mod reference;
pub mod schedule;
pub mod train;
mod trainer;
pub mod within;
pub mod worker;

pub use sardana_data as data;

pub use checkpointing::Checkpointing;
pub use checkpoints::{Every, Keep};
pub use environment::{LINK_VARIABLE, LinkChoice, LinkVariableError, ROUND_TRIP_VARIABLE, Reach, links};
pub use job::Job;
pub use sardana_actors::agent::AgentEvent;
pub use sardana_actors::fault;
pub use sardana_protocol::job::{Compression, JobSpec, Order};
pub use sardana_protocol::membership::{
    Balance, Calm, CheckpointEvent, GenerationEvent, JobEvent, Loss, SaveCounts, Saves, Summary, WorkerEvent,
};
pub use sardana_protocol::messages::StepReport;
pub use sardana_protocol::rate::Rate;
pub use sardana_protocol::status::Stage;
pub use sardana_protocol::words::{Generation, Pace, Rank, Step, WorkerId};
pub use train::train;
pub use trainer::TrainingError;
pub use worker::serve_if_started_by_agent;
