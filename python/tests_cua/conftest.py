"""The daemon of the other tests."""

from dockerd import docker as docker
