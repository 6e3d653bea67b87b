//! Simulated clusters of the machines alone, in virtual time. What they find is a function of a seed, whatever else this computer does.

mod machines;
