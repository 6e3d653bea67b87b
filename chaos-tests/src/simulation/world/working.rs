//! What a worker's training thread does, and how long that takes: gradients, of which a device may have two, updates, and all that its machine hands out.

use std::time::Duration;

use sardana_protocol::limits::BEAT_EVERY;
use sardana_protocol::member::{Event, Work};
use sardana_protocol::messages::StepReport;
use sardana_protocol::words::{ShardRange, Step, WorkerId};

use super::World;
use super::process::{Beside, Data};
use crate::simulation::calendar::{Beat, Happening};
use crate::simulation::model::{self, hash_of};

impl World {
    /// Lets the training thread begin what comes next, if it is idle.
    pub(super) fn wake(&mut self, worker: WorkerId) {
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        if process.working.is_some() {
            return self.wake_beside(worker);
        }
        let before = process.member.phases();
        let work = process.member.next_work();
        self.coverage.member_moved(before, process.member.phases());
        let base = match work {
            Work::Wait => return,
            Work::Gradient {
                piece, shard, offered, ..
            } => {
                process.awaited_by = process.ring_generation().filter(|_| offered);
                process.driver = process.buffer_for(piece, shard);
                self.swarm.gradient
            }
            Work::Apply { step } => {
                // Each worker that wants this sum may have it from now on.
                process.sum = process.take_sum(step);
                self.swarm.apply
            }
            Work::Load { .. } => self.swarm.load,
            Work::Conclude { .. } => self.swarm.apply * 2,
        };
        self.begin_work(worker, work, base);
        self.wake_beside(worker);
    }

    fn begin_work(&mut self, worker: WorkerId, work: Work, base: Duration) {
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        process.working = Some(work);
        process.began = self.calendar.now();
        let slow = process.slow;
        let jitter = 900 + u32::try_from(self.dice.below(200)).unwrap_or(0);
        self.calendar
            .after(base * slow * jitter / 1_000, Happening::Worked { worker });
    }

    /// Where a device computes a gradient the training thread begins the next one meanwhile.
    fn wake_beside(&mut self, worker: WorkerId) {
        let process = self.processes.get_mut(&worker).filter(|_| self.swarm.devices);
        let Some(process) = process.filter(|process| process.beside.is_none() && !process.hung) else {
            return;
        };
        let Some(Work::Gradient {
            step,
            piece: before,
            shard,
            ..
        }) = process.working
        else {
            return;
        };
        let work = process.member.next_work_beside(step, before, shard);
        if let Work::Gradient {
            piece, shard, offered, ..
        } = work
        {
            self.coverage.begun_beside(piece == before);
            process.beside = Some(Beside {
                work,
                piece,
                driver: if piece == before {
                    None
                } else {
                    process.buffer_for(piece, shard)
                },
                awaited_by: process.ring_generation().filter(|_| offered),
            });
        }
    }

    /// The training thread has done what it was doing.
    pub(super) fn worked(&mut self, worker: WorkerId) {
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        if process.hung {
            return;
        }
        process.done_at(self.calendar.now());
        let event = match process.working.take() {
            None | Some(Work::Wait) => return,
            Some(Work::Gradient { step, piece, shard, .. }) => {
                self.computed(worker, step, piece, shard);
                Event::Computed { step, piece, shard }
            }
            Some(Work::Apply { step }) => {
                let Some(sum) = process.sum.clone().filter(|sum| sum.step == step) else {
                    return self.senseless(worker, "the sum to be applied was accepted");
                };
                let before = process.state;
                process.state = model::apply(before, &sum.gradients);
                process.buffers.clear();
                let held = self.law.applied(worker, step, &sum, before, process.state);
                self.counts.updates += 1;
                if step.next() > self.high {
                    self.high = step.next();
                    self.advances += 1;
                }
                if !process.reports_due {
                    process.reports_due = true;
                    let heartbeat = Beat::Reports;
                    self.calendar.after(BEAT_EVERY, Happening::Beat { worker, heartbeat });
                }
                self.require(held);
                Event::Applied {
                    report: StepReport {
                        step,
                        samples: 10,
                        sums: Vec::new(),
                    },
                }
            }
            Some(Work::Load { step }) => {
                let Some(Data::State(state)) = process.accepted.take() else {
                    return self.senseless(worker, "the state to be loaded was accepted");
                };
                (process.state, process.sum) = (state, None);
                process.buffers.clear();
                let held = self.law.computes_with(step, state);
                self.require(held);
                Event::Loaded
            }
            Some(Work::Conclude { step }) => {
                let state = process.state;
                let held = self.law.computes_with(step, state);
                self.require(held);
                Event::Concluded {
                    hash: hash_of(state),
                    results: vec![("steps".to_owned(), 1.0)],
                }
            }
        };
        self.go_on_beside(worker);
        self.member(worker, event, Data::None);
    }
    /// The device comes to the gradient that was begun beside the one that is done.
    fn go_on_beside(&mut self, worker: WorkerId) {
        let begun = self.processes.get_mut(&worker).and_then(|process| process.beside.take());
        let (Some(begun), Some(process)) = (begun, self.processes.get_mut(&worker)) else {
            return;
        };
        process.driver = begun.driver.or_else(|| process.driver.take());
        process.awaited_by = begun.awaited_by;
        self.begin_work(worker, begun.work, self.swarm.gradient);
    }

    /// A worker has computed the gradient of a shard of `piece`.
    fn computed(&mut self, worker: WorkerId, step: Step, piece: ShardRange, shard: u32) {
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        let held = self.law.computes_with(step, process.state);
        self.counts.gradients += 1;
        let Some(mut gradients) = process.driver.take() else {
            return self.senseless(worker, "a piece that goes on has a buffer");
        };
        gradients.push((shard, model::gradient(process.state, step, shard)));
        if process.beside.as_ref().is_some_and(|beside| beside.piece == piece) {
            process.driver = Some(gradients);
            return self.require(held);
        }
        process.buffers.insert(piece, gradients);
        // The ring that was offered it can now end with it, if it is still the one.
        let ring = process.ring_generation();
        if process.awaited_by.take().is_some_and(|awaited| ring == Some(awaited)) {
            self.offer(worker, piece);
        }
        self.require(held);
    }
}
