//! The examples and the image: the files that they name exist, they agree with each other, and they work together.

mod compose;
mod cron;
mod kustomize;
pub mod manifest;
mod mirror;
mod site;
