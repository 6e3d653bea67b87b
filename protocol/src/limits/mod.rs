//! Every bound and timeout of the protocol: why this number, and what happens when it is reached.

mod links;
mod notices;
mod plans;
mod shells;

use std::time::Duration;

pub use links::*;
pub use notices::*;
pub use plans::*;
pub use shells::*;

/// Version of every message. A peer of another version is refused with both numbers.
pub const WIRE_VERSION: u16 = 16;

/// Most shards of a job. A message lists at most one range per shard, so this bounds messages; finer grain than 4,096 shards a
/// step buys no balance. A job with more is refused when it is built.
pub const MAX_SHARDS: u32 = 4_096;

/// Most steps of a job: one each microsecond for nine years. With [`MAX_SHARDS`] gradients each, all of them can be counted in 64 bits. A
/// longer job is refused when it is built, and a worker that says that it stands further is dismissed.
pub const MAX_STEPS: u64 = 1 << 48;

/// Most gradients that one worker has computed: as many as the longest job has, several times over. A worker that says more is dismissed;
/// a count that an agent has read and that is more is not known.
pub const MAX_GRADIENTS: u64 = 1 << 62;

/// Most workers of a generation. `Form` lists the members, about 40 bytes each, and must fit one control frame.
pub const MAX_WORKERS: u32 = 1_024;

/// Bytes of a chunk, the unit in which sums travel. Small enough that a ring of eight is busy everywhere after a megabyte, large
/// enough that a 48-byte header and a wake-up are noise. The last chunk of a gradient may be shorter. In an interpreter, where each byte takes its time, tests of several
/// chunks are to end.
pub const CHUNK_BYTES: usize = if cfg!(miri) { 4 << 10 } else { 128 << 10 };

/// Most members that hold a snapshot. Each joiner that copies it is told all of them with the hash of each share, some 60 bytes, and
/// connects to all of them: four kilobytes and 64 connections are nothing, a thousand of them for each of a thousand are. So many give more
/// bytes in a second than any joiner or store takes. In larger generations the others hold nothing.
pub const MAX_HOLDERS: u32 = 64;
/// Of so many workers that have left the coordinator knows the names, and where they left: all that a job can have, four times over. A
/// worker that was let go and has not heard of it looks for its coordinator for an hour at most, and in an hour few jobs exchange all
/// their workers so often. A worker that left before the last so many is known by the generation that it names.
pub const RELEASED_KEPT: usize = 4 * MAX_WORKERS as usize;

/// So many workers that were lost, and may be on their way back, the coordinator waits for. Of more, the one that is missed for longest
/// is forgotten: it may come as a newcomer, and what it had computed counts as unknown.
pub const MISSED_KEPT: usize = 4 * MAX_WORKERS as usize;

/// Of so many lost workers it is open at once whether their last gradients were in vain: of as many as can be lost from one generation.
/// It is settled when the next one has applied two steps. Of more, the oldest is settled by a guess, which counts as unknown.
pub const OPEN_TALLIES: usize = MAX_WORKERS as usize;

/// Most tensors of a state or gradient: a length that came over a link is compared with it before anything is allocated.
pub const MAX_TENSORS: usize = 65_536;

/// Most bytes of a name, address or reason in a message; longer ones are cut or refused.
pub const MAX_TEXT_BYTES: usize = 1_024;

/// Most bytes of what a worker says of its device. A status says it of every worker, and all that differ are to fit into an answer.
pub const MAX_DEVICE_BYTES: usize = 512;

/// Most bytes of a GPU's name, as the driver's `GPU-` and 36 characters, or `MIG-` and somewhat more; longer ones are cut.
pub const MAX_GPU_BYTES: usize = 96;

/// Most parts of a job's data that are told one by one; where there are more, neighbours are told together. They are in every hello and
/// every manifest.
pub const MAX_DATA_PARTS: usize = 32;

/// Most bytes of the name of a part of a job's data; longer ones are cut in the middle.
pub const MAX_DATA_NAME_BYTES: usize = 160;

/// Most auxiliary sums of a step. They are reported to the coordinator each step, which must stay small.
pub const MAX_AUXILIARY: usize = 64;

