//! A picture of what was measured: rate over size, both by powers of ten; or times, one after the other. Must not know what they are of.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use plotters::prelude::*;

use crate::ending::Failure;

const SIZE: (u32, u32) = (900, 540);

const COLOURS: [RGBColor; 6] = [RED, BLUE, GREEN, BLACK, MAGENTA, CYAN];

/// What is drawn as one line.
pub(super) struct Line {
    pub(super) name: &'static str,
    /// Bytes, and bytes a second.
    pub(super) points: Vec<(f64, f64)>,
}

/// Times that follow one another.
pub(super) struct Bar {
    pub(super) name: String,
    /// What each of them is of, and seconds. The same words have the same colour in all bars.
    pub(super) parts: Vec<(&'static str, f64)>,
}

/// A file that will have a picture.
pub(super) struct Picture {
    path: PathBuf,
    file: File,
}

impl Picture {
    /// The file at `path`, if there is to be one: what cannot be written is said before anything is measured.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn create(path: Option<&Path>) -> Result<Option<Self>, Failure> {
        path.map(|path| {
            let file = File::create(path).map_err(|error| unwritten(path, error))?;
            Ok(Self {
                path: path.to_owned(),
                file,
            })
        })
        .transpose()
    }

    /// Draws lines into it, as an SVG; `sizes` says what the sizes are of.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn draw(self, title: &str, sizes: &str, lines: &[Line]) -> Result<(), Failure> {
        self.write(|svg| draw(svg, title, sizes, lines))
    }

    /// Draws bars into it, as an SVG: from the first one at the top on, of as many seconds as their parts take together.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn draw_bars(self, title: &str, bars: &[Bar]) -> Result<(), Failure> {
        self.write(|svg| draw_bars(svg, title, bars))
    }

    fn write(mut self, draw: impl FnOnce(&mut String) -> Result<(), Box<dyn std::error::Error>>) -> Result<(), Failure> {
        let mut svg = String::new();
        // Of a picture in memory that is not to be expected.
        draw(&mut svg).map_err(Failure::failed)?;
        let written = self.file.write_all(svg.as_bytes());
        written.map_err(|error| unwritten(&self.path, error))
    }
}

fn unwritten(path: &Path, error: std::io::Error) -> Failure {
    Failure::Failed(format!(
        "{} could not be written: {error}; name a file in a folder that is there, and that has room",
        path.display()
    ))
}

fn draw(svg: &mut String, title: &str, sizes: &str, lines: &[Line]) -> Result<(), Box<dyn std::error::Error>> {
    let points = || lines.iter().flat_map(|line| line.points.iter().copied());
    let (least, most) = points().fold((f64::MAX, 1.0_f64), |(least, most), (size, _)| {
        (least.min(size), most.max(size))
    });
    let (slowest, fastest) = points().fold((f64::MAX, 1.0_f64), |(least, most), (_, rate)| {
        (least.min(rate), most.max(rate))
    });
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(
            (least / 1.2..most * 1.2).log_scale(),
            (slowest / 1.5e9..fastest * 1.5 / 1e9).log_scale(),
        )?;
    chart.configure_mesh().x_desc(sizes).y_desc("GB/s").draw()?;
    for (Line { name, points }, colour) in lines.iter().zip(COLOURS) {
        let points = || points.iter().map(|(size, rate)| (*size, rate / 1e9));
        chart
            .draw_series(LineSeries::new(points(), colour.stroke_width(2)))?
            .label(*name)
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

fn draw_bars(svg: &mut String, title: &str, bars: &[Bar]) -> Result<(), Box<dyn std::error::Error>> {
    let longest = bars.iter().map(|bar| bar.parts.iter().map(|(_, seconds)| seconds).sum());
    let longest = longest.fold(f64::MIN_POSITIVE, f64::max);
    let mut names: Vec<&'static str> = Vec::new();
    for (name, _) in bars.iter().flat_map(|bar| &bar.parts) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let rows = bars.len().max(1);
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(84)
        .build_cartesian_2d(0.0..longest * 1.05, (0..rows - 1).into_segmented())?;
    let name_of = |row: &SegmentValue<usize>| match row {
        SegmentValue::CenterOf(row) => {
            let bar = (rows - 1).checked_sub(*row).and_then(|place| bars.get(place));
            bar.map(|bar| bar.name.clone()).unwrap_or_default()
        }
        SegmentValue::Exact(_) | SegmentValue::Last => String::new(),
    };
    let mut mesh = chart.configure_mesh();
    mesh.x_desc("seconds")
        .y_labels(rows)
        .y_label_formatter(&name_of)
        .disable_y_mesh()
        .draw()?;
    for (number, name) in names.into_iter().enumerate() {
        let colour = Palette99::pick(number).to_rgba();
        let rectangles = bars.iter().enumerate().flat_map(|(place, bar)| {
            let row = rows - 1 - place;
            let mut end = 0.0;
            let spans = bar.parts.iter().map(move |(part, seconds)| {
                let begin = end;
                end += seconds;
                (*part, begin, end)
            });
            spans.filter(move |(part, ..)| *part == name).map(move |(_, begin, end)| {
                let (top, bottom) = (SegmentValue::Exact(row), SegmentValue::Exact(row + 1));
                let mut bar = Rectangle::new([(begin, top), (end, bottom)], colour.filled());
                bar.set_margin(6, 6, 0, 0);
                bar
            })
        });
        chart
            .draw_series(rectangles)?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    area.present()?;
    Ok(())
}
