//! Linear regression on 442 patients with diabetes (Efron, Hastie, Johnstone, Tibshirani: "Least angle regression", 2004), by
//! gradient descent with momentum, beside the closed form.
//!
//! The shortest complete model: no framework, f64 throughout, and an answer that is known. Must not know how or where it is
//! trained.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use sardana::data::Shard;
use sardana::job::JobBuilder;
use sardana::model::{Dtype, GradientWriter, Mean, ModelError, Step, TensorSpec, Trainable};
use sardana::{Job, JobSpec};

use crate::table::{self, FirstLine};

/// Columns that the target is explained by.
const FEATURES: usize = 10;

/// The features' coefficients, then the intercept.
pub const COEFFICIENTS: usize = FEATURES + 1;

/// Numbers of a data set's coefficients, and of one row of it: the standardised features, then 1.
pub type Coefficients = [f64; COEFFICIENTS];

/// How far a step goes down the slope, and how much of the last step it keeps. The mean squares' curvature runs from 0.0086 to
/// 4.0 (the eigenvalues of the features' correlations): heavy-ball descent is stable while rate × 4.0 < 2 (1 + momentum), and
/// its error shrinks by √momentum a step if rate × 0.0086 ≥ (1 - √momentum)² (Polyak 1964).
const RATE: f64 = 0.4;
const MOMENTUM: f64 = 0.9;

const CSV: &str = include_str!("../data/diabetes.csv");

/// The job: 300 steps over all rows, cut into 8 shards.
#[must_use]
pub fn job() -> JobBuilder {
    Job::builder("linear-regression").seed(42).shards(8).data(442, 442).steps(300)
}

/// The constants of [`job`].
///
/// # Panics
/// Never: they are valid.
#[must_use]
pub fn spec() -> JobSpec {
    job().build().expect("the job's constants are valid").spec().clone()
}

/// Rows of standardised features and their targets.
#[derive(Clone, Debug, PartialEq)]
pub struct Patients {
    rows: Vec<Coefficients>,
    targets: Vec<f64>,
}

/// How well coefficients explain the targets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Mean of the squared residuals.
    pub mean_squared_error: f64,
    /// The part of the targets' variance that is explained.
    pub r_squared: f64,
}

impl Patients {
    fn parse(text: &str, source: &str) -> Result<Self> {
        let table = table::parse(text, source, FirstLine::Names, FEATURES + 1)?;
        let mut rows = vec![[1.0; COEFFICIENTS]; table.len()];
        for column in 0..FEATURES {
            let values = table.iter().map(|row| row.numbers[column]);
            let mean = values.clone().sum::<f64>() / table.len() as f64;
            let variance = values.clone().map(|value| (value - mean).powi(2)).sum::<f64>() / table.len() as f64;
            ensure!(
                variance > 0.0,
                "{source}: expected different values in column {}, found {mean} in every row; remove the column",
                column + 1
            );
            for (row, value) in rows.iter_mut().zip(values) {
                row[column] = (value - mean) / variance.sqrt();
            }
        }
        let targets = table.iter().map(|row| row.numbers[FEATURES]).collect();
        Ok(Self { rows, targets })
    }

    /// How well these coefficients explain the targets.
    #[must_use]
    pub fn fit(&self, coefficients: &Coefficients) -> Fit {
        let n = self.targets.len() as f64;
        let mean = self.targets.iter().sum::<f64>() / n;
        let squares = |residuals: &mut dyn Iterator<Item = f64>| residuals.map(|r| r * r).sum::<f64>();
        let residual = squares(&mut (0..self.rows.len()).map(|index| self.residual(coefficients, index)));
        let total = squares(&mut self.targets.iter().map(|target| target - mean));
        Fit {
            mean_squared_error: residual / n,
            r_squared: 1.0 - residual / total,
        }
    }

