//! How fast congestion controllers send over a path that loses some, has a small queue or is shared: in virtual time, where processors are
//! infinitely fast, by a seed.
//!
//! `cargo bench -p sardana-chaos-tests --bench congestion -- [ROUND_TRIP_MS [MBIT_PER_SECOND [SECONDS]]] [--loss-percent 1]
//! [--queue-percent 25] [--of cubic --of bbr:64 ...] [--beside newreno]`: 50 ms, 100 Mbit/s and 10 s unless told. Each controller has the path
//! for itself, or shares it with one `--beside` it. It is printed how much of the line it took, what it lost, how long a round trip took with
//! its queue, and how long answers to small messages on a connection of their own took meanwhile; and how long a new connection takes for 80 KB,
//! 800 KB and 8 MB when nothing else goes on. What happens within a millisecond happens at once.

use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use sardana_net::quic::Reach;
use tokio::time::Instant;

#[path = "congestion/flow.rs"]
mod flow;
#[path = "congestion/kinds.rs"]
mod kinds;
#[path = "congestion/line.rs"]
mod line;
#[path = "far/told.rs"]
mod told;
#[path = "far/way.rs"]
mod way;

use flow::{Carried, Pair};
use kinds::Controller;
use line::Line;
use told::Told;

/// How many bytes new connections are asked for.
const TRANSFERS: [u64; 3] = [80_000, 800_000, 8_000_000];

#[derive(Parser)]
struct Arguments {
    #[arg(default_value_t = 50)]
    round_trip_ms: u64,
    #[arg(default_value_t = 100)]
    mbit_per_second: u64,
    #[arg(default_value_t = 10)]
    seconds: u64,
    #[command(flatten)]
    told: Told,
    /// Controllers: shipped, cubic, newreno or bbr, each with a colon and its first window in KiB if that is not to be its own choice.
    #[arg(long)]
    of: Vec<Controller>,
    /// What shares the path.
    #[arg(long)]
    beside: Option<Controller>,
    /// For so long it has had the path for itself when the other comes, in seconds.
    #[arg(long, default_value_t = 0)]
    ahead: u64,
    /// No new connections.
    #[arg(long)]
    no_transfers: bool,
    /// Cargo says so.
    #[arg(long)]
    bench: bool,
}

impl Arguments {
    fn line(&self) -> std::sync::Arc<Line> {
        let round_trip = Duration::from_millis(self.round_trip_ms);
        let [there, back] = [false, true].map(|back| self.told.way(round_trip, self.mbit_per_second, back));
        Line::new(there, back)
    }

    fn reach(&self) -> Reach {
        Reach::of(Duration::from_millis(self.round_trip_ms)).unwrap_or_default()
    }

    /// Of the line, in percent.
    fn share(&self, carried: &Carried) -> f64 {
        carried.bytes as f64 / (self.mbit_per_second * 1_250 * self.seconds) as f64
    }

    async fn filled(&self, controller: Controller) -> Result<()> {
        let line = self.line();
        let beside = match self.beside {
            Some(beside) => Some((beside, Pair::connect(&line, 2, beside, self.reach()).await?)),
            None => None,
        };
        if let Some((_, pair)) = &beside {
            pair.fill(Instant::now() + Duration::from_secs(self.ahead)).await?;
        }
        let pair = Pair::connect(&line, 1, controller, self.reach()).await?;
        let talking = Pair::connect(&line, 3, controller, self.reach()).await?;
        let until = Instant::now() + Duration::from_secs(self.seconds);
        let filling = async {
            match &beside {
                Some((_, pair)) => pair.fill(until).await.map(Some),
                None => Ok(None),
            }
        };
        let (carried, others, answers) = tokio::try_join!(pair.fill(until), filling, talking.messages(until))?;
        let of = |percent: usize| answers.get(answers.len() * percent / 100).map_or(0, Duration::as_millis);
        print!(
            "{controller}: {:.1} % of the line, {:.2} % lost, round trip {} ms, {} datagrams found no room; answers {} ms (median), {} ms (99 %)",
            self.share(&carried),
            carried.lost_share * 100.0,
            carried.round_trip.as_millis(),
            line.crowded(),
            of(50),
            of(99),
        );
        if let (Some((beside, _)), Some(others)) = (&beside, others) {
            print!(
                "; beside it {beside}: {:.1} %, {:.2} % lost",
                self.share(&others),
                others.lost_share * 100.0
            );
        }
        println!();
        Ok(())
    }

    async fn transferred(&self, controller: Controller) -> Result<()> {
        print!("{controller}: a new connection takes");
        for bytes in TRANSFERS {
            let line = self.line();
            let pair = Pair::connect(&line, 1, controller, self.reach()).await?;
            let took = tokio::time::timeout(Duration::from_secs(60), pair.transfer(bytes)).await;
            match took {
                Ok(took) => print!(
                    " {} ms for {} KB ({} found no room);",
                    took?.as_millis(),
                    bytes / 1_000,
                    line.crowded()
                ),
                Err(_) => print!(" more than a minute for {} KB;", bytes / 1_000),
            }
        }
        println!();
        Ok(())
    }
}

fn main() -> Result<()> {
    let mut arguments = Arguments::parse();
    if !arguments.bench {
        // Tests of all targets run this as well; then it only has to work.
        arguments.seconds = arguments.seconds.min(1);
    }
    if arguments.of.is_empty() {
        arguments.of = ["shipped", "cubic", "newreno", "bbr"]
            .map(str::parse)
            .into_iter()
            .collect::<Result<_>>()?;
    }
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
    };
    for &controller in &arguments.of {
        runtime()?.block_on(arguments.filled(controller))?;
        if !arguments.no_transfers && arguments.beside.is_none() {
            runtime()?.block_on(arguments.transferred(controller))?;
        }
    }
    Ok(())
}
