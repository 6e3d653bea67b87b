//! A process that makes collective calls of its own, and tells at a socket what it is about to call and what came of it.
//!
//! `chaos_group SOCKET ROUNDS WORLD HOLD GATE`: in round HOLD rank 1 of WORLD processes does not call what the others call, until it is killed; in round
//! GATE fewer than WORLD wait for others. With CHAOS_WORKS_ON in its environment it goes on after its part, until the test sends a line. Each result is compared with what it must be for the ranks that there are.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, bail, ensure};
use sardana::Rank;
use sardana::group::{Config, Group, GroupError, Order, Reduction, join};

/// Values in one operation: several chunks.
const VALUES: usize = 100_000;

struct Script {
    socket: UnixStream,
    rounds: u64,
    world: u32,
    hold: u64,
    gate: u64,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, rounds, world, hold, gate] = &arguments[..] else {
        bail!("expected SOCKET ROUNDS WORLD HOLD GATE, found {arguments:?}");
    };
    let mut script = Script {
        socket: UnixStream::connect(socket)?,
        rounds: rounds.parse()?,
        world: world.parse()?,
        hold: hold.parse()?,
        gate: gate.parse()?,
    };
    let joined = join(&Config::new("chaos group").settings(arguments[1..].join(" ")));
    let mut member = joined.inspect_err(|error| eprintln!("{error}"))?;
    let mut round = 0;
    while let Some(mut group) = member.next()? {
        let (generation, rank, world) = (group.generation(), group.rank(), group.world_size());
        script.say(&format!("group {generation} {rank} of {world}"))?;
        match script.play(&mut group, &mut round)?.and_then(|()| member.finish(group)) {
            Ok(()) => {
                script.say(&format!("finished after {round} in {generation}"))?;
                return script.works_on();
            }
            Err(error) if error.generation_is_over() => script.say(&format!("over {generation} in round {round}"))?,
            Err(error) => return Err(error).context("not what a change of membership explains"),
        }
    }
    script.say(&format!("let go after {round}"))?;
    script.works_on()
}

impl Script {
    fn say(&mut self, what: &str) -> Result<()> {
        writeln!(self.socket, "{} {what}", std::process::id()).context("the test is gone")
    }

    /// What a program does once its part in the job is over.
    fn works_on(&mut self) -> Result<()> {
        if std::env::var_os("CHAOS_WORKS_ON").is_none() {
            return Ok(());
        }
        self.say("works on")?;
        self.socket.read_exact(&mut [0])?;
        self.say("has saved its model")
    }

    fn play(&mut self, group: &mut Group, round: &mut u64) -> Result<Result<(), GroupError>> {
        let mut newest = [*round];
        if let Err(error) = group.all_reduce(&mut newest, Reduction::Max, Order::Exact) {
            return Ok(Err(error));
        }
        *round = newest[0];
        while *round < self.rounds {
            if let Err(error) = self.round(group, *round)? {
                return Ok(Err(error));
            }
            *round += 1;
        }
        Ok(Ok(()))
    }

    fn round(&mut self, group: &mut Group, round: u64) -> Result<Result<(), GroupError>> {
        let (rank, world) = (group.rank(), group.world_size());
        if round == self.hold && world == self.world && rank == Rank::new(1) && group.generation().count() == 1 {
            self.say(&format!("holds in round {round}"))?;
            loop {
                std::thread::park();
            }
        }
        if round == self.gate && world < self.world {
            return Ok(Err(waits(group)));
        }
        if round == self.hold || round == self.gate {
            self.say(&format!("calls round {round} with {world}"))?;
        }
        let mut values: Vec<f32> = (0..VALUES).map(|at| value(round, rank.get(), at)).collect();
        if let Err(error) = group.all_reduce(&mut values, Reduction::Sum, Order::Exact) {
            return Ok(Err(error));
        }
        for (at, found) in values.into_iter().enumerate() {
            // Added in rank order: of these values another order has other bits.
            let expected = (1..world).fold(value(round, 0, at), |sum, rank| sum + value(round, rank, at));
            ensure!(
                found.to_bits() == expected.to_bits(),
                "value {at} of round {round} of {world} ranks: expected {expected}, found {found}"
            );
        }
        Ok(Ok(()))
    }
}

/// Calls until the generation is over.
fn waits(group: &mut Group) -> GroupError {
    loop {
        if let Err(error) = group.barrier() {
            return error;
        }
    }
}

/// What `rank` brings to a round.
fn value(round: u64, rank: u32, at: usize) -> f32 {
    let mixed = (round * 31 + u64::from(rank) * 7_919 + at as u64 * 104_729) % 10_007;
    (mixed as f32 - 5_003.0) * 1e-3 * 10_f32.powi((at % 7) as i32 + rank as i32 * 2)
}