/// Longest name of an auxiliary sum in a hello, where it only serves people; longer ones are cut.
pub const AUXILIARY_NAME_BYTES: usize = 64;

/// Most bytes of a gradient's tensors. Chunks are counted with 32 bits, and a layout beyond this is a mistake in a shape: it is refused.
pub const MAX_GRADIENT_BYTES: usize = 1 << 40;

/// Most bytes of sums that a worker keeps for joiners that follow, beyond the newest. A joiner loads a state in about the time that a few
/// steps take, so that a small model's sums fit many times over. A member that would have to keep more drops the snapshot, and joiners
/// begin anew.
pub const KEEP_BYTES: u64 = 256 << 20;

/// So many sums are kept whatever their size: with fewer, no worker could join while a large model trains.
pub const KEEP_LEAST: u32 = 4;

/// How many lives a coordinator may be behind the one that a worker knows. None is started so often: a worker that says more is at fault,
/// and must not make a number that no life can ever pass.
pub const MAX_LIVES_AHEAD: u64 = 1 << 32;

/// Most results of a model's evaluation. They travel in one `Finished`; with names of [`MAX_TEXT_BYTES`] they fit a control frame. A
/// model that has more fails with both numbers.
pub const MAX_RESULTS: usize = 128;

/// Bytes of a piece of a tensor: large enough that its hash (32 bytes) is noise, small enough that a changed piece is cheap.
pub const PIECE_BYTES: usize = 1 << 20;

/// Most checkpoints that one depot tells of, and as many that it cannot read. A job keeps a few; a directory in which many jobs have left
/// theirs has some hundreds. A depot that tells of more is done without until it is started again: it says which folder is too full.
pub const MAX_HEADS: usize = 16_384;

/// Pieces that one `Saved` names: of 32 bytes each, so that it fits into a frame several times.
pub const SAVED_PIECES: usize = 2_048;

/// Most pieces of a state that a checkpoint is made of: 2 TiB.
pub const MAX_PIECES: usize = 2 << 20;

/// Most depots of a job.
pub const MAX_DEPOTS: usize = 64;

/// A member that takes so many times as long as the first half of those with the same work, and [`LAG_GRACE`] more, is not waited for any
/// longer where others can stand in for it, though it says that it goes on. An honest one has to be slower by more than disks and
/// networks of one job differ.
pub const LAG_TIMES: u32 = 10;

/// So much longer in any case.
pub const LAG_GRACE: Duration = Duration::from_secs(600);

/// So often a checkpoint under way is begun anew, since depots come, go or refuse, before the next snapshot is tried instead.
pub const SAVE_ATTEMPTS: u32 = 8;

/// After this long without a word of the holders or depots that a checkpoint waits for, it is begun anew. A share that takes longer to
/// write is not given up: its writer says from time to time that it goes on.
pub const SAVE_PATIENCE: Duration = Duration::from_secs(30);

/// So long a depot that could not keep what it should is done without, after the first time; twice as long after each further one.
pub const DEPOT_REST: Duration = Duration::from_millis(200);

/// So often a depot that fetches a checkpoint says that it is not done yet. Each part of what it does ends in bounded time.
pub const FETCH_TOLD_EVERY: Duration = Duration::from_secs(2);

/// So long depots that fetch a checkpoint are waited for without a word of any.
pub const FETCH_PATIENCE: Duration = Duration::from_secs(120);

/// So long they are waited for though they say that they go on: no other checkpoint is placed meanwhile. What is fetched by then need not be
/// fetched again. 2 TiB, the largest state, in this time are 25 MB a second.
pub const FETCH_MOST: Duration = Duration::from_secs(24 * 3_600);

/// So long depots that make a manifest durable are waited for though they say that they go on. The longest manifest is of some 64 MiB.
pub const COMMIT_MOST: Duration = Duration::from_secs(600);

/// A depot that fails time and again is asked again after this long at the latest: its disk may have been full, and be so no more.
pub const DEPOT_REST_MOST: Duration = Duration::from_secs(10);

