//! Ports of the machine: the ones that other containers hold are left to them.

use std::collections::{BTreeMap, HashSet};

use bollard::models::{ContainerSummary, PortBinding, PortMap};
use serde::Serialize;

/// A published port of the new container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlannedPort {
    /// The port in the container: `80/tcp`.
    pub port: String,
    /// Address and port of the machine in the snapshot: `0.0.0.0:8080`.
    pub wanted: String,
    /// Whether a running container holds that port, so that a random one takes its place.
    pub is_random: bool,
}

/// Ports of the machine that containers hold: number and protocol.
pub(super) fn held(
    containers: &[ContainerSummary],
    is_spared: impl Fn(&str) -> bool,
) -> HashSet<(u16, String)> {
    let others = containers.iter().filter(|one| !one.id.as_deref().is_some_and(&is_spared));
    let ports = others.flat_map(|one| one.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let protocol = port.typ.map_or("tcp".to_owned(), |protocol| protocol.to_string());
            Some((port.public_port?, protocol))
        })
        .collect()
}

/// The bindings of a new container, and what they mean.
pub(super) fn planned(
    bindings: &PortMap,
    held: &HashSet<(u16, String)>,
) -> (PortMap, Vec<PlannedPort>) {
    let sorted: BTreeMap<_, _> = bindings.iter().collect();
    let mut new = PortMap::new();
    let mut planned = Vec::new();
    for (port, places) in sorted {
        let protocol = port.split_once('/').map_or("tcp", |(_, protocol)| protocol);
        let mut kept = Vec::new();
        for place in places.iter().flatten() {
            let wanted = place.host_port.as_deref().unwrap_or_default();
            let numbers = range(wanted);
            let is_random = numbers.is_some_and(|(first, last)| {
                (first..=last).all(|number| held.contains(&(number, protocol.to_owned())))
            });
            let host_port = if is_random { String::new() } else { wanted.to_owned() };
            kept.push(PortBinding { host_port: Some(host_port), ..place.clone() });
            let ip = place.host_ip.as_deref().filter(|ip| !ip.is_empty()).unwrap_or("0.0.0.0");
            let wanted = if wanted.is_empty() { "random" } else { wanted };
            let wanted = format!("{ip}:{wanted}");
            planned.push(PlannedPort { port: port.clone(), wanted, is_random });
        }
        new.insert(port.clone(), Some(kept));
    }
    (new, planned)
}

/// `8080` or `8080-8090`; `None` for a random port.
fn range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first > 0).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(port: &str) -> Option<Vec<PortBinding>> {
        Some(vec![PortBinding { host_ip: None, host_port: Some(port.to_owned()) }])
    }

    #[test]
    fn only_a_held_port_of_the_same_protocol_becomes_random() {
        let bindings =
            PortMap::from([("80/tcp".into(), binding("8080")), ("80/udp".into(), binding("8080"))]);
        let held = HashSet::from([(8080, "tcp".to_owned())]);
        let (new, ports) = planned(&bindings, &held);
        assert_eq!(new["80/tcp"], binding(""));
        assert_eq!(new["80/udp"], binding("8080"));
        assert_eq!([ports[0].is_random, ports[1].is_random], [true, false]);
    }

    #[test]
    fn a_range_is_held_when_all_of_it_is() {
        let bindings = PortMap::from([("80/tcp".into(), binding("8080-8081"))]);
        let one = HashSet::from([(8080, "tcp".to_owned())]);
        assert!(!planned(&bindings, &one).1[0].is_random);
        let both = HashSet::from([(8080, "tcp".to_owned()), (8081, "tcp".to_owned())]);
        assert!(planned(&bindings, &both).1[0].is_random);
    }
}
