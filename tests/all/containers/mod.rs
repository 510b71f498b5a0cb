//! Containers of a real engine: its fixture, and the tests by subject.

mod configuration;
mod daemon;
mod daemon_test;
mod databases;
mod endpoints;
mod engine;
mod going_on;
mod in_place;
mod keeping;
mod killed;
mod oddities;
mod proxy;
mod replacing;
mod restore;
mod snapshots;
mod storages;
mod travelling;
mod trouble;
mod unfinished;
