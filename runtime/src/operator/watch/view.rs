//! A status on a screen: a pure function of what was told.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Gauge, List, ListItem, Paragraph, Row, Sparkline, Table};
use sardana_protocol::status::{Doing, JobStatus, Stage, WorkerView};
use sardana_protocol::words::count;

use super::History;
use crate::operator::links::{LINK_COLUMNS, link_row, links_line, ranks};
use crate::operator::table::headline;
use crate::operator::words::{COLUMNS, checkpoints, depot, plain, progress, rate, row, span, sums};

/// Most sums that have a line of their own.
const SUMS: usize = 4;

/// Lines of a sum: its value, and its past.
const SUM_LINES: u16 = 3;

/// Draws the whole screen. `note` is what went wrong with the last request, if something did: the status is older then.
pub fn draw(frame: &mut Frame<'_>, status: &JobStatus, history: &History, note: Option<&str>) {
    let saved = status.overview.checkpoints.as_ref();
    let part = progress(status);
    let [head, bar, saves, middle, events, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(u16::from(part.is_some())),
        Constraint::Length(u16::from(saved.is_some())),
        Constraint::Fill(3),
        Constraint::Fill(2),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let [workers, side] = Layout::horizontal([Constraint::Fill(3), Constraint::Fill(1)]).areas(middle);
    frame.render_widget(Paragraph::new(headline(status)).style(Modifier::BOLD), head);
    if let Some(part) = part {
        let gauge = Gauge::default().ratio(part);
        frame.render_widget(gauge.gauge_style(stage_style(status.overview.stage)), bar);
    }
    if let Some(saved) = saved {
        let colour = if saved.depots.is_empty() { Color::Red } else { Color::Reset };
        frame.render_widget(Paragraph::new(checkpoints(saved)).style(colour), saves);
    }
    frame.render_widget(workers_table(status), workers);
    draw_side(frame, side, status, history);
    if status.links.kinds.is_empty() {
        draw_events(frame, events, status);
    } else {
        let [links, events] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(events);
        frame.render_widget(links_table(status, links.height), links);
        draw_events(frame, events, status);
    }
    let foot_line = match note {
        Some(note) => Line::styled(format!("not up to date: {}", plain(note)), Color::Red),
        None => Line::styled("q or Esc ends the view; the job goes on", Color::DarkGray),
    };
    frame.render_widget(Paragraph::new(foot_line), foot);
}

fn stage_style(stage: Stage) -> Style {
    match stage {
        Stage::Gathering => Color::Blue.into(),
        Stage::Halting | Stage::Forming => Color::Yellow.into(),
        Stage::Running | Stage::Done => Color::Green.into(),
    }
}

fn workers_table(status: &JobStatus) -> Table<'static> {
    let rows = status.overview.workers.iter().map(|view| {
        let cells = row(status, view).map(Cell::from);
        Row::new(cells).style(worker_style(view))
    });
    let widths = [4, 17, 9, 8, 9, 9, 9, 8, 8, 12, 21].map(Constraint::Max);
    let title = format!(" {}, in ring order ", count(status.overview.workers.len(), "worker"));
    Table::new(rows, widths)
        .header(Row::new(COLUMNS).style(Modifier::UNDERLINED))
        .block(Block::bordered().title(title))
}

/// As many of the links as there is room for, the worst first.
fn links_table(status: &JobStatus, height: u16) -> Table<'static> {
    let ranks = ranks(status);
    let lines = status.links.lines.iter().take(usize::from(height));
    let rows = lines.map(|line| Row::new(link_row(&ranks, line).map(Cell::from)));
    let widths = [5, 5, 16, 5, 9, 11, 14, 8].map(Constraint::Max);
    Table::new(rows, widths)
        .header(Row::new(LINK_COLUMNS).style(Modifier::UNDERLINED))
        .block(Block::bordered().title(format!(" {} ", links_line(&status.links))))
}

fn worker_style(view: &WorkerView) -> Style {
    match view.doing {
        _ if view.leaving => Color::Magenta.into(),
        Doing::Training | Doing::Calling | Doing::Finished => Color::Green.into(),
        Doing::Standby | Doing::Following => Color::Cyan.into(),
        Doing::Copying | Doing::Answering => Color::Yellow.into(),
        Doing::Waiting => Color::Gray.into(),
    }
}

/// The rate and the sums with their past, then the agents.
fn draw_side(frame: &mut Frame<'_>, area: Rect, status: &JobStatus, history: &History) {
    let mut lines = vec![(rate(status.steps_per_second), history.rate_heights(u64::from(u8::MAX)))];
    for (place, (name, mean)) in sums(status).into_iter().take(SUMS).enumerate() {
        let heights = history.heights(place, u64::from(u8::MAX));
        lines.push((format!("{name} {mean:.6}"), heights));
    }
    let places = lines
        .iter()
        .map(|_| Constraint::Length(SUM_LINES))
        .chain([Constraint::Fill(1)]);
    let areas = Layout::vertical(places).split(area);
    for ((title, heights), area) in lines.into_iter().zip(areas.iter()) {
        // The newest are seen: as many as there are columns.
        let shown = heights.len().saturating_sub(usize::from(area.width));
        let sparkline = Sparkline::default()
            .data(heights.into_iter().skip(shown))
            .max(u64::from(u8::MAX))
            .style(Color::Cyan)
            .block(Block::new().title(title));
        frame.render_widget(sparkline, *area);
    }
    let Some(rest) = areas.last() else { return };
    let agents = status.agents.iter().map(|agent| {
        let children = count(agent.children.len(), "worker");
        ListItem::new(format!("{}: {children}, {}", plain(&agent.host), agent.address))
    });
    let depots = status.overview.checkpoints.iter().flat_map(|saved| &saved.depots);
    let depots: Vec<String> = depots.map(|one| format!("checkpoint actor of {}", depot(one))).collect();
    let title = match depots.len() {
        0 => format!(" {} ", count(status.agents.len(), "agent")),
        some => format!(
            " {}, {} ",
            count(status.agents.len(), "agent"),
            count(some, "checkpoint actor")
        ),
    };
    let agents = agents.chain(depots.into_iter().map(ListItem::new));
    frame.render_widget(List::new(agents).block(Block::bordered().title(title)), *rest);
}

fn draw_events(frame: &mut Frame<'_>, area: Rect, status: &JobStatus) {
    // The border takes two lines.
    let room = usize::from(area.height.saturating_sub(2));
    let newest = status.events.iter().skip(status.events.len().saturating_sub(room));
    let items = newest.map(|(ago, words)| ListItem::new(format!("{:>12} ago  {}", span(*ago), plain(words))));
    frame.render_widget(List::new(items).block(Block::bordered().title(" last events ")), area);
}
