//! The links of a status in the words that people read.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sardana_protocol::status::{JobStatus, KindView, LinkView, LinksView};
use sardana_protocol::words::{Rank, WorkerId, count};

use super::words::{columns, size, span};

/// How many links a table shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinksShown {
    /// The worst, so that a table of a thousand workers stays one.
    Worst,
    /// All of which the coordinator has told.
    All,
}

/// So many lines the worst are.
const WORST: usize = 8;

/// What is said of each line.
pub(super) const LINK_COLUMNS: [&str; 8] = ["from", "to", "kind", "links", "sent", "rate", "lost", "trip"];

/// Who has which rank: looked up for each end of each line.
pub(super) type Ranks = BTreeMap<WorkerId, Rank>;

pub(super) fn ranks(status: &JobStatus) -> Ranks {
    let workers = status.overview.workers.iter();
    workers.filter_map(|view| Some((view.worker, view.rank?))).collect()
}

/// The sums of each kind and the lines, or nothing where there are no links.
pub(super) fn links(status: &JobStatus, shown: LinksShown) -> String {
    let view = &status.links;
    if view.kinds.is_empty() {
        return String::new();
    }
    let most = match shown {
        LinksShown::Worst => WORST,
        LinksShown::All => view.lines.len(),
    };
    let ranks = ranks(status);
    let head = LINK_COLUMNS.map(str::to_owned);
    let rows = view.lines.iter().take(most).map(|line| link_row(&ranks, line));
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    let mut text = format!("\n{}\n{}", links_line(view), columns(&rows));
    // Writing to a text cannot fail.
    if let Some(left) = view.lines.len().checked_sub(most).filter(|&left| left > 0) {
        let _ = writeln!(text, "{} are not as bad: --links shows them", count(left, "more line"));
    }
    if view.unlisted > 0 && shown == LinksShown::All {
        let _ = writeln!(
            text,
            "{} are not as bad, and too many to be told",
            count(view.unlisted, "more line")
        );
    }
    text
}

/// All links in one line: a part for each kind.
pub(super) fn links_line(view: &LinksView) -> String {
    let kinds: Vec<String> = view.kinds.iter().map(kind).collect();
    let mut line = format!("links: {}", kinds.join("; "));
    if view.untold > 0 {
        let _ = write!(
            line,
            "; {} not told, as their workers have too many",
            count(view.untold, "link")
        );
    }
    line
}

fn kind(view: &KindView) -> String {
    let (links, sent, rate) = (view.links, size(view.sent), byte_rate(Some(view.rate)));
    let mut text = format!("{links} {}, {sent} sent, {rate}", view.kind);
    if view.sent_packets > 0 {
        let _ = write!(text, ", {} of {} lost", view.lost_packets, count(view.sent_packets, "packet"));
    }
    text
}

/// What one line is, in the columns of [`LINK_COLUMNS`].
pub(super) fn link_row(ranks: &Ranks, line: &LinkView) -> [String; LINK_COLUMNS.len()] {
    let name = |worker: WorkerId| ranks.get(&worker).map_or_else(|| worker.to_string(), Rank::to_string);
    let dash = || "-".to_owned();
    [
        name(line.from),
        name(line.to),
        line.kind.to_string(),
        line.links.to_string(),
        size(line.sent),
        byte_rate(line.rate),
        line.path.map_or_else(dash, |path| lost(path.lost_packets, line.lost())),
        line.path.map_or_else(dash, |path| span(path.round_trip)),
    ]
}

/// How many packets, and which part of all that is.
fn lost(packets: u64, part: f64) -> String {
    match packets {
        0 => "0".to_owned(),
        some => format!("{some} ({:.2} %)", part * 100.0),
    }
}

fn byte_rate(per_second: Option<f64>) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "three digits are shown; what is no number, or negative, is shown as 0"
    )]
    let bytes = |rate: f64| format!("{}/s", size(rate as u64));
    per_second.map_or_else(|| "-".to_owned(), bytes)
}
