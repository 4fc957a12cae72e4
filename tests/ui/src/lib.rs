//! Nothing is here: the tests are in `tests/ui.rs`, what they compile is in `cases`.