    /// The coefficients of least squares, in closed form: the normal equations, solved by Cholesky's decomposition.
    ///
    /// # Errors
    /// When the columns depend on each other, so that there is no single answer.
    pub fn least_squares(&self) -> Result<Coefficients> {
        let mut products = [[0.0; COEFFICIENTS]; COEFFICIENTS];
        let mut right = [0.0; COEFFICIENTS];
        for (row, target) in self.rows.iter().zip(&self.targets) {
            for (i, value) in row.iter().enumerate() {
                right[i] += value * target;
                for (j, other) in row.iter().enumerate() {
                    products[i][j] += value * other;
                }
            }
        }
        // The lower triangle becomes L, with L Lᵀ = products.
        let mut lower = products;
        for i in 0..COEFFICIENTS {
            for j in 0..=i {
                let known: f64 = (0..j).map(|k| lower[i][k] * lower[j][k]).sum();
                let rest = products[i][j] - known;
                if i == j {
                    ensure!(
                        rest > 1e-9 * products[i][i],
                        "expected independent columns, found column {} to depend on those before it",
                        i + 1
                    );
                    lower[i][i] = rest.sqrt();
                } else {
                    lower[i][j] = rest / lower[j][j];
                }
            }
        }
        let mut solution = right;
        for i in 0..COEFFICIENTS {
            let known: f64 = (0..i).map(|k| lower[i][k] * solution[k]).sum();
            solution[i] = (solution[i] - known) / lower[i][i];
        }
        for i in (0..COEFFICIENTS).rev() {
            let known: f64 = (i + 1..COEFFICIENTS).map(|k| lower[k][i] * solution[k]).sum();
            solution[i] = (solution[i] - known) / lower[i][i];
        }
        Ok(solution)
    }

    /// What the coefficients predict for a row, less its target.
    fn residual(&self, coefficients: &Coefficients, row: usize) -> f64 {
        let predicted: f64 = self.rows[row].iter().zip(coefficients).map(|(value, c)| value * c).sum();
        predicted - self.targets[row]
    }
}

/// How far `found` lies from `expected`, relative to the length of `expected`.
#[must_use]
pub fn relative_distance(found: &[f64], expected: &[f64]) -> f64 {
    let length = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    length(&mut found.iter().zip(expected).map(|(f, e)| f - e)) / length(&mut expected.iter().copied())
}

/// The coefficients under way, with their data.
#[derive(Clone, Debug)]
pub struct LinearRegression {
    patients: Patients,
    coefficients: Coefficients,
    /// The last step taken.
    velocity: Coefficients,
}

impl LinearRegression {
    /// State 0 of the job, with the data that come with this program.
    ///
    /// # Errors
    /// When the job is for another number of rows.
    pub fn new(spec: &JobSpec) -> Result<Self, ModelError> {
        Ok(Self::with_patients(spec, CSV, "diabetes.csv")?)
    }

    /// State 0 of the job, with data from a CSV file of the same form: names in the first line, then 10 features and the target.
    ///
    /// # Errors
    /// When the file cannot be read, is malformed, or the job is for another number of rows.
    pub fn from_file(spec: &JobSpec, path: &Path) -> Result<Self, ModelError> {
        let source = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the data in {source}"))?;
        Ok(Self::with_patients(spec, &text, &source)?)
    }

    fn with_patients(spec: &JobSpec, text: &str, source: &str) -> Result<Self> {
        let patients = Patients::parse(text, source)?;
        let found = patients.rows.len();
        ensure!(
            spec.samples == found as u64,
            "{source}: expected {} rows, as the job says, found {found}; set the job's `samples` to {found}",
            spec.samples
        );
        Ok(Self {
            patients,
            coefficients: [0.0; COEFFICIENTS],
            velocity: [0.0; COEFFICIENTS],
        })
    }

    /// The data.
    #[must_use]
    pub fn patients(&self) -> &Patients {
        &self.patients
    }

    /// The coefficients so far.
    #[must_use]
    pub fn coefficients(&self) -> &Coefficients {
        &self.coefficients
    }

    fn spec(name: &str) -> TensorSpec {
        TensorSpec::new(name, Dtype::F64, &[COEFFICIENTS])
    }
}

impl Trainable for LinearRegression {
    fn gradients(&self) -> Vec<TensorSpec> {
        vec![Self::spec("coefficients")]
    }

    fn auxiliary(&self) -> Vec<String> {
        vec!["loss".to_owned()]
    }

    fn gradient(&self, shard: &Shard, out: &mut GradientWriter<'_>) -> Result<(), ModelError> {
        let (mut gradient, mut loss) = ([0.0; COEFFICIENTS], 0.0);
        for &sample in shard.samples() {
            let sample = sample as usize;
            let residual = self.patients.residual(&self.coefficients, sample);
            loss += residual * residual;
            for (slope, value) in gradient.iter_mut().zip(&self.patients.rows[sample]) {
                *slope += residual * value;
            }
        }
        out.write_f64(0, &gradient)?;
        out.auxiliary(0, loss)?;
        out.samples(shard.samples().len() as u64)?;
        Ok(())
    }