/// So long the last checkpoint of a job, where it would be on fewer hosts than it should be, waits for depots that have come and have yet
/// to tell what they keep. They do so at once, if their host is not very busy.
pub const DEPOT_TELLS: Duration = Duration::from_secs(5);

/// So long the end of a job waits for its last checkpoint while none is under way, and no holder says that it has come further with hashing
/// what it has copied for it.
pub const LAST_SAVE_PATIENCE: Duration = Duration::from_secs(10);

/// So often loading a checkpoint is tried before an older one is.
pub const RESTORE_ATTEMPTS: u32 = 3;

/// So many members load a checkpoint together, each reading a part of it and giving that to the others. In larger generations there are
/// several such groups, and depots give each of them all of it: a connection between any two of a thousand members would cost more. Where
/// fewer members than groups can read, the groups are larger.
pub const RESTORE_TOGETHER: usize = 64;

/// So long the depots must have been the same before a checkpoint that is on fewer hosts than it should be is placed on depots that came:
/// they often come one after the other.
pub const DEPOTS_SETTLE: Duration = Duration::from_secs(30);

/// So long a depot that is gone is waited for before what it has is placed on others: a machine that only starts again is back sooner, and
/// to copy all that it had costs the network more.
pub const DEPOT_GONE: Duration = Duration::from_secs(600);

/// So long a job that has no state waits for more checkpoint actors, once one has told what it keeps, where another may have a newer
/// checkpoint.
pub const DEPOTS_PATIENCE: Duration = Duration::from_secs(30);

/// Bytes that describe a tensor: a name of a hundred bytes, its type, and four dimensions. With longer names there may be fewer tensors
/// than [`MAX_TENSORS`]; a model whose description is longer than [`DESCRIPTION_PIECES`] is refused before its worker joins.
pub const TENSOR_BYTES: usize = 128;

/// Most pieces that describe a state's tensors: enough for as many as there may be.
pub const DESCRIPTION_PIECES: usize = 8;

/// Between two heartbeats of a worker: a tenth of [`SILENCE`], so that nine may be lost.
pub const HEARTBEAT: Duration = Duration::from_millis(500);

/// After this long without a word a worker counts as dead, unless its generation's steps advance, as long as too little is known of
/// how regularly it beats. A host that vanished costs this; a process that ends under an agent does not.
pub const SILENCE: Duration = Duration::from_secs(5);

/// So many beats tell how regularly a worker beats: from then on it counts as dead after [`SILENCE_GAPS`] times its longest gap.
pub const PULSE_BEATS: u32 = 20;

/// So many times its longest gap lately a worker may be silent. With beats that are independent of each other fewer would do; a
/// machine that is busy for one beat is often busy for the next.
pub const SILENCE_GAPS: u32 = 6;

/// A silence that is never too long: machines stand still for a second or two, and to leave one out costs the others a halt.
pub const SILENCE_LEAST: Duration = Duration::from_secs(3);

/// A silence that always is. A connection that carries nothing for so long is given up in any case.
pub const SILENCE_MOST: Duration = Duration::from_secs(10);

/// A worker whose process its agent sees stand still may do so for this long: an operator that looks at a process with a debugger, or slows
/// it down by signals, costs no other worker a halt. Then it is left out, and its agent ends it. More than a [`HEARTBEAT`], so that a
/// process that goes on is heard of in time.
pub const STOPPED_GRACE: Duration = Duration::from_millis(600);

/// A member whose connection has broken so often within [`FORGIVEN`] of each other may come back as ever; once more, and it is
/// dismissed: each time costs all others a halt.
pub const FLAPS: u32 = 3;

/// So many members may be left out at one address before newcomers from there wait.
pub const HOST_FAILURES: u32 = 2;

/// How long the first newcomer waits; doubled with each failure more, up to [`COOL_MOST`].
pub const COOL: Duration = Duration::from_secs(1);

/// The longest wait of a newcomer for its host's sake.
pub const COOL_MOST: Duration = Duration::from_secs(300);

/// After this long without trouble nothing is counted any more. Longer than any wait, so that a host that fails at once when it is
/// taken in again waits longer than before.
pub const FORGIVEN: Duration = Duration::from_secs(600);

