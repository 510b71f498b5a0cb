"""Makes the packages for npm: one for each platform, with its program, and one that starts it.

    pack.py VERSION DIST PLATFORM=PROGRAM...        pack.py 0.1.0 dist linux-x64=target/…/nono

The archives hold no times and no owners of this machine, so equal programs make equal archives.
"""

import gzip
import io
import json
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).parent
NAME = "nono-undo"
DESCRIPTION = "Undo for AI agents, and for anything else that changes many files"


def fields(name: str, version: str, description: str) -> dict[str, object]:
    """The fields that each of our packages has."""
    return {"name": name, "version": version, "description": description, "license": "Apache-2.0"}


def platform_package(version: str, platform: str) -> dict[str, object]:
    """The manifest of the package with the program for a platform."""
    system, processor = platform.split("-")
    own = fields(f"{NAME}-{platform}", version, f"The program nono for {platform}")
    return own | {"os": [system], "cpu": [processor], "preferUnplugged": True}


def main_package(version: str, platforms: list[str]) -> dict[str, object]:
    """The manifest of the package that people install."""
    own = fields(NAME, version, DESCRIPTION)
    return own | {
        "bin": {"nono": "bin/nono.js", NAME: "bin/nono.js"},
        "engines": {"node": ">=18"},
        "keywords": ["undo", "agent", "snapshot", "rollback", "backup"],
        "optionalDependencies": {f"{NAME}-{platform}": version for platform in platforms},
    }


def pack(path: Path, manifest: dict[str, object], files: dict[str, tuple[bytes, int]]) -> None:
    """Writes a package as `npm pack` would, below `package/`."""
    text = json.dumps(manifest, indent=2) + "\n"
    members = {"package.json": (text.encode(), 0o644)} | files
    unpacked = io.BytesIO()
    with tarfile.open(fileobj=unpacked, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (data, mode) in sorted(members.items()):
            member = tarfile.TarInfo(f"package/{name}")
            member.size, member.mode = len(data), mode
            archive.addfile(member, io.BytesIO(data))
    path.write_bytes(gzip.compress(unpacked.getvalue(), mtime=0))


def main() -> None:
    """Packs what the arguments name."""
    version, dist, *given = sys.argv[1:]
    programs = dict(pair.split("=", 1) for pair in given)
    licence = ((HERE.parent.parent / "LICENSE").read_bytes(), 0o644)
    for platform, program in programs.items():
        pack(
            Path(dist, f"{NAME}-{platform}-{version}.tgz"),
            platform_package(version, platform),
            {"bin/nono": (Path(program).read_bytes(), 0o755), "LICENSE": licence},
        )
    pack(
        Path(dist, f"{NAME}-{version}.tgz"),
        main_package(version, sorted(programs)),
        {
            "bin/nono.js": ((HERE / "nono.js").read_bytes(), 0o755),
            "README.md": ((HERE / "README.md").read_bytes(), 0o644),
            "LICENSE": licence,
        },
    )


main()