    fn apply(&mut self, _step: Step, mean: &Mean<'_>) -> Result<(), ModelError> {
        let gradient = mean.f64(0)?;
        for (index, slope) in gradient.into_iter().enumerate() {
            self.velocity[index] = MOMENTUM * self.velocity[index] - RATE * slope;
            self.coefficients[index] += self.velocity[index];
        }
        Ok(())
    }

    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        for (name, values) in [("coefficients", &self.coefficients), ("velocity", &self.velocity)] {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            visitor(&Self::spec(name), &bytes);
        }
        Ok(())
    }

    fn load(&mut self, tensor: &TensorSpec, bytes: &[u8]) -> Result<(), ModelError> {
        let values = match tensor.name.as_str() {
            "coefficients" => &mut self.coefficients,
            "velocity" => &mut self.velocity,
            other => return Err(format!("expected coefficients or velocity, found {other}").into()),
        };
        let (elements, _) = bytes.as_chunks::<8>();
        if *tensor != Self::spec(&tensor.name) || elements.len() != values.len() {
            return Err(format!("expected {COEFFICIENTS} numbers in f64, found {tensor}").into());
        }
        for (value, bytes) in values.iter_mut().zip(elements) {
            *value = f64::from_le_bytes(*bytes);
        }
        Ok(())
    }

    fn evaluate(&self) -> Result<Vec<(String, f64)>, ModelError> {
        let fit = self.patients.fit(&self.coefficients);
        let closed_form = self.patients.least_squares()?;
        Ok(vec![
            ("r_squared".to_owned(), fit.r_squared),
            ("mean_squared_error".to_owned(), fit.mean_squared_error),
            (
                "distance_to_closed_form".to_owned(),
                relative_distance(&self.coefficients, &closed_form),
            ),
        ])
    }
}

#[cfg(test)]
mod tests {
    use sardana::data::Sampler;
    use sardana::model::{probe, restore, save, state_hash};
    use sardana::reference::{advance, train};

    use super::*;

    #[test]
    fn the_closed_form_gives_the_published_figures() {
        let model = LinearRegression::new(&spec()).unwrap();
        let fit = model.patients.fit(&model.patients.least_squares().unwrap());
        assert!((fit.r_squared - 0.517_748_4).abs() < 1e-7, "{fit:?}");
        assert!((fit.mean_squared_error - 2859.69635).abs() < 1e-4, "{fit:?}");
    }

    #[test]
    fn descent_ends_at_the_closed_form() {
        let spec = spec();
        let mut model = LinearRegression::new(&spec).unwrap();
        let reference = train(&spec, &mut model).unwrap();
        let closed_form = model.patients.least_squares().unwrap();
        assert!(relative_distance(&model.coefficients, &closed_form) < 1e-3);
        // The intercept is the longest by far: the features on their own are the harder test.
        assert!(relative_distance(&model.coefficients[..FEATURES], &closed_form[..FEATURES]) < 1e-3);
        assert!((reference.results[0].1 - 0.517_748_4).abs() < 1e-6, "{:?}", reference.results);
        let last = &reference.reports[299];
        assert!((last.sums[0] / last.samples as f64 - 2859.69635).abs() < 1e-2);
    }

    #[test]
    fn a_run_continued_from_a_saved_state_ends_in_the_same_bits() {
        let spec = spec();
        let undisturbed = train(&spec, &mut LinearRegression::new(&spec).unwrap()).unwrap();
        let mut first = LinearRegression::new(&spec).unwrap();
        advance(&spec, &mut first, Step::ZERO..Step::new(101)).unwrap();
        let mut second = LinearRegression::new(&spec).unwrap();
        restore(&mut second, &save(&first).unwrap()).unwrap();
        advance(&spec, &mut second, Step::new(101)..spec.steps).unwrap();
        assert_eq!(state_hash(&second, spec.steps).unwrap(), undisturbed.hash);
        probe(&mut LinearRegression::new(&spec).unwrap(), &Sampler::new(&spec).unwrap()).unwrap();
    }

    #[test]
    fn malformed_data_are_refused() {
        let refusal = |text: &str| format!("{:#}", LinearRegression::with_patients(&spec(), text, "p.csv").unwrap_err());
        assert!(refusal("names\n1,2\n").starts_with("p.csv, line 2: expected 11 numbers separated by commas, found 2"));
        let rows = |last: &str| format!("names\n1,2,3,4,5,6,7,8,9,10,5\n2,3,4,5,6,7,8,9,10,{last},5\n");
        assert!(refusal(&rows("x")).contains("line 3: expected a finite number in field 10, found \"x\""));
        assert!(refusal(&rows("10")).contains("expected different values in column 10, found 10 in every row"));
        assert!(refusal(&rows("11")).contains("expected 442 rows, as the job says, found 2"));
    }
}
