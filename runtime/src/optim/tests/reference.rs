//! A thousand updates against the textbook's formulas in f64, written without a look at the optimizers.

use super::*;

/// What is common to one update, in the textbook's letters: update t, rate η, decay λ.
struct Given {
    t: u64,
    eta: f64,
    lambda: f64,
}

/// One update of w by g, with up to two things remembered of each value.
type Textbook = fn(&Given, w: &mut [f64], g: &[f64], a: &mut [f64], b: &mut [f64]);

fn sgd(given: &Given, w: &mut [f64], g: &[f64], _: &mut [f64], _: &mut [f64]) {
    for i in 0..w.len() {
        w[i] -= given.eta * (g[i] + given.lambda * w[i]);
    }
}

fn momentum(given: &Given, w: &mut [f64], g: &[f64], v: &mut [f64], _: &mut [f64]) {
    for i in 0..w.len() {
        v[i] = 0.9 * v[i] + g[i] + given.lambda * w[i];
        w[i] -= given.eta * v[i];
    }
}

fn nesterov(given: &Given, w: &mut [f64], g: &[f64], v: &mut [f64], _: &mut [f64]) {
    for i in 0..w.len() {
        let g = g[i] + given.lambda * w[i];
        // The two terms of the look-ahead, multiplied out: (1 + μ)g + μ²v.
        w[i] -= given.eta * (1.9 * g + 0.81 * v[i]);
        v[i] = 0.9 * v[i] + g;
    }
}

fn rmsprop(given: &Given, w: &mut [f64], g: &[f64], s: &mut [f64], v: &mut [f64]) {
    rmsprop_with(0.0, given, w, g, s, v);
}

fn rmsprop_momentum(given: &Given, w: &mut [f64], g: &[f64], s: &mut [f64], v: &mut [f64]) {
    rmsprop_with(0.9, given, w, g, s, v);
}

fn rmsprop_with(mu: f64, given: &Given, w: &mut [f64], g: &[f64], s: &mut [f64], v: &mut [f64]) {
    for i in 0..w.len() {
        let g = g[i] + given.lambda * w[i];
        s[i] = 0.99 * s[i] + 0.01 * g * g;
        v[i] = mu * v[i] + g / (s[i].sqrt() + 1e-8);
        w[i] -= given.eta * v[i];
    }
}

fn adagrad(given: &Given, w: &mut [f64], g: &[f64], s: &mut [f64], _: &mut [f64]) {
    for i in 0..w.len() {
        let g = g[i] + given.lambda * w[i];
        s[i] += g * g;
        w[i] -= given.eta * g / (s[i].sqrt() + 1e-10);
    }
}

/// Algorithm 1 of Kingma and Ba, with L2 decay.
fn adam(given: &Given, w: &mut [f64], g: &[f64], m: &mut [f64], v: &mut [f64]) {
    for i in 0..w.len() {
        w[i] -= given.eta * moments(given, g[i] + given.lambda * w[i], &mut m[i], &mut v[i]);
    }
}

/// Algorithm 2 of Loshchilov and Hutter, whose schedule multiplies the rate and the decay alike.
fn adamw(given: &Given, w: &mut [f64], g: &[f64], m: &mut [f64], v: &mut [f64]) {
    for i in 0..w.len() {
        w[i] -= given.eta * (moments(given, g[i], &mut m[i], &mut v[i]) + given.lambda * w[i]);
    }
}

fn moments(given: &Given, g: f64, m: &mut f64, v: &mut f64) -> f64 {
    *m = 0.9 * *m + (1.0 - 0.9) * g;
    *v = 0.999 * *v + (1.0 - 0.999) * g * g;
    let m_hat = *m / (1.0 - 0.9_f64.powf(given.t as f64));
    let v_hat = *v / (1.0 - 0.999_f64.powf(given.t as f64));
    m_hat / (v_hat.sqrt() + 1e-8)
}

/// Algorithm 1 of You, Gitman and Ginsburg.
fn lars(given: &Given, w: &mut [f64], g: &[f64], v: &mut [f64], _: &mut [f64]) {
    let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    let local = 0.001 * norm(w) / (norm(g) + given.lambda * norm(w) + 1e-8);
    for i in 0..w.len() {
        v[i] = 0.9 * v[i] + given.eta * local * (g[i] + given.lambda * w[i]);
        w[i] -= v[i];
    }
}

#[test]
fn a_thousand_updates_are_the_textbooks() {
    const LENGTH: usize = 61;
    // In the order of `every_optimizer`. LARS takes rates a thousand times as large: its trust is a thousandth.
    let textbooks: [(Textbook, f64); 9] = [
        (sgd, 0.03),
        (momentum, 0.01),
        (nesterov, 0.01),
        (rmsprop, 0.01),
        (rmsprop_momentum, 0.01),
        (adagrad, 0.03),
        (adam, 0.01),
        (adamw, 0.01),
        (lars, 3.0),
    ];
    for (optimizer, (textbook, eta)) in every_optimizer().iter().zip(textbooks) {
        let mut rng = CounterRng::new(5, Domain::User { stream: 0 });
        let mut tensor = Tensor::new(optimizer.as_ref(), draw(&mut rng, LENGTH));
        let mut w = tensor.values.iter().copied().map(f64::from).collect::<Vec<_>>();
        let (mut a, mut b) = ([0.0; LENGTH], [0.0; LENGTH]);
        for t in 1..=1_000 {
            // A rate that changes shows whether it is inside the velocity or outside.
            let eta = if t <= 500 { eta } else { eta / 4.0 };
            let lambda = 0.02;
            let gradient = draw(&mut rng, LENGTH);
            let norms = tensor.norms(&gradient);
            let update = Update {
                number: t,
                rate: eta,
                decay: lambda,
                norms,
            };
            tensor.update(optimizer.as_ref(), &update, &gradient, &[]);
            let g = gradient.iter().copied().map(f64::from).collect::<Vec<_>>();
            textbook(&Given { t, eta, lambda }, &mut w, &g, &mut a, &mut b);
        }
        // An update rounds a value by up to 2^-24 of it, 6e-8. A thousand that all round the same way would be 6e-5 off; as many that
        // round either way are some thirty times 6e-8 off, 2e-6, and this is what is found.
        let largest = w.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
        for (&found, expected) in tensor.values.iter().zip(&w) {
            let off = (f64::from(found) - expected).abs() / largest;
            assert!(off < 1e-5, "{}: {found}, {expected}", optimizer.describe());
        }
    }
}
