"""An S3 server whose bucket holds so many archives from the beginning: ten of each session."""

import sys

from moto.s3.models import s3_backends
from moto.server import main

count = int(sys.argv[1])
backend = s3_backends["123456789012"]["aws"]
backend.create_bucket("bucket", "us-east-1")
for number in range(count):
    session = f"2026{number // 1000:04d}-000000-{number // 10}"
    kind = "full" if number % 10 == 0 else f"delta-{number % 10 - 1}"
    key = f"far/{session}/{number % 10}-{kind}.tar.zst.age"
    backend.put_object("bucket", key, b"x" * 64)
main(["-H", "127.0.0.1", "-p", "0"])