/// Time that passes without being told of by a tick: ticks come every 100 ms, so after more than this the coordinator was held up
/// itself, and has not heard what was said.
pub const DEAF: Duration = Duration::from_millis(500);

/// A worker that the others wait for may do nothing for this long, however fast it was before: it may read data over a network.
pub const STALL_LEAST: Duration = Duration::from_secs(30);

/// And for as long as the slowest worker takes for so many gradients.
pub const STALL_SHARDS: u32 = 20;

/// And for this long before it has computed any gradient, since compiling kernels takes minutes; and while it comes to the state, for this
/// long since it last moved [`MOVED_LEAST`] of it. However large a state is, it is waited for while it comes.
pub const STALL_UNKNOWN: Duration = Duration::from_secs(600);

/// A worker that fetches, loads or hashes a state moves at least so many bytes a second, or it counts as one that does nothing: a twentieth
/// of what one stream carries where a round trip takes 100 ms. A worker that tells of a byte a second keeps the others waiting as long as
/// one that tells of nothing.
pub const LEAST_BYTES_A_SECOND: u64 = 1 << 20;

/// So many bytes more count as progress of a worker that comes to the state: what [`LEAST_BYTES_A_SECOND`] makes of [`STALL_UNKNOWN`]. A
/// smaller state that is not there within that time comes more slowly still.
pub const MOVED_LEAST: u64 = LEAST_BYTES_A_SECOND * STALL_UNKNOWN.as_secs();

/// A worker that comes to the state is waited for this long at most, whatever it says that it moves: the largest state ([`MAX_PIECES`])
/// takes as long at 20 MiB a second. How large a state is the coordinator knows from its workers alone, so that a worker that lies without
/// end costs the others this; then it is left out.
pub const LOAD_MOST: Duration = Duration::from_secs(30 * 3_600);

/// A halt is answered once an update that is under way has ended. The longest of them take seconds. A worker that is known to be slow is
/// given [`STALL_SHARDS`] gradients, if that is longer; a worker that may be loading a state, as long as one that is waited for in a step.
pub const HALT_PATIENCE: Duration = Duration::from_secs(120);

/// An unanswered `Halt`, `Form` or `Complete` is sent again after this. Control streams are reliable, so this only matters for
/// a message that fell into a broken connection; it is far above a round trip and far below [`SILENCE`].
pub const RESEND: Duration = Duration::from_millis(300);

/// A member that says that it is further than it can be is left out once two others have said so for this long: what they had said before
/// it, and what was held up, has arrived by then. Below [`STALL_LEAST`], after which the workers that it seems to wait for would be left
/// out.
pub const CONTRADICTED: Duration = Duration::from_secs(10);

/// With many workers an order is sent again after this for each of them, if that is more: a thousand need most of a second to be told and
/// to answer, and what is said again meanwhile keeps the answers from coming, until all count as silent.
pub const RESEND_EACH: Duration = Duration::from_millis(2);

/// How long the successor of a worker waits that ended soon after its start and had not taken part in training, from the second such one in
/// a row on: doubled each time up to [`REPLACE_LATER_MOST`], so that a program that cannot start does not spin.
pub const REPLACE_LATER: Duration = Duration::from_millis(100);

/// The longest such wait.
pub const REPLACE_LATER_MOST: Duration = Duration::from_secs(10);

/// A worker that lived this long could start, whatever became of it: the next one starts at once.
pub const LIVED: Duration = Duration::from_secs(2);

/// How long a gathering job waits for its expected workers before it starts with the workers present (at least `min`): starting a process
/// takes well under a second, a slow host some.
pub const GATHER: Duration = Duration::from_secs(10);

/// A job that had made progress does not start again from step 0 before this has passed since the last holder of the state was
/// lost, unless all those deaths are certain: a holder that was only cut off may be on its way back.
pub const STATE_GRACE: Duration = Duration::from_secs(5);

/// How long a coordinator that has come back waits for all members of a generation that trains without it, before it halts the workers that
/// are there, or begins anew if none is; they go on training meanwhile, if they can. Workers that are not told otherwise notice within ten
/// seconds that the last coordinator is gone, and look for it several times a second.
pub const ADOPTION_PATIENCE: Duration = Duration::from_secs(15);

