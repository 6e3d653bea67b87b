//! The second level of simulation in the test suite: the shells of the machines.

mod virtual_time;
