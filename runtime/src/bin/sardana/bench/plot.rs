//! A picture of what was measured: rate over size, both by powers of ten.

use plotters::prelude::*;

use super::all_reduce::Row;

const SIZE: (u32, u32) = (900, 540);

/// The rows as an SVG.
///
/// # Errors
/// When the picture cannot be drawn, which is not to be expected of one in memory.
pub(super) fn svg(title: &str, rows: &[Row]) -> Result<String, String> {
    let mut svg = String::new();
    draw(&mut svg, title, rows).map_err(|error| error.to_string())?;
    Ok(svg)
}

fn draw(svg: &mut String, title: &str, rows: &[Row]) -> Result<(), Box<dyn std::error::Error>> {
    type Line = (&'static str, RGBColor, fn(&Row) -> f64);
    let lines: [Line; 4] = [
        ("all-reduce", RED, |row| row.rate()),
        ("copy in memory", BLUE, |row| row.limits.memory),
        ("copy through shared memory", GREEN, |row| row.limits.shared),
        ("TCP within the host, not encrypted", BLACK, |row| row.limits.tcp),
    ];
    let sizes = || rows.iter().map(|row| row.bytes as f64);
    let rates = || {
        lines
            .iter()
            .flat_map(|(_, _, rate)| rows.iter().map(rate))
            .map(|rate| rate / 1e9)
    };
    let (least, most) = (sizes().fold(f64::MAX, f64::min), sizes().fold(1.0, f64::max));
    let (slowest, fastest) = (rates().fold(f64::MAX, f64::min), rates().fold(1e-9, f64::max));
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(
            (least / 1.2..most * 1.2).log_scale(),
            (slowest / 1.5..fastest * 1.5).log_scale(),
        )?;
    chart.configure_mesh().x_desc("bytes of a gradient").y_desc("GB/s").draw()?;
    for (name, colour, rate) in lines {
        let points = || rows.iter().map(move |row| (row.bytes as f64, rate(row) / 1e9));
        chart
            .draw_series(LineSeries::new(points(), colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    area.present()?;
    Ok(())
}