/// A joiner that has moved nothing for so many times as long as an unanswered order is sent again after ([`RESEND`], or more where there are many workers) is told
/// once more what to copy: one that copies hears of its holders again, which costs
/// nothing, and one whose word that its copy has failed was lost begins anew.
pub const COPY_STILL: u32 = 10;

/// A joiner whose copy has failed this often is waited for: its donors die faster than it copies, or sums come faster than it
/// applies them, and a join that never ends is of no use.
pub const MAX_COPY_ATTEMPTS: u32 = 3;

/// How long a snapshot waits for members to find memory for it: a second or two for each GiB of which they have no pages. Then it is taken all the same,
/// and members that have none find it while the others wait.
pub const ROOM_PATIENCE: Duration = Duration::from_secs(10);

/// After this long without a word of a snapshot it is asked for again. Only a step that takes longer, or holders that hash for
/// longer and say nothing, come near it; asking twice costs a second snapshot.
pub const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(10);

/// So long holders that say that they hash are waited for in all, where none has told what it has: 2 TiB at 300 MB a second.
pub const HASH_MOST: Duration = Duration::from_secs(2 * 3_600);

/// The same at the end of a job, where none can be asked for again: holders that say nothing for so long are done without, if others have what
/// they should. Shorter than [`LAST_SAVE_PATIENCE`], so that the last state is saved.
pub const LAST_SNAPSHOT_PATIENCE: Duration = Duration::from_secs(5);

/// A holder that hashes its shares of a snapshot says so after each such time in which it has come further: often enough for the
/// coordinator, which waits for it.
pub const HASHING_SIGN: Duration = Duration::from_secs(1);

/// Each time in a row that a snapshot is asked for again it is waited for twice as long, up to so many times: shares that take longer to
/// hash than that would never become a checkpoint otherwise.
pub const SNAPSHOT_DOUBLINGS: u32 = 6;

/// How long a joiner may follow without catching up before the others wait for it at a boundary. Steps that are as short as it takes to
/// apply a sum leave it no way to come closer.
pub const CATCH_UP_PATIENCE: Duration = Duration::from_secs(20);

/// The same where all members leave: a joiner has to have the state before they go (`LEAVE_GRACE`), so that they wait for it in time.
pub const LEAVERS_CATCH_UP_PATIENCE: Duration = Duration::from_secs(5);
const _: () = assert!(2 * LEAVERS_CATCH_UP_PATIENCE.as_millis() <= LEAVE_GRACE.as_millis());

/// How long the last holder of the state waits for a joiner before it leaves anyway, and the state with it. The shortest notice of
/// a cloud is 30 s; this leaves time to end.
pub const LEAVE_GRACE: Duration = Duration::from_secs(20);

/// How long the ranges of a generation stay as they are before shards move towards faster members: long enough for some figures of
/// how fast each is with its present shards, short against what a wrong cut costs in a run of hours.
pub const REBALANCE_EVERY: Duration = Duration::from_secs(5);

/// How many steps besides: a member with a single shard has so many figures of its own by then, and links that are made beside those
/// in use cost nothing that shows in as many steps.
pub const REBALANCE_STEPS: u64 = 20;

/// Shards move only if the slowest member's time in a step falls by this part: smaller gains are within what paces wander by
/// themselves, and shards would go to and fro.
pub const REBALANCE_PERCENT: u32 = 10;

/// And by so much: steps that are shorter consist of messages, not of gradients, and their paces of interruptions.
pub const REBALANCE_LEAST: Duration = Duration::from_millis(1);

/// Figures of a worker's pace agree if they differ by less than this part. Others show that something has changed; what was known
/// before is then forgotten.
pub const PACE_AGREES_PERCENT: u32 = 25;

/// So many figures in a row that agree, one with each heartbeat, make a pace that shards are moved for.
pub const PACE_FIGURES: u32 = 4;

