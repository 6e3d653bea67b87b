//! The progression of diabetes in 442 patients (Efron, Hastie, Johnstone, Tibshirani: "Least angle regression", 2004) by one linear layer,
//! from a CSV file with names. The last 20 patients are held out, and what least squares gives for them is known in closed form.

use std::path::Path;

use anyhow::Result;
use sardana::data::formats::csv::{Csv, CsvOptions};
use sardana::data::{Array, DataError, Dataset, DatasetExt, Loader, SampleRandom};
use sardana::device::DeviceChoice;
use sardana::fit::Fit;
use sardana::job::JobBuilder;
use sardana::model::ModelError;
use sardana::optim::Sgd;
use sardana::{Job, JobSpec};
use sardana_candle::{Net, SquaredError, build_on};

use crate::networks::Dense;

/// The last rows, which are held out.
const HELD_OUT: u64 = 20;

/// The patients that come with this program.
const CSV: &str = include_str!("../data/diabetes.csv");

/// Patients: their variables, each with mean 0 and deviation 1 over those that are trained on, and the progression.
pub type Samples = Box<dyn Dataset<Item = (Array<f32>, Array<f32>)>>;

/// The linear layer with its patients and optimizer.
pub type Model = Fit<Net<Dense, SquaredError, Array<f32>, Array<f32>>>;

/// The two parts.
pub struct Patients {
    /// All but the last 20.
    pub training: Samples,
    /// The last 20.
    pub held_out: Samples,
    variables: usize,
}

impl std::fmt::Debug for Patients {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Patients")
            .field("variables", &self.variables)
            .finish_non_exhaustive()
    }
}

impl Patients {
    /// The patients that come with this program, written to a file and read from it.
    ///
    /// # Errors
    /// When that file cannot be written.
    pub fn built_in() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("diabetes.csv");
        std::fs::write(&file, CSV)?;
        Self::read(&file)
    }

    /// Reads a CSV file: names in its first line, then some variables and, last, what they explain.
    ///
    /// # Errors
    /// When the file cannot be read or is malformed, or has no rows beside those that are held out.
    pub fn read(file: &Path) -> Result<Self> {
        let open = || Csv::open(file, &CsvOptions::default());
        let all = open()?;
        let rows = all.len();
        anyhow::ensure!(
            rows > HELD_OUT,
            "{}: expected more than {HELD_OUT} rows, found {rows}",
            file.display()
        );
        let training = rows - HELD_OUT;
        let scales = Scales::of(&all, training)?;
        let variables = scales.means.len();
        let part = |name: &str, rows: std::ops::Range<u64>| -> Result<Samples, DataError> {
            let scales = scales.clone();
            let rows = open()?.select(name, rows)?;
            Ok(Box::new(rows.map(
                "standardised by all but the last 20",
                move |row: (Array<f64>, Array<f64>), _| Ok(scales.apply(&row)),
            )))
        };
        Ok(Self {
            training: part("all but the last 20", 0..training)?,
            held_out: part("the last 20", training..rows)?,
            variables,
        })
    }

    /// The job: 400 steps over all patients, cut into 8 shards.
    ///
    /// # Errors
    /// When the patients cannot be read.
    pub fn job(&self) -> Result<JobBuilder, DataError> {
        let all = self.training.len();
        Ok(Job::builder("diabetes")
            .seed(1)
            .shards(8)
            .train(&self.training, all)?
            .steps(400))
    }

    /// State 0 of the job, to be computed on what `choice` says.
    ///
    /// # Errors
    /// When the job is for other patients, or the device cannot be used.
    pub fn model(self, spec: &JobSpec, choice: DeviceChoice) -> Result<Model, ModelError> {
        let sizes = [self.variables, 1];
        let network = build_on(choice, spec.seed, SquaredError, |builder| Dense::new(builder, &sizes))?;
        let fit = Fit::builder(network)
            .data(Loader::on_demand(self.training))
            .held_out(self.held_out)
            // The curvature of the mean square runs from 0.009 to 4 (the eigenvalues of the variables' correlations, twice).
            .optimizer(Sgd::new().momentum(0.9), 0.4);
        Ok(fit.build(spec)?)
    }
}

/// Mean and deviation of each variable.
#[derive(Clone, Debug)]
struct Scales {
    means: Vec<f64>,
    deviations: Vec<f64>,
}

impl Scales {
    /// Over the first rows.
    fn of(rows: &Csv, count: u64) -> Result<Self> {
        let (mut sums, mut squares) = (Vec::new(), Vec::new());
        for index in 0..count {
            let (variables, _) = rows.get(index, &SampleRandom::held_out(0, index))?;
            sums.resize(variables.values().len(), 0.0);
            squares.resize(variables.values().len(), 0.0);
            for (at, value) in variables.values().iter().enumerate() {
                sums[at] += value;
                squares[at] += value * value;
            }
        }
        let n = count as f64;
        let means: Vec<f64> = sums.iter().map(|sum| sum / n).collect();
        let deviations = squares
            .iter()
            .zip(&means)
            .map(|(square, mean)| (square / n - mean * mean).max(0.0).sqrt());
        let deviations: Vec<f64> = deviations.collect();
        if let Some(same) = deviations.iter().position(|deviation| *deviation <= 0.0) {
            anyhow::bail!(
                "expected different values in column {}, found the same in every row; remove the column",
                same + 1
            );
        }
        Ok(Self { means, deviations })
    }

    fn apply(&self, (variables, targets): &(Array<f64>, Array<f64>)) -> (Array<f32>, Array<f32>) {
        let scales = self.means.iter().zip(&self.deviations);
        let scaled = variables
            .values()
            .iter()
            .zip(scales)
            .map(|(value, (mean, deviation))| ((value - mean) / deviation) as f32);
        let targets = targets.values().iter().map(|&target| target as f32);
        (Array::row(scaled.collect()), Array::row(targets.collect()))
    }
}
