//! What PyTorch makes of the same updates.
//!
//! Printed by PyTorch 2.4.1 on a CPU, in float64: each optimizer of `torch.optim` with `weight_decay=0.0625` on one parameter, whose
//! `grad` is set to each gradient below in turn, the group's `lr` to the rate beside it, and `step()` called. Nine digits are
//! kept. PyTorch has no LARS.

use super::*;

const VALUES: [f32; 3] = [0.5, -1.25, 2.0];

const UPDATES: [(f64, [f32; 3]); 5] = [
    (0.125, [0.25, -0.5, 1.0]),
    (0.125, [-0.75, 0.125, 0.5]),
    (0.0625, [1.5, -0.25, -1.0]),
    (0.0625, [0.0, 0.375, 0.625]),
    (0.03125, [-0.5, 1.0, 0.25]),
];

#[test]
fn five_updates_end_where_those_of_pytorch_do() {
    let golden: [(&dyn Optimizer, [f64; 3]); 10] = [
        (&Sgd::new(), [0.471_983_127, -1.211_738_539, 1.780_332_784]),
        (&Sgd::new().momentum(0.9), [0.375_465_518, -1.069_335_660, 1.497_124_224]),
        (&Sgd::nesterov(0.9), [0.360_681_236, -1.052_834_757, 1.336_213_944]),
        (&RmsProp::new(), [-0.027_356_224, -0.571_730_465, 0.299_497_686]),
        (&RmsProp::new().momentum(0.9), [-1.739_673_421, 1.405_575_679, -2.039_018_097]),
        (
            &RmsProp::new().alpha(0.9).epsilon(1e-3),
            [0.329_709_420, -0.986_923_930, 1.422_144_978],
        ),
        (&Adagrad::new(), [0.443_172_582, -1.157_259_564, 1.817_147_906]),
        (&Adam::new(), [0.380_137_807, -0.997_547_365, 1.701_297_542]),
        (
            &Adam::new().betas(0.8, 0.95).epsilon(1e-3),
            [0.383_594_122, -1.013_356_305, 1.710_739_637],
        ),
        (&AdamW::new(), [0.378_736_931, -1.006_652_753, 1.674_817_116]),
    ];
    for (optimizer, expected) in golden {
        let mut tensor = Tensor::new(optimizer, VALUES.to_vec());
        for (number, (rate, gradient)) in (1..).zip(UPDATES) {
            let (decay, norms) = (0.0625, Norms::default());
            tensor.update(
                optimizer,
                &Update {
                    number,
                    rate,
                    decay,
                    norms,
                },
                &gradient,
                &[],
            );
        }
        for (&found, expected) in tensor.values.iter().zip(expected) {
            // Five updates round some five times each, at values of up to 2.5.
            assert!(
                (f64::from(found) - expected).abs() < 2e-6,
                "{}: {found}, {expected}",
                optimizer.describe()
            );
        }
    }
}