/// A worker that this many generations in a row could not be linked with is left out of the next one, if it is at fault: see
/// `membership/blaming.rs`. Both ends of a link that breaks are charged, so that once is an accident and twice may be the other's fault.
pub const MAX_LINK_FAILURES: u32 = 3;

/// After the first report of a link that cannot be made the others have this long to tell of theirs. All have tried for seconds, and notice
/// within milliseconds of each other; which worker noticed first says little of which is at fault.
pub const LINK_GRACE: Duration = Duration::from_millis(500);

/// A generation of a group that has stood so long has links that work: nothing is held against its members any more. Longer than it takes to
/// notice that what is sent over one does not come.
pub const GROUP_STANDS: Duration = Duration::from_secs(30);

/// Most step reports in one message: with [`MAX_AUXILIARY`] sums each they fit a control frame.
pub const MAX_REPORTS: usize = 256;

/// Most step reports that a worker keeps for a coordinator that may lack them. Reports go out every few milliseconds, so only a
/// coordinator that was long away misses any; it then shows a gap in the metrics, never in the training.
pub const MAX_KEPT_REPORTS: usize = 4_096;

/// Over how long steps or samples per second are counted: long enough for a steady number, short enough to see a change.
pub const RATE_OVER: Duration = Duration::from_secs(5);

/// Reports that come within this time are counted together, so that few are kept.
pub const RATE_SAMPLE: Duration = Duration::from_millis(100);

const _: () = assert!(DESCRIPTION_PIECES * PIECE_BYTES >= MAX_TENSORS * TENSOR_BYTES);
const _: () =
    assert!(CONTRADICTED.as_millis() < STALL_LEAST.as_millis() && CONTRADICTED.as_millis() >= SILENCE_MOST.as_millis());
const _: () = assert!(MAX_STEPS <= MAX_GRADIENTS / MAX_SHARDS as u64);
const _: () = assert!(SILENCE.as_millis() >= 10 * HEARTBEAT.as_millis());
const _: () = assert!(HEARTBEAT.as_millis() * (PACE_FIGURES as u128) < REBALANCE_EVERY.as_millis());
const _: () = assert!(STOPPED_GRACE.as_millis() > HEARTBEAT.as_millis());
const _: () = assert!(STOPPED_GRACE.as_millis() < SILENCE_LEAST.as_millis());
const _: () = assert!(HASHING_SIGN.as_millis() * 5 <= SNAPSHOT_PATIENCE.as_millis());
const _: () = assert!(HASHING_SIGN.as_millis() * 5 <= LAST_SNAPSHOT_PATIENCE.as_millis());
const _: () = assert!(LAST_SNAPSHOT_PATIENCE.as_millis() < LAST_SAVE_PATIENCE.as_millis());
const _: () =
    assert!(SAVE_PATIENCE.as_millis() < COMMIT_MOST.as_millis() && FETCH_PATIENCE.as_millis() < FETCH_MOST.as_millis());
const _: () = assert!(FETCH_TOLD_EVERY.as_millis() * 10 <= FETCH_PATIENCE.as_millis());
const _: () = assert!(DEPOT_TELLS.as_millis() < LAST_SAVE_PATIENCE.as_millis());
const _: () = assert!(FORGIVEN.as_millis() > COOL_MOST.as_millis());
const _: () = assert!(SILENCE_LEAST.as_millis() >= (SILENCE_GAPS as u128) * HEARTBEAT.as_millis());
const _: () = assert!(MAX_HOLDERS <= MAX_WORKERS);
const _: () = assert!(RESEND.as_millis() * 10 <= SILENCE.as_millis());
const _: () = assert!(RESEND_EACH.as_millis() * (MAX_WORKERS as u128) * 2 <= SILENCE.as_millis());
const _: () = assert!(PIECE_BYTES.is_multiple_of(8));
const _: () = assert!(LOAD_MOST.as_secs() >= (MAX_PIECES * PIECE_BYTES) as u64 / (20 * LEAST_BYTES_A_SECOND));
const _: () = assert!(HALT_PATIENCE.as_secs() <= STALL_UNKNOWN.as_secs() && STALL_UNKNOWN.as_secs() < LOAD_MOST.as_secs());
